//! The rows of the matrix.

mod company;
mod loss;
mod neighbours;

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
        neighbours::beside_cubic(quick),
        loss::random(quick),
        loss::random_with_company(quick),
    ]
}
