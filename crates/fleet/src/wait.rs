//! Waiting that ends when it is cancelled, and by chance not at once with others.

use std::thread;
use std::time::{Duration, Instant};

use netblt::Cancel;

/// The interval at which it looks whether it was cancelled.
const STEP: Duration = Duration::from_millis(50);

/// Waits; false if it was cancelled.
pub(crate) fn wait(cancel: &Cancel, time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        if cancel.is_cancelled() {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(STEP));
    }
}

/// Between a half of it and all of it.
pub(crate) fn jittered(time: Duration) -> Duration {
    let mut random = [0; 4];
    // Without chance it is as long as it may be.
    let _ = getrandom::fill(&mut random);
    let share = f64::from(u32::from_be_bytes(random)) / f64::from(u32::MAX);
    time.mul_f64(1.0 - share / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_stays_within_its_bounds() {
        let second = Duration::from_secs(1);
        for _ in 0..1000 {
            assert!((second / 2..=second).contains(&jittered(second)));
        }
    }
}
