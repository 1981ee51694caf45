//! The rows of the matrix.

mod changes;
mod company;
mod hosts;
mod loss;
mod neighbours;
mod queues;
mod swarm;

use crate::cell::{Measure, Run};

/// What one cell does in a run.
pub(crate) type Job = Box<dyn Fn(Run) -> Vec<Measure> + Send + Sync>;

/// One scene with its reference.
pub(crate) struct Cell {
    pub(crate) name: String,
    pub(crate) run: Job,
}

/// One row.
pub(crate) struct Row {
    pub(crate) number: u32,
    pub(crate) title: &'static str,
    /// What is measured, against which bound and reference.
    pub(crate) about: &'static str,
    pub(crate) cells: Vec<Cell>,
}

impl Cell {
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl Fn(Run) -> Vec<Measure> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// All rows, with all of their cells or with a few.
pub(crate) fn all(quick: bool) -> Vec<Row> {
    vec![
        company::alone(quick),
        company::own_kind(quick),
        company::tiny_windows(quick),
        company::at_once(quick),
        company::latecomer(quick),
        neighbours::beside_cubic(quick),
        neighbours::beside_reno(quick),
        neighbours::beside_bbr(quick),
        neighbours::round_trips(quick),
        neighbours::packet_sizes(quick),
        neighbours::beside_web(quick),
        neighbours::beside_video(quick),
        neighbours::beside_voice(quick),
        loss::random(quick),
        loss::runs(quick),
        loss::random_with_company(quick),
        loss::looks_random(quick),
        queues::dropping(quick),
        queues::marking(quick),
        queues::marks_ignored(quick),
        queues::policers(quick),
        changes::round_trips(quick),
        changes::capacities(quick),
        changes::way_back(quick),
        hosts::jitter(quick),
        changes::outages(quick),
        changes::cold_starts(quick),
        hosts::stands_still(quick),
        hosts::reordering(quick),
        swarm::random_paths(quick),
    ]
}
