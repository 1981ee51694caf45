//! The faults of a world, until it heals, and how long it may take then.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{Change, Displacement, LinkOptions, Outage};
use netblt_proto::config::{Policy, Wire};
use netblt_proto::rate::counted_bytes;
use netblt_proto::units::Rate;

use super::changes;
use super::dice::Dice;
use super::sketch::Sketch;
use crate::attacker::{AttackerOptions, Trick};
use crate::host::Stops;
use crate::setup::{Kill, Setup};
use crate::side::Side;

/// The least death timer of a receiver that has to prove its address by what it asks for.
const STRANGERS_PATIENCE: Duration = Duration::from_secs(60);
/// No world's faults last longer.
const LONGEST_FAULTS: Duration = Duration::from_secs(90);

/// Adds faults to `setup`; to the paths only if they are `ours` to change.
pub(super) fn add(seed: u64, sketch: &Sketch, ours: bool, setup: &mut Setup) {
    let mut dice = Dice::new(seed, "faults");
    let base = quiet_time(sketch, setup);
    let heals_at = dice.within(base * 4).clamp(Duration::from_secs(1), LONGEST_FAULTS);
    let mut rough = false;
    if ours {
        // The same kinds of fault in both directions or in one, each with weights of its own.
        for (name, link) in [("there", &mut setup.there), ("back", &mut setup.back)] {
            rough |= add_to_link(&mut Dice::new(seed, name), sketch, heals_at, link);
        }
    }
    rough |= add_deaths(seed, heals_at, setup);
    if ours && sketch.wire == Wire::Sealed {
        narrow(seed, sketch, heals_at, setup);
    }
    if sketch.wire == Wire::Sealed {
        setup.attacker = attacker(&mut Dice::new(seed, "attacks"), base, heals_at);
        let mut dice = Dice::new(seed, "crowd");
        setup.crowd = if dice.percent(5) { dice.range(1, 20) as u8 } else { 0 };
        rough |= setup.attacker.is_some() || setup.crowd > 0;
    }
    rough |= sketch.wire == Wire::Sealed && add_moves(seed, sketch, base.max(heals_at), setup);
    let mut dice = Dice::new(seed, "quit");
    if dice.percent(6) {
        setup.quit = Some((dice.pick(&Side::BOTH), dice.within(base * 2)));
    }
    add_stops(seed, heals_at, setup);
    rough |= changes::add_sleeps(seed, heals_at, setup);
    rough |= ours && changes::add_another_way(seed, sketch, heals_at, setup);
    let mut choked = Dice::new(seed, "choke");
    let chokes = ours && choked.percent(10);
    rough |= chokes;
    let mut dice = Dice::new(seed, "death timer");
    let death_timer = if rough {
        dice.time(Duration::from_secs(5), Duration::from_secs(60))
    } else {
        Duration::from_secs(300)
    };
    // A sender that doubts it moves on by fits and starts.
    let stranger = setup.calls_as_a_stranger();
    let death_timer = if stranger { death_timer.max(STRANGERS_PATIENCE) } else { death_timer };
    setup.active.config.death_timer = death_timer;
    setup.passive.config.death_timer = death_timer;
    let heals_at = match chokes {
        true => choke(&mut choked, sketch, heals_at, setup),
        false => heals_at,
    };
    // A given network never heals: all OPENs may go unheard, and so may last words, for
    // which the other end waits until its death timer runs out.
    let mortal = rough || !ours;
    setup.persistent = mortal;
    // After healing: everything again, at a tenth of the speed, after every timer has run out
    // twice.
    let patience = Duration::from_secs(120) + first_data_timer(sketch);
    setup.deadline = heals_at + base.max(agreed_time(sketch)) * 12 + patience;
    // Its window grows by half a packet a round trip, so that 40,000 packets take 400 of them.
    if !matches!(sketch.policy, Policy::Fixed(_) | Policy::Emulated(_)) {
        setup.deadline += setup.longest_round_trip() * 500;
    }
    if stranger {
        setup.deadline += STRANGERS_PATIENCE * 2;
    }
    if mortal {
        setup.deadline += death_timer * 3 + base * 4;
    }
}

/// Ends that get another address, often while it opens, or close to its end. Whether any do.
fn add_moves(seed: u64, sketch: &Sketch, within: Duration, setup: &mut Setup) -> bool {
    let mut dice = Dice::new(seed, "moves");
    if !dice.percent(20) {
        return false;
    }
    setup.moves = (0..dice.range(1, 4))
        .map(|_| {
            let early = dice.percent(30);
            let within = if early { sketch.rtt * 5 } else { within };
            let side = if dice.percent(80) { Side::Active } else { Side::Passive };
            (side, dice.within(within))
        })
        .collect();
    true
}

/// How long the transfer takes at the burst values that were agreed on, where these count packets:
/// one that a small buffer cuts short counts as much as any other.
fn agreed_time(sketch: &Sketch) -> Duration {
    if sketch.wire == Wire::Sealed {
        return Duration::ZERO;
    }
    let packets = |bytes: u64| bytes.div_ceil(u64::from(sketch.datagram).saturating_sub(24).max(1));
    let buffer = u64::from(sketch.buffer);
    let packets = sketch.bytes / buffer * packets(buffer) + packets(sketch.bytes % buffer).max(1);
    let bursts = packets.div_ceil(u64::from(sketch.burst.packets.max(1)));
    sketch.burst.interval.saturating_mul(bursts as u32)
}

/// How long a receiver waits, on `rfc998`, for the rest of its first buffer: when the last packet
/// of a short one was lost, it does not know that it was the last (`docs/protocol §6.4`).
fn first_data_timer(sketch: &Sketch) -> Duration {
    if sketch.wire == Wire::Sealed {
        return Duration::ZERO;
    }
    let packets = sketch.buffer.div_ceil(sketch.datagram.saturating_sub(24).max(1));
    let bursts = packets.div_ceil(sketch.burst.packets.max(1));
    sketch.burst.interval * bursts * 3 / 2
}

/// Hosts that share their processors: often for a moment, or now and then for longer.
fn add_stops(seed: u64, heals_at: Duration, setup: &mut Setup) {
    let mut dice = Dice::new(seed, "stops");
    if dice.percent(10) {
        let period = dice.time(Duration::from_millis(10), Duration::from_millis(200));
        let stopped = dice.within(period * 2 / 3);
        let stops = Stops { period, stopped, scattered: None, until: heals_at };
        setup.active.stops = dice.percent(66).then_some(stops);
        setup.passive.stops =
            Some(stops).filter(|_| setup.active.stops.is_none() || dice.percent(50));
    }
    let mut dice = Dice::new(seed, "seldom stops");
    if dice.percent(5) {
        let (least, most) = (Duration::from_millis(20), Duration::from_millis(300));
        let stopped = dice.time(least, most);
        let period = stopped + dice.time(most, Duration::from_secs(5));
        let stops = Stops { period, stopped, scattered: Some(seed), until: heals_at };
        let struck = dice.pick(&[(true, false), (false, true), (true, true)]);
        setup.active.stops = setup.active.stops.or(Some(stops).filter(|_| struck.0));
        setup.passive.stops = setup.passive.stops.or(Some(stops).filter(|_| struck.1));
    }
}

/// About how long the transfer takes without faults.
fn quiet_time(sketch: &Sketch, setup: &Setup) -> Duration {
    let packet = u64::from(counted_bytes(sketch.wire, sketch.datagram));
    let sent = sketch.bytes * (packet + 28) / packet.saturating_sub(48).max(1);
    let mut rate = sketch.rate;
    let burst = sketch.burst;
    let own = Rate::over(u64::from(burst.packets) * packet, burst.interval);
    match sketch.policy {
        Policy::Fixed(_) => rate = rate.min(own),
        Policy::Fair { ceiling }
        | Policy::Background { ceiling }
        | Policy::Aggressive { ceiling }
        | Policy::Cubic { ceiling } => rate = rate.min(ceiling.unwrap_or(rate)),
        Policy::Emulated(of) => rate = rate.min(of.rate.unwrap_or(rate)),
    }
    let window = u64::from(sketch.buffer) * u64::from(sketch.outstanding);
    let rounds = sketch.bytes.div_ceil(window) as u32;
    let disk = [&setup.active.disk, &setup.passive.disk].into_iter().map(|disk| {
        let buffers = sketch.bytes.div_ceil(u64::from(sketch.buffer)) as u32;
        let stalls: Duration = disk.stalls.iter().map(|stall| stall.lasts).sum();
        let moving = disk.rate.map_or(Duration::ZERO, |rate| rate.time_for(sketch.bytes));
        disk.latency * buffers + moving + disk.flush + stalls
    });
    rate.time_for(sent) + sketch.rtt * (10 + 3 * rounds) + disk.sum() + Duration::from_secs(1)
}

/// Faults of one direction. Whether they are such that a connection may die of them.
pub(super) fn add_to_link(
    dice: &mut Dice,
    sketch: &Sketch,
    heals_at: Duration,
    link: &mut LinkOptions,
) -> bool {
    let mut rough = false;
    let ppm = |dice: &mut Dice, most: u64| Probability::from_ppm(dice.scale(10, most) as u32);
    if dice.percent(50) {
        link.loss = ppm(dice, 300_000);
        rough |= link.loss > Probability::from_percent(2);
        link.loss_burst = dice.percent(30).then(|| dice.scale(2, 50) as u32);
        rough |= link.loss_burst.is_some();
    }
    if dice.percent(40) {
        link.reorder = ppm(dice, 300_000);
        link.reorder_by = match dice.percent(50) {
            true => Displacement::Packets(dice.scale(1, 50) as u32),
            false => Displacement::Time(dice.within(sketch.rtt)),
        };
    }
    if dice.percent(30) {
        link.duplicate = ppm(dice, 200_000);
    }
    if dice.percent(30) {
        link.corrupt = ppm(dice, 50_000);
    }
    if dice.percent(40) {
        link.jitter = dice.within(sketch.rtt / 2);
    }
    if dice.percent(20) {
        rough = true;
        for _ in 0..dice.range(1, 3) {
            add_outage(dice, heals_at, link);
        }
    }
    if dice.percent(10) {
        rough = true;
        // Data no longer pass, and perhaps OPEN does not either. Short packets still do.
        let mtu = dice.range(60, u64::from(sketch.datagram).max(1200)) as u16;
        let at = dice.within(heals_at);
        link.schedule.push(Change { at, mtu: Some(mtu), ..Change::default() });
    }
    link.schedule.push(Change {
        at: heals_at,
        loss: Some(Probability::NEVER),
        // Or a run of losses would go on to its end.
        loss_burst: Some(1),
        reorder: Some(Probability::NEVER),
        duplicate: Some(Probability::NEVER),
        corrupt: Some(Probability::NEVER),
        jitter: Some(Duration::ZERO),
        mtu: Some(u16::MAX),
        outage: Some(Outage::None),
        ..Change::default()
    });
    rough
}

/// Both directions become narrow at once, and stay so: until the path heals perhaps too narrow for
/// an OPEN, and then as narrow as IPv6 allows.
fn narrow(seed: u64, sketch: &Sketch, heals_at: Duration, setup: &mut Setup) {
    let mut dice = Dice::new(seed, "narrow");
    if !dice.percent(20) {
        return;
    }
    setup.narrows = true;
    let at = dice.within(heals_at);
    let mtu = dice.range(592, u64::from(sketch.datagram).clamp(700, 1500)) as u16;
    for link in [&mut setup.there, &mut setup.back] {
        link.schedule.push(Change { at, mtu: Some(mtu), ..Change::default() });
        // After whatever else was to heal then.
        let mtu = Some(mtu.max(1280));
        link.schedule.push(Change { at: heals_at, mtu, ..Change::default() });
    }
}

/// One direction takes only small packets, while packets of the other end still arrive, for long
/// enough that an end must notice. Returns when that is over, and when all else is.
fn choke(dice: &mut Dice, sketch: &Sketch, heals_at: Duration, setup: &mut Setup) -> Duration {
    setup.chokes = true;
    let at = dice.within(heals_at);
    // KEEPALIVEs pass, and perhaps a few messages.
    let mtu = Some(dice.range(70, 200) as u16);
    let patience = setup.active.config.death_timer.max(Duration::from_secs(10));
    let patience = patience.max(sketch.rtt * 16).max(sketch.burst.interval * 8);
    let over = at + patience * 2;
    let link = if dice.percent(50) { &mut setup.there } else { &mut setup.back };
    link.schedule.push(Change { at, mtu, ..Change::default() });
    if heals_at < over {
        // After whatever else was to heal then.
        link.schedule.push(Change { at: heals_at, mtu, ..Change::default() });
    }
    link.schedule.push(Change { at: over, mtu: Some(u16::MAX), ..Change::default() });
    heals_at.max(over)
}

/// The path is dead for a while: often half a minute, at most until it heals.
fn add_outage(dice: &mut Dice, heals_at: Duration, link: &mut LinkOptions) {
    let at = dice.within(heals_at);
    let lasts = match dice.percent(30) {
        true => Duration::from_secs(30),
        false => dice.time(Duration::from_millis(10), Duration::from_secs(40)),
    };
    let outage = Some(dice.pick(&[Outage::Drop, Outage::Hold]));
    link.schedule.push(Change { at, outage, ..Change::default() });
    let over = Change { at: at + lasts, outage: Some(Outage::None), ..Change::default() };
    link.schedule.push(over);
}

/// Programs that start late, or are killed and started again.
fn add_deaths(seed: u64, heals_at: Duration, setup: &mut Setup) -> bool {
    let mut dice = Dice::new(seed, "deaths");
    let mut rough = false;
    if dice.percent(15) {
        rough = true;
        let late = dice.time(Duration::from_micros(1), Duration::from_secs(20));
        match dice.pick(&Side::BOTH) {
            Side::Active => setup.active.starts_at = late,
            Side::Passive => setup.passive.starts_at = late,
        }
    }
    if dice.percent(15) {
        rough = true;
        setup.kills = (0..dice.range(1, 2))
            .map(|_| Kill {
                side: dice.pick(&Side::BOTH),
                at: dice.within(heals_at),
                down: dice.time(Duration::from_millis(1), Duration::from_secs(20)),
            })
            .collect();
    }
    rough
}

fn attacker(dice: &mut Dice, base: Duration, heals_at: Duration) -> Option<AttackerOptions> {
    if !dice.percent(25) {
        return None;
    }
    let tricks = Trick::ALL.into_iter().filter(|_| dice.percent(60)).collect();
    Some(AttackerOptions {
        mean_interval: dice.time(base / 2000, base / 20).max(Duration::from_micros(100)),
        until: heals_at,
        volley: dice.scale(1, 20) as u32,
        tricks,
    })
}
