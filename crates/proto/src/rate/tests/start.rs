//! What trains show where a round trip is long.

use std::time::Duration;

use crate::rate::train::{Train, train_for};
use crate::units::Rate;

/// Only the end of a buffer is reported, and each is to be at another place of its train.
#[test]
fn no_buffer_is_a_number_of_whole_trains() {
    for packets in 1..300 {
        for rate in [1000, 7378, 80_000, 3_000_000] {
            let rate = Rate::from_bytes_per_second(rate);
            let burst = train_for(rate, 475, packets * 475 - 200);
            assert_ne!(packets % u64::from(burst.packets), 0, "{packets} {rate}");
            assert!(
                burst.interval.abs_diff(rate.time_for(u64::from(burst.packets) * 475)).is_zero()
            );
        }
    }
}

/// With six packets to a train the first of 55 end with the first, the second, and show nothing.
#[test]
fn the_first_buffers_end_where_their_trains_show_something() {
    let burst =
        |rate, packets: u64| train_for(Rate::from_bytes_per_second(rate), 475, packets * 475);
    assert_eq!(burst(7378, 55).packets, 7);
    assert_eq!(burst(7378, 10).packets, 6, "the fourth of six");
    assert_eq!(burst(7378, 7).packets, 6, "with neither");
    assert_eq!(burst(7378, 0).packets, 6, "no buffers");
}

/// Startup was over with the first OK, which was lost and said again two seconds later.
#[test]
fn a_single_train_that_comes_late_does_not_end_startup() {
    let mut train = Train::default();
    let mut round = |lates: &[u64]| {
        lates.iter().for_each(|late| train.sample(6000, 1000, Duration::from_millis(*late)));
        train.end_round().is_some_and(|best| best < 5000)
    };
    assert_eq!([round(&[2000]), round(&[]), round(&[0])], [false; 3]);
    assert_eq!([round(&[0, 1]), round(&[2000]), round(&[2000])], [false, false, true]);
    assert!(round(&[2000, 1900]), "two say the same");
}
