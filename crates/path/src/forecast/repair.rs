//! How many rounds of RESEND a number of packets need at a loss: each round asks for all that is
//! missing, and loses its own share again.

/// A buffer may need more rounds than planned for this seldom.
const SELDOM: f64 = 0.01;
/// A loss of at most one half is repaired, as good as surely, within so many.
const MOST_ROUNDS: u32 = 128;

/// The chance that after `rounds` rounds all of `packets` packets are there, each of which is lost
/// with probability `loss` each time it is sent.
pub fn whole_after(rounds: u32, packets: u64, loss: f64) -> f64 {
    // By logarithms: what is lost after many rounds is too little to be taken from 1.
    let missing = loss.powf(f64::from(rounds) + 1.0);
    (packets as f64 * (-missing).ln_1p()).exp()
}

/// The rounds that are enough for all but one in a hundred groups of `packets` packets.
/// `loss` is from 0 to 1/2.
pub fn rounds_enough(packets: u64, loss: f64) -> u32 {
    let enough = |rounds: &u32| whole_after(*rounds, packets, loss) >= 1.0 - SELDOM;
    (0..MOST_ROUNDS).find(enough).unwrap_or(MOST_ROUNDS)
}

/// The rounds that a group of `packets` packets needs on the average. `loss` is from 0 to 1/2.
pub fn rounds_expected(packets: u64, loss: f64) -> f64 {
    let more_than = |rounds| 1.0 - whole_after(rounds, packets, loss);
    (0..MOST_ROUNDS).map(more_than).take_while(|chance| *chance > 1e-9).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_follow_from_loss_and_number() {
        for (packets, loss, enough) in [
            (734, 0.0, 0),
            (0, 0.5, 0),
            (1, 0.01, 0),
            (2, 0.01, 1),
            (734, 0.01, 2),
            (734, 0.0001, 1),
            (734, 0.5, 16),
            (u64::MAX, 0.5, 70),
        ] {
            assert_eq!(rounds_enough(packets, loss), enough, "{packets} at {loss}");
        }
        assert_eq!(rounds_expected(1000, 0.0), 0.0);
        // A packet that is lost half the time is sent twice on the average.
        assert!((rounds_expected(1, 0.5) - 1.0).abs() < 1e-6);
        // 1 + (1 - 0.9999^10000) + (1 - 0.999999^10000) + ...
        assert!((rounds_expected(10_000, 0.01) - 1.642).abs() < 1e-3);
    }
}
