//! The paths, and what is wanted of each.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{
    Change, CoDel, Displacement, LinkOptions, MarkAbove, Outage, Policer, QueueLimit, scenario,
};
use netblt_proto::config::{Config, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::host::HostOptions;
use netblt_sim::setup::Setup;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Want {
    /// At least so many per cent of what is possible.
    Share(f64),
    /// Less than so many per cent of the packets lost to a queue.
    Lost(f64),
}

/// One path, and a transfer over it.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) part: &'static str,
    pub(crate) name: String,
    pub(crate) want: Want,
    /// It is known to fall short.
    pub(crate) short: bool,
    pub(crate) setup: Setup,
}

const GOODPUT: &str = "random loss both ways, a queue of one product";
const BACK: &str = "a slow way back: 100 Mbit/s, 40 ms";
const BOTH: &str = "loss both ways: 50 Mbit/s, 40 ms";
const SHORT: &str = "short queues and slow paths";
const UNSTEADY: &str = "long queues and unsteady paths";
const POLICED: &str = "policers: a line of 1 Gbit/s, 100 ms";
const MANAGED: &str = "queues that are managed: 50 Mbit/s, 40 ms";
const CHANGING: &str = "paths that change";
const FAST: &str = "10 Gbit/s, packets of 9,000 bytes";

/// What is wanted of these, by name and seed, is not there.
const SHORT_OF: [(&str, u64); 26] = [
    ("2 Mbit/s, 600 ms, 1 %", 1),
    ("30 %, 10 s", 2),
    ("30 %, 10 s", 3),
    ("30 %, 10 s", 4),
    ("30 %, 10 s", 5),
    ("64 kbit/s, 100 ms, queue of 15 kB", 1),
    ("50 Mbit/s, 40 ms, jitter of 40 ms, 5 s", 1),
    ("50 Mbit/s, 40 ms, jitter of 40 ms, 5 s", 2),
    ("50 Mbit/s, 40 ms, jitter of 40 ms, 5 s", 3),
    ("50 Mbit/s, 40 ms, jitter of 80 ms, 60 s", 1),
    ("50 Mbit/s, 40 ms, jitter of 80 ms, 60 s", 2),
    ("50 Mbit/s, 40 ms, jitter of 80 ms, 60 s", 3),
    ("100 Mbit/s, bucket of 64 kB", 1),
    ("marks above 2 ms", 1),
    ("`leo-satellite`, to who connects", 1),
    ("`leo-satellite`, to who connects", 3),
    ("`geo-satellite`, to who connects", 1),
    ("`geo-satellite`, to who connects", 2),
    ("`lte`, to who connects", 2),
    ("`lte`, to who connects", 3),
    ("`lossy-wifi`, to who connects", 1),
    ("`lossy-wifi`, to who connects", 2),
    ("`lossy-wifi`, to who connects", 3),
    ("100 ms, 0 %", 1),
    ("100 ms, 0.01 %", 1),
    ("100 ms, 1 %", 1),
];

/// A few of each part, by name and seed, that take seconds. A gigabit takes minutes.
const SAMPLE: [(&str, u64); 19] = [
    ("100 Mbit/s, 70 ms, 1 %", 1),
    ("2 Mbit/s, 600 ms, 1 %", 1),
    ("64 kbit/s back", 1),
    ("30 %, 10 s", 1),
    ("50 %, 60 s", 1),
    ("256 kbit/s, 300 ms, queue of 96 kB", 1),
    ("64 kbit/s, 100 ms, queue of 15 kB", 1),
    ("50 Mbit/s, 40 ms, jitter of 40 ms, 5 s", 1),
    ("50 and 20 Mbit/s in turn, every 0.5 s", 1),
    ("50 Mbit/s, 40 ms, 1 % late by 60 ms, 30 MB", 1),
    ("50 Mbit/s, 40 ms, 1 %: `rfc998`, buffers of 1 MiB", 1),
    ("20 Mbit/s, bucket of 64 kB", 1),
    ("20 Mbit/s, bucket of 2000 kB", 1),
    ("CoDel that marks", 1),
    ("neither, and a queue of 1 s", 1),
    ("50 Mbit/s, 40 ms, from 15 s on 80 ms", 1),
    ("50 Mbit/s, 40 ms, nothing passes for 2 s", 1),
    ("`leo-satellite`, to who connects", 1),
    ("`lte`, to who connects", 1),
];

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A rate in thousands of bits a second.
fn kbit(n: u64) -> Rate {
    Rate::from_bits_per_second(n * 1000)
}

fn ppm(n: u32) -> Probability {
    Probability::from_ppm(n)
}

/// One direction with a queue of one product, and at least ten packets.
fn link(rate: Rate, rtt: Duration) -> LinkOptions {
    let queue = QueueLimit::Bytes(rate.bytes_in(rtt).max(15_000));
    LinkOptions { rate: Some(rate), delay: rtt / 2, queue, ..LinkOptions::default() }
}

/// So many seconds' worth of the path, by a sender that knows nothing.
fn setup(there: LinkOptions, back: LinkOptions, seconds: u64) -> Setup {
    let host = |role| {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([1; 32]));
        config.cipher = Cipher::Aes256Gcm;
        (config.datagram_bytes, config.overhead_bytes) = (1472, 28);
        HostOptions::new(config)
    };
    let rate = there.policer.map(|policer| policer.rate).or(there.rate).unwrap_or(Rate::ZERO);
    let kept = u64::from(Probability::ALWAYS.ppb() - there.loss.ppb());
    let bytes = rate.scaled(kept * 95 / 100, u64::from(Probability::ALWAYS.ppb()));
    let bytes = bytes.bytes_in(Duration::from_secs(seconds));
    let mut setup = Setup::new(1, bytes, host(Role::Sender), host(Role::Receiver));
    (setup.there, setup.back, setup.transcript) = (there, back, false);
    setup.max_steps = 500_000_000;
    setup
}

fn both(link: &LinkOptions, seconds: u64) -> Setup {
    setup(link.clone(), link.clone(), seconds)
}

fn row(part: &'static str, name: impl Into<String>, want: Want, setup: Setup) -> Scenario {
    Scenario { part, name: name.into(), want, short: false, setup }
}

/// Those of the sample.
pub(crate) fn sample() -> Vec<Scenario> {
    let is_in = |s: &Scenario| SAMPLE.contains(&(s.name.as_str(), s.setup.seed));
    let sample: Vec<Scenario> = scenarios().into_iter().filter(is_in).collect();
    assert_eq!(sample.len(), SAMPLE.len());
    sample
}

/// All of them; those whose part, name and seed contain `NETBLT_SCENARIO`, if that is set.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let parts = [
        goodput(),
        way_back(),
        two_way(),
        short_queues(),
        unsteady(),
        policed(),
        managed(),
        changing(),
        fast(),
    ];
    let mut all: Vec<Scenario> = parts.into_iter().flatten().collect();
    for scenario in &mut all {
        scenario.short = SHORT_OF.contains(&(scenario.name.as_str(), scenario.setup.seed));
    }
    let only = std::env::var("NETBLT_SCENARIO").unwrap_or_default();
    all.retain(|s| format!("{}: {} seed {}", s.part, s.name, s.setup.seed).contains(&only));
    all
}

fn goodput() -> Vec<Scenario> {
    let cells = [
        (100_000, 70, 0, 97.0, 60),
        (100_000, 70, 100, 97.0, 60),
        (100_000, 70, 10_000, 96.0, 60),
        (100_000, 70, 50_000, 91.0, 60),
        (1_000_000, 100, 0, 98.0, 60),
        (1_000_000, 100, 1000, 98.0, 60),
        (1_000_000, 100, 10_000, 96.0, 60),
        (2000, 600, 10_000, 94.0, 60),
    ];
    cells
        .map(|(rate, rtt, loss, least, seconds)| {
            let link = LinkOptions { loss: ppm(loss), ..link(kbit(rate), ms(rtt)) };
            let name = format!("{} Mbit/s, {rtt} ms, {} %", rate / 1000, f64::from(loss) / 1e4);
            row(GOODPUT, name, Want::Share(least), both(&link, seconds))
        })
        .into()
}

fn way_back() -> Vec<Scenario> {
    [(256, 90.0), (64, 90.0), (32, 80.0)]
        .map(|(back, least)| {
            let slow = LinkOptions { queue: QueueLimit::Bytes(20_000), ..link(kbit(back), ms(40)) };
            let setup = setup(link(kbit(100_000), ms(40)), slow, 60);
            row(BACK, format!("{back} kbit/s back"), Want::Share(least), setup)
        })
        .into()
}

fn two_way() -> Vec<Scenario> {
    let mut rows = Vec::new();
    for (percent, seconds, least) in [(30, 10, 80.0), (30, 60, 80.0), (50, 60, 50.0)] {
        for seed in 1..=5 {
            let loss = Probability::from_percent(percent);
            let link = LinkOptions { loss, ..link(kbit(50_000), ms(40)) };
            let mut setup = both(&link, seconds);
            setup.seed = seed;
            let name = format!("{percent} %, {seconds} s");
            rows.push(row(BOTH, name, Want::Share(least), setup));
        }
    }
    rows
}

fn short_queues() -> Vec<Scenario> {
    let cells = [
        (100_000, 70, 16_000, 2.0, 60),
        (256, 300, 15_000, 10.0, 60),
        (256, 300, 96_000, 10.0, 60),
        (64, 100, 15_000, 10.0, 60),
        (64, 100, 96_000, 10.0, 60),
    ];
    cells
        .map(|(rate, rtt, queue, most, seconds)| {
            let queue_limit = QueueLimit::Bytes(queue);
            let link = LinkOptions { queue: queue_limit, ..link(kbit(rate), ms(rtt)) };
            let name = format!("{rate} kbit/s, {rtt} ms, queue of {} kB", queue / 1000);
            row(SHORT, name, Want::Lost(most), both(&link, seconds))
        })
        .into()
}

/// `fast` and `slow` in turn.
fn steps(fast: Rate, slow: Rate, each: Duration, until: Duration) -> Vec<Change> {
    let count = (until.as_nanos() / each.as_nanos()) as u32;
    let rate = |n: u32| if n.is_multiple_of(2) { fast } else { slow };
    let change = |n| Change { at: each * n, rate: Some(rate(n)), ..Change::default() };
    (1..count).map(change).collect()
}

fn unsteady() -> Vec<Scenario> {
    let usual = link(kbit(50_000), ms(40));
    let long = LinkOptions { queue: QueueLimit::Time(ms(2000)), ..link(kbit(20_000), ms(40)) };
    let want = Want::Share(85.0);
    let mut rows = vec![row(UNSTEADY, "a queue of 2 s: 20 Mbit/s, 40 ms", want, both(&long, 60))];
    for (jitter, seconds) in [(40, 5), (40, 60), (80, 60)] {
        let link = LinkOptions { jitter: ms(jitter), ..usual.clone() };
        for seed in 1..=3 {
            let mut setup = both(&link, seconds);
            setup.seed = seed;
            let name = format!("50 Mbit/s, 40 ms, jitter of {jitter} ms, {seconds} s");
            rows.push(row(UNSTEADY, name, want, setup));
        }
    }
    for each in [500, 2000] {
        let schedule = steps(kbit(50_000), kbit(20_000), ms(each), ms(120_000));
        let link = LinkOptions { schedule, ..usual.clone() };
        let name = format!("50 and 20 Mbit/s in turn, every {} s", each as f64 / 1000.0);
        rows.push(row(UNSTEADY, name, want, setup(link, usual.clone(), 40)));
    }
    for seed in 1..=3 {
        let reorder_by = Displacement::Time(ms(60));
        let link = LinkOptions { reorder: ppm(10_000), reorder_by, ..usual.clone() };
        let mut setup = both(&link, 5);
        (setup.seed, setup.bytes) = (seed, 30_000_000);
        let name = "50 Mbit/s, 40 ms, 1 % late by 60 ms, 30 MB";
        rows.push(row(UNSTEADY, name, want, setup));
    }
    let lossy = LinkOptions { loss: ppm(10_000), ..usual };
    for seed in 1..=3 {
        let name = "50 Mbit/s, 40 ms, 1 %: `rfc998`, buffers of 1 MiB";
        rows.push(row(UNSTEADY, name, want, old_wire(&lossy, seed)));
    }
    rows
}

/// 60 s over `link`, by RFC 998's own words and buffers of 1 MiB.
fn old_wire(link: &LinkOptions, seed: u64) -> Setup {
    let mut old = both(link, 60);
    for host in [&mut old.active, &mut old.passive] {
        let role = host.config.role;
        host.config = Config::new(Wire::Rfc998, role);
        host.config.buffer_bytes = 1 << 20;
        (host.config.datagram_bytes, host.config.overhead_bytes) = (1472, 28);
        host.config.policy = Policy::Fair { ceiling: None };
    }
    (old.seed, old.at_least_one) = (seed, true);
    old
}

fn policed() -> Vec<Scenario> {
    let mut rows = Vec::new();
    for (rate, seconds) in [(20_000, 60), (100_000, 30)] {
        for bucket in [64, 512, 2000] {
            let policer = Policer { rate: kbit(rate), bucket_bytes: bucket * 1000 };
            let line = link(kbit(1_000_000), ms(100));
            let there = LinkOptions { policer: Some(policer), ..line.clone() };
            let name = format!("{} Mbit/s, bucket of {bucket} kB", rate / 1000);
            rows.push(row(POLICED, name, Want::Share(85.0), setup(there, line, seconds)));
        }
    }
    rows
}

fn managed() -> Vec<Scenario> {
    let line = LinkOptions { queue: QueueLimit::Time(ms(1000)), ..link(kbit(50_000), ms(40)) };
    let codel = |marks| LinkOptions { codel: Some(CoDel { target: ms(5), marks }), ..line.clone() };
    let marks = LinkOptions { ecn_mark: Some(MarkAbove::Time(ms(2))), ..line.clone() };
    let rows = [
        ("CoDel that marks", codel(true)),
        ("CoDel that drops, as where the marks are taken off", codel(false)),
        ("marks above 2 ms", marks),
        ("neither, and a queue of 1 s", line.clone()),
    ];
    let rows = rows
        .map(|(name, there)| row(MANAGED, name, Want::Share(85.0), setup(there, line.clone(), 30)));
    rows.into()
}

fn changing() -> Vec<Scenario> {
    let usual = |rtt| link(kbit(50_000), ms(rtt));
    let mut rows = Vec::new();
    for (from, to) in [(40, 80), (80, 40)] {
        let there = LinkOptions {
            schedule: vec![Change { at: ms(15_000), delay: Some(ms(to / 2)), ..Change::default() }],
            ..usual(from)
        };
        let name = format!("50 Mbit/s, {from} ms, from 15 s on {to} ms");
        rows.push(row(CHANGING, name, Want::Share(85.0), both(&there, 40)));
    }
    let drop = |at, outage| Change { at: ms(at), outage: Some(outage), ..Change::default() };
    let there = LinkOptions {
        schedule: vec![drop(10_000, Outage::Drop), drop(12_000, Outage::None)],
        ..usual(40)
    };
    let name = "50 Mbit/s, 40 ms, nothing passes for 2 s";
    rows.push(row(CHANGING, name, Want::Share(85.0), both(&there, 40)));
    for name in ["leo-satellite", "geo-satellite", "lte", "lossy-wifi"] {
        let network = scenario::named(name).expect("a network that is shipped");
        for seed in 1..=3 {
            let mut setup = setup(network.down.clone(), network.up.clone(), 60);
            setup.seed = seed;
            let name = format!("`{name}`, to who connects");
            rows.push(row(CHANGING, name, Want::Share(85.0), setup));
        }
    }
    rows
}

fn fast() -> Vec<Scenario> {
    [(0, 85.0), (100, 85.0), (10_000, 85.0)]
        .map(|(loss, least)| {
            let link = LinkOptions { loss: ppm(loss), ..link(kbit(10_000_000), ms(100)) };
            let mut setup = both(&link, 8);
            for host in [&mut setup.active, &mut setup.passive] {
                host.config.datagram_bytes = 8972;
                host.config.max_outstanding = 512;
                host.stock = 512;
            }
            row(FAST, format!("100 ms, {} %", f64::from(loss) / 1e4), Want::Share(least), setup)
        })
        .into()
}
