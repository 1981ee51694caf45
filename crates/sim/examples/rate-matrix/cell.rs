//! What a cell of the matrix measures, and whether that is within its bound.

use netblt_proto::config::Policy;

/// One run of a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) policy: Policy,
    pub(crate) seed: u64,
}

/// How a figure is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Unit {
    #[default]
    Percent,
    /// A small share, with more digits.
    Loss,
    Millis,
    Seconds,
    Ratio,
}

/// The figure of one run beside its reference and its bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) figure: f64,
    pub(crate) reference: Option<f64>,
    pub(crate) bound: f64,
    /// The bound is the most that the figure may be; else the least.
    pub(crate) is_most: bool,
    /// Each run has to be within its bound; else the means have to be.
    pub(crate) each: bool,
}

impl Measure {
    /// A share or a rate, of which the mean over the runs has to be this much.
    pub(crate) fn at_least(name: &'static str, unit: Unit, figure: f64, bound: f64) -> Self {
        Self { name, unit, figure, bound, ..Self::default() }
    }

    /// A cost, which may be this much in the mean over the runs.
    pub(crate) fn at_most(name: &'static str, unit: Unit, figure: f64, bound: f64) -> Self {
        Self { is_most: true, ..Self::at_least(name, unit, figure, bound) }
    }

    /// A loss, which may be this much in every run.
    pub(crate) fn loss(name: &'static str, figure: f64, bound: f64) -> Self {
        Self { each: true, ..Self::at_most(name, Unit::Loss, figure, bound) }
    }

    /// What the reference had.
    pub(crate) fn beside(self, reference: f64) -> Self {
        Self { reference: Some(reference), ..self }
    }

    /// By how much it misses its bound; not positive if it does not.
    fn excess(&self) -> f64 {
        if self.is_most { self.figure - self.bound } else { self.bound - self.figure }
    }
}

/// A cell over all runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    pub(crate) measures: Vec<Measure>,
}

impl Judged {
    pub(crate) fn passes(&self) -> bool {
        self.measures.iter().all(is_within)
    }
}

pub(crate) fn is_within(measure: &Measure) -> bool {
    // A figure that is no number is none.
    measure.excess() <= 1e-9
}

/// Of each measure the worst run, or the mean.
pub(crate) fn judge(runs: &[Vec<Measure>]) -> Judged {
    let Some(first) = runs.first() else { return Judged::default() };
    let all = |n: usize| runs.iter().filter_map(move |run| run.get(n));
    let measures = first.iter().enumerate().filter_map(|(n, measure)| {
        if measure.each {
            return all(n).max_by(|a, b| a.excess().total_cmp(&b.excess())).cloned();
        }
        let count = all(n).count() as f64;
        let mean = |part: fn(&Measure) -> f64| all(n).map(part).sum::<f64>() / count;
        let reference = measure.reference.map(|_| mean(|m| m.reference.unwrap_or(f64::NAN)));
        let (figure, bound) = (mean(|m| m.figure), mean(|m| m.bound));
        Some(Measure { figure, bound, reference, ..measure.clone() })
    });
    Judged { measures: measures.collect() }
}
