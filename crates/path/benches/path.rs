//! What a packet costs in the link model: `cargo bench -p netblt-path --bench path`.

use std::time::Duration;

use divan::counter::ItemsCount;
use netblt_path::rng::Probability;
use netblt_path::{Displacement, LinkOptions, Path, QueueLimit};
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;

fn main() {
    divan::main();
}

const PACKETS: u64 = 100_000;

/// 10 Gbit/s with 5 ms of packets on the way, as a driver uses a path.
fn run(options: &LinkOptions) -> u64 {
    let mut path = Path::new(options.clone(), 1, "bench");
    let mut pool = vec![vec![0; 1472]; 8192];
    let mut delivered = 0;
    for n in 0..PACKETS {
        let now = Instant::from_nanos(n * 1200);
        while path.next().is_some_and(|next| next <= now) {
            let Some(delivery) = path.pop(now) else { continue };
            delivered += delivery.ip_bytes;
            pool.push(delivery.payload);
        }
        path.push(now, 28, None, pool.pop().unwrap_or_else(|| vec![0; 1472]));
    }
    delivered
}

fn plain() -> LinkOptions {
    let rate = Some(Rate::from_bits_per_second(10_000_000_000));
    let delay = Duration::from_millis(5);
    LinkOptions { rate, delay, queue: QueueLimit::bdp(rate, delay), ..LinkOptions::default() }
}

#[divan::bench]
fn rate_and_delay(bencher: divan::Bencher<'_, '_>) {
    let options = plain();
    bencher.counter(ItemsCount::new(PACKETS)).bench(|| run(&options));
}

#[divan::bench]
fn every_fault(bencher: divan::Bencher<'_, '_>) {
    let one = Probability::from_percent(1);
    let options = LinkOptions {
        jitter: Duration::from_millis(1),
        loss: one,
        loss_burst: Some(3),
        reorder: one,
        reorder_by: Displacement::Time(Duration::from_micros(100)),
        duplicate: one,
        corrupt: one,
        ..plain()
    };
    bencher.counter(ItemsCount::new(PACKETS)).bench(|| run(&options));
}
