//! Rates from totals, in bins of equal time: a total sampled a moment late would otherwise give a
//! wrong rate when divided by its interval.

/// The rate of a total: its mean in bins of equal length, of at least `width`. Each point is at the
/// end of its bin. Totals are interpolated linearly.
pub fn of(totals: &[(f64, f64)], width: f64) -> Vec<(f64, f64)> {
    let Some((end, _)) = totals.last().copied().filter(|(end, _)| *end > 0.0) else {
        return Vec::new();
    };
    let bins = if width > 0.0 { (end / width).floor().clamp(1.0, 1e5) } else { 1.0 };
    let width = end / bins;
    let (mut before, mut points) = (0.0, Vec::new());
    let mut totals = std::iter::once((0.0, 0.0)).chain(totals.iter().copied()).peekable();
    let mut last = (0.0, 0.0);
    for bin in 1..=bins as u32 {
        let at = f64::from(bin) * width;
        while let Some(total) = totals.next_if(|total| total.0 <= at) {
            last = total;
        }
        let now = match totals.peek() {
            Some(next) => last.1 + (next.1 - last.1) * (at - last.0) / (next.0 - last.0),
            None => last.1,
        };
        points.push((at, (now - before).max(0.0) / width));
        before = now;
    }
    points
}

/// Median of the intervals between totals.
pub fn usual_step(totals: &[(f64, f64)]) -> f64 {
    let mut steps: Vec<f64> = totals.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    steps.sort_by(f64::total_cmp);
    steps.get(steps.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_total_and_the_next_make_no_peak() {
        // Ten a second, and the one of 0.9 s is taken at 0.999.
        let mut totals: Vec<(f64, f64)> =
            (1..=20).map(|n| (f64::from(n) / 10.0, f64::from(n) * 10.0)).collect();
        totals[8] = (0.999, 91.0);
        let rates = of(&totals, usual_step(&totals));
        assert_eq!(rates.len(), 20);
        // From one to the next it is 9,000.
        assert!(rates.iter().all(|(_, rate)| (50.0..150.0).contains(rate)), "{rates:?}");
        let moved: f64 = rates.iter().map(|(_, rate)| rate * 0.1).sum();
        assert!((moved - 200.0).abs() < 1e-6, "{moved}");
    }

    #[test]
    fn no_total_has_no_rate_and_one_total_has_one() {
        assert_eq!(of(&[], 0.1), []);
        assert_eq!(of(&[(0.0, 5.0)], 0.1), []);
        assert_eq!(of(&[(2.0, 8.0)], 0.0), [(2.0, 4.0)]);
        assert_eq!(of(&[(2.0, 8.0)], 5.0), [(2.0, 4.0)]);
        assert_eq!(usual_step(&[(1.0, 1.0)]), 0.0);
    }
}
