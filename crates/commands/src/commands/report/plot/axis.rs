//! Round numbers along an axis, and no more points than there are pixels.

/// More points than this in a line are more than there are pixels; groups give way to their ends.
const MAX_POINTS: usize = 4000;
/// Marks on an axis, at most.
const MAX_MARKS: u32 = 20;

/// From zero to the largest value, with marks at round numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) end: f64,
    step: f64,
}

impl Axis {
    /// A step of 1, 2 or 5 times a power of ten, for values up to `largest`.
    pub(super) fn new(largest: f64) -> Self {
        let end = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
        let power = 10_f64.powf((end / 6.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = steps.into_iter().find(|step| end / step <= 7.0).unwrap_or(10.0 * power);
        Self { end, step }
    }

    pub(super) fn marks(&self) -> impl Iterator<Item = f64> + use<> {
        let (count, step) = ((self.end / self.step * (1.0 + 1e-9)).floor() as u32, self.step);
        (0..=count.min(MAX_MARKS)).map(move |n| f64::from(n) * step)
    }

    /// As many decimals as the step has.
    pub(super) fn number(&self, value: f64) -> String {
        let whole = self.step >= 1.0;
        let decimals = if whole { 0 } else { (-self.step.log10()).ceil().clamp(1.0, 9.0) as usize };
        format!("{value:.decimals$}")
    }
}

/// Groups of points by their lowest and highest: peaks must not vanish.
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
        assert_eq!(Axis::new(0.0), Axis::new(1.0), "nothing to show still has an axis");
        assert_eq!(Axis::new(f64::NAN), Axis::new(1.0));
        for (largest, last, count) in [(97.3, "80", 5), (1000.0, "1000", 6), (0.27, "0.25", 6)] {
            let axis = Axis::new(largest);
            let marks: Vec<f64> = axis.marks().collect();
            assert_eq!(axis.number(marks[marks.len() - 1]), last, "{largest}");
            assert_eq!(marks.len(), count, "{largest}");
        }
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
