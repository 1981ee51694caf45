//! Round numbers along an axis, and no more points than pixels.

/// Limit on the points of a line: more than pixels. Groups are reduced to their extremes.
const MAX_POINTS: usize = 4000;
/// Limit on the marks of an axis.
const MAX_MARKS: u32 = 20;

/// From zero to the largest value, with marks at round numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PanelAxis {
    pub(super) end: f64,
    step: f64,
    /// Start of a logarithmic axis: a power of ten.
    from: Option<f64>,
}

impl PanelAxis {
    /// A step of 1, 2 or 5 times a power of ten, for values up to `largest`.
    pub(super) fn new(largest: f64) -> Self {
        let end = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
        let power = 10_f64.powf((end / 6.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = steps.into_iter().find(|step| end / step <= 7.0).unwrap_or(10.0 * power);
        Self { end, step, from: None }
    }

    /// A logarithmic one, from below the smallest of the values to the largest.
    pub(super) fn logarithmic(smallest: f64, largest: f64) -> Self {
        // The smallest value has to be visible, too.
        let from = 10_f64.powf((smallest / 2.0).log10().floor());
        Self { end: largest.max(from * 10.0), step: from, from: Some(from) }
    }

    /// The position of a value on the axis: from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match self.from {
            Some(from) => (value / from).log10() / (self.end / from).log10(),
            None => value / self.end,
        };
        share.clamp(0.0, 1.0)
    }

    pub(super) fn is_logarithmic(&self) -> bool {
        self.from.is_some()
    }

    pub(super) fn marks(&self) -> impl Iterator<Item = f64> + use<> {
        let (step, is_logarithmic) = (self.step, self.is_logarithmic());
        let count = match self.from {
            Some(from) => ((self.end / from).log10() + 1e-9).floor() as u32,
            None => (self.end / self.step * (1.0 + 1e-9)).floor() as u32,
        };
        (0..=count.min(MAX_MARKS)).map(move |n| match is_logarithmic {
            true => step * 10_f64.powi(n as i32),
            false => f64::from(n) * step,
        })
    }

    /// A number with as many decimals as the step.
    pub(super) fn number(&self, value: f64) -> String {
        let step = if self.is_logarithmic() { value } else { self.step };
        let whole = step >= 1.0;
        let decimals = if whole { 0 } else { (-step.log10()).ceil().clamp(1.0, 9.0) as usize };
        format!("{value:.decimals$}")
    }
}

/// Reduces groups of points to their lowest and highest, so that peaks stay visible.
pub(super) fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let group = points.len().div_ceil(MAX_POINTS / 2);
    let ends = |group: &[(f64, f64)]| {
        let low = group.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
        let high = group.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut ends: Vec<_> = low.into_iter().chain(high).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends
    };
    points.chunks(group).flat_map(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_round() {
        assert_eq!(PanelAxis::new(0.0), PanelAxis::new(1.0), "nothing to show still has an axis");
        assert_eq!(PanelAxis::new(f64::NAN), PanelAxis::new(1.0));
        for (largest, last, count) in [(97.3, "80", 5), (1000.0, "1000", 6), (0.27, "0.25", 6)] {
            let axis = PanelAxis::new(largest);
            let marks: Vec<f64> = axis.marks().collect();
            assert_eq!(axis.number(marks[marks.len() - 1]), last, "{largest}");
            assert_eq!(marks.len(), count, "{largest}");
        }
    }

    #[test]
    fn a_logarithmic_axis_shows_the_smallest_and_the_largest() {
        let axis = PanelAxis::logarithmic(5.0, 4000.0);
        let marks: Vec<String> = axis.marks().map(|mark| axis.number(mark)).collect();
        assert_eq!(marks, ["1", "10", "100", "1000"]);
        assert!(axis.share(5.0) > 0.15 && axis.share(4000.0) == 1.0);
        assert_eq!((axis.share(1.0), axis.share(0.0)), (0.0, 0.0));
        let small = PanelAxis::logarithmic(0.1, 0.3);
        let marks: Vec<String> = small.marks().map(|mark| small.number(mark)).collect();
        assert_eq!(marks, ["0.01", "0.1"]);
    }

    #[test]
    fn peaks_survive_thinning() {
        let mut points: Vec<_> = (0..50_000).map(|n| (f64::from(n), 1.0)).collect();
        points[31_111].1 = 77.0;
        let thin = thinned(&points);
        assert!(thin.len() <= MAX_POINTS + 2);
        assert!(thin.iter().any(|point| point.1 == 77.0));
        assert!(thin.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }
}
