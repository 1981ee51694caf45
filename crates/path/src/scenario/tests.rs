//! Tests of scenario files.

use std::time::Duration;

use netblt_proto::units::Rate;

use super::*;
use crate::path::{CoDel, Displacement, LinkOptions, MarkAbove, Outage, Policer, QueueLimit};
use crate::rng::Probability;

const MS: Duration = Duration::from_millis(1);

fn problem(text: &str) -> String {
    load(text).unwrap_err().to_string()
}

#[test]
fn every_shipped_network_can_be_read_and_is_described() {
    for name in names() {
        let scenario = named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(scenario.name, name);
        assert!(scenario.about.len() > 40, "{name}");
        assert!(scenario.up.rate.is_some() && scenario.down.rate.is_some(), "{name}");
        assert!(!scenario.rtt().is_zero(), "{name}");
    }
    assert!(names().is_sorted());
}

#[test]
fn the_demonstration_is_as_documented() {
    let demo = named("demo").unwrap();
    assert_eq!(demo.up.rate, Some(Rate::from_bits_per_second(200_000_000)));
    assert_eq!(demo.rtt(), 100 * MS);
    assert_eq!((demo.up.loss, demo.down.loss), {
        let one = Probability::from_percent(1);
        (one, one)
    });
    assert_eq!(demo.up.queue, QueueLimit::Bytes(2_500_000));
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let said = named("moon").unwrap_err().to_string();
    assert!(said.contains("`moon`; there are bufferbloat, demo,"), "{said}");
}

#[test]
fn every_key_is_understood() {
    let scenario = load(
        r#"
        name = "all"
        about = "everything"
        [path]
        rate = "8 Mbit"
        rtt = "0.000000003 s"
        jitter = "1ms"
        loss = "1 %"
        loss_burst = 4
        reorder = "2 %"
        reorder_by = "5 packets"
        duplicate = "3 %"
        corrupt = "40 ppm"
        police = "2 Mbit, 64 kB"
        queue = "100 packets"
        codel = "5 ms"
        ecn_mark = "5 ms"
        mtu = 1400
        outage = "hold"
        [path.up]
        rate = "16 Mbit"
        reorder_by = "2 ms"
        ecn_mark = "10 kB"
        codel = "7 ms, mark"
        queue = "20 ms"
        [path.down]
        delay = "10 ms"
        queue = "2 bdp"
        [[path.down.schedule]]
        at = "5 s"
        outage = "none"
        "#,
    )
    .unwrap();
    let (up, down) = (&scenario.up, &scenario.down);
    assert_eq!((up.rate, down.rate), {
        let mbit = |n: u64| Some(Rate::from_bits_per_second(n * 1_000_000));
        (mbit(16), mbit(8))
    });
    assert_eq!((up.delay, down.delay), (Duration::from_nanos(1), 10 * MS));
    assert_eq!((up.jitter, up.loss, up.loss_burst), (MS, Probability::from_percent(1), Some(4)));
    assert_eq!((up.reorder, up.duplicate.ppb()), (Probability::from_percent(2), 30_000_000));
    assert_eq!((up.reorder_by, down.reorder_by), {
        (Displacement::Time(2 * MS), Displacement::Packets(5))
    });
    assert_eq!((up.corrupt, up.mtu), (Probability::from_ppm(40), Some(1400)));
    assert_eq!((up.queue, down.queue), (QueueLimit::Time(20 * MS), QueueLimit::Bytes(20_000)));
    assert_eq!((up.ecn_mark, down.ecn_mark), {
        (Some(MarkAbove::Bytes(10_000)), Some(MarkAbove::Time(5 * MS)))
    });
    let police = Policer { rate: Rate::from_bits_per_second(2_000_000), bucket_bytes: 64_000 };
    assert_eq!((up.policer, down.policer), (Some(police), Some(police)));
    assert_eq!((up.codel, down.codel), {
        let codel = |target, marks| Some(CoDel { target, marks });
        (codel(7 * MS, true), codel(5 * MS, false))
    });
    assert_eq!((up.outage, up.schedule.len(), down.schedule.len()), (Outage::Hold, 0, 1));
    assert_eq!((scenario.name.as_str(), scenario.about.as_str()), ("all", "everything"));
}

#[test]
fn an_empty_scenario_is_a_perfect_path() {
    let scenario = load("").unwrap();
    let perfect = LinkOptions::default();
    assert_eq!((&scenario.up, &scenario.down), (&perfect, &perfect));
    // The two halves of an odd round trip are together the whole.
    let odd = load("path.rtt = '3 ns'").unwrap();
    assert_eq!(odd.rtt(), Duration::from_nanos(3));
}

#[test]
fn schedules_repeat() {
    let scenario = load(
        "[[path.schedule]]\nat = '10 s'\nevery = '15 s'\nuntil = '1 min'\nrtt = '50 ms'\n\
         [[path.schedule]]\nat = '2 s'\nloss = '5 %'",
    )
    .unwrap();
    let at: Vec<_> = scenario.up.schedule.iter().map(|change| change.at.as_secs()).collect();
    assert_eq!(at, [10, 25, 40, 55, 2]);
    assert_eq!(scenario.down.schedule[0].delay, Some(25 * MS));
}

#[test]
fn errors_name_the_key_and_what_is_expected() {
    let table = [
        ("path.rate = 200", &["rate = 200", "`200` has no unit", "200Mbit"][..]),
        ("path.rate = 2.5", &["`2.5` has no unit"]),
        ("path.rate = '10 furlongs'", &["rate =", "is not a rate such as 200Mbit"]),
        ("path.loss = 0.01", &["loss =", "`0.01` has no unit", "1%"]),
        ("path.rtt = true", &["rtt =", "a text with a unit"]),
        ("path.queue = 'long'", &["queue =", "`0.5 bdp`", "`100 packets`"]),
        ("path.mtu = 100000", &["mtu =", "u16"]),
        ("path.speed = '1Mbit'", &["unknown field `speed`", "`rate`"]),
        ("path.outage = 'maybe'", &["expected `none`, `drop` or `hold`"]),
        ("path.reorder_by = 'far'", &["`3 packets`"]),
        ("path.ecn_mark = '5'", &["neither a size"]),
        ("path.police = '5 Mbit'", &["is no policer"]),
        ("path.police = '0 Mbit, 5 kB'", &["is no policer"]),
        ("path.codel = '0 ms'", &["is no target"]),
        ("path.loss_burst = 0", &["loss_burst: a run"]),
        ("path.up.rtt = '1 s'", &["path.up.rtt: one direction has a `delay`"]),
        ("path.down.up.rate = '1Mbit'", &["path.down: a direction has no directions"]),
        ("path.rtt = '1 s'\npath.delay = '1 s'", &["path.rtt: say either"]),
        ("[[path.schedule]]\nloss = '1 %'", &["missing field `at`"]),
        ("[[path.schedule]]\nat = '1 s'", &["must change something"]),
        (
            "[[path.schedule]]\nat = '1 s'\nevery = '1 ns'\nuntil = '1h'\nloss = '1 %'",
            &["comes more than 100,000 times"],
        ),
        ("[[path.schedule]]\nat = '1 s'\nevery = '1 s'\nloss = '1 %'", &["and an `until`"]),
        ("[path", &["line 1"]),
    ];
    for (text, parts) in table {
        let said = problem(text);
        for part in parts {
            assert!(said.contains(part), "{text:?} said: {said}");
        }
    }
}
