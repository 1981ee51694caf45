//! Two flows of which one is at a disadvantage: it is farther away, it comes later, or a policer
//! stands between. `docs/results/scenarios.md` holds the table, and is held to it.
//!
//! `INSTA_UPDATE=always cargo test -p netblt-ornl --test it beside:: -- --ignored` renews the page.

#[path = "../../../sim/tests/it/scenarios/hold.rs"]
mod hold;

use std::fmt::Write as _;
use std::time::Duration;

use netblt_ornl::contest::Entry;
use netblt_ornl::friendly::{Pairing, Shared};
use netblt_proto::config::EmulatedProtocol;
use netblt_sim::parallel;

const CUBIC: Entry = Entry::Later(EmulatedProtocol::Cubic);
const BBR: Entry = Entry::Later(EmulatedProtocol::Bbr);

/// How they meet; who; and the least and the most that the first one has, in per cent, if that is
/// asked for.
type Meeting = (&'static str, Pairing, Option<(u64, u64)>);

fn pairings() -> Vec<Meeting> {
    let near = Shared { round_trip: Duration::from_millis(10), quarters: 20, ..Shared::narrow(4) };
    let policed = Shared { bucket_bytes: Some(250_000), ..Shared::narrow(4) };
    let farther = |entry, beside| Pairing {
        farther: Duration::from_millis(90),
        ..Pairing::new(entry, beside, near)
    };
    let later = |entry, beside, quarters| Pairing {
        later: Duration::from_secs(20),
        ..Pairing::new(entry, beside, Shared::narrow(quarters))
    };
    let far = "100 and 10 ms, 50 ms of queue";
    vec![
        (far, farther(Entry::Ours, Entry::Ours), None),
        (far, farther(Entry::Ours, CUBIC), None),
        (far, farther(CUBIC, Entry::Ours), None),
        (far, farther(CUBIC, CUBIC), None),
        ("20 s later, 1/4 product", later(Entry::Ours, Entry::Ours, 1), Some((35, 65))),
        ("20 s later, 1 product", later(Entry::Ours, Entry::Ours, 4), Some((35, 65))),
        ("20 s later, 4 products", later(Entry::Ours, Entry::Ours, 16), Some((35, 65))),
        ("20 s later, 1 product", later(Entry::Ours, CUBIC, 4), Some((35, 65))),
        ("20 s later, 1 product", later(CUBIC, Entry::Ours, 4), Some((35, 65))),
        ("a policer, bucket of 250 kB", Pairing::new(Entry::Ours, Entry::Ours, policed), None),
        ("a policer, bucket of 250 kB", Pairing::new(Entry::Ours, CUBIC, policed), None),
        ("a policer, bucket of 250 kB", Pairing::new(Entry::Ours, BBR, policed), None),
    ]
}

#[test]
fn pairs_of_which_one_is_later_agree_with_the_page() {
    hold::hold_rows("two beside each other", &table_of(&pairings()[7..9]));
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn pairs_with_one_at_a_disadvantage_agree_with_the_page() {
    hold::hold("two beside each other", &table_of(&pairings()));
}

/// Runs them, and makes their table; all that is wanted is there.
fn table_of(all: &[Meeting]) -> String {
    let pairs: Vec<Pairing> = all.iter().map(|(_, pairing, _)| *pairing).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let shares = parallel::map(&pairs, threads, Pairing::run);
    let mut table = String::from(
        "| 50 Mbit/s, 40 ms | first | second | wanted | Mbit/s | the first one's part |\n\
         | --- | --- | --- | --- | ---: | ---: |\n",
    );
    let mut missed = Vec::new();
    for ((how, pairing, want), shares) in all.iter().zip(&shares) {
        let tenths = shares.part();
        let met = want.is_none_or(|(least, most)| (least * 10..=most * 10).contains(&tenths));
        let want = want.map_or(String::new(), |(least, most)| format!("{least} to {most} %"));
        let _ = writeln!(
            table,
            "| {how} | {} | {} | {want}{} | {:.1} : {:.1} | {} % |",
            pairing.entry.name(),
            pairing.beside.name(),
            if met { "" } else { ", **missed**" },
            shares.own as f64 / 1e6,
            shares.beside as f64 / 1e6,
            (tenths + 5) / 10
        );
        assert_eq!(shares.problem, None, "{how}");
        missed.extend((!met).then(|| how.to_owned()));
    }
    println!("{table}");
    assert_eq!(missed, MISSED, "\n{table}");
    table
}

/// What is wanted of these is not there.
const MISSED: [&str; 0] = [];
