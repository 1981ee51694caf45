//! The timers alone, with given arrivals.

use super::*;
use crate::units::Burst;
use crate::units::{PacketIndex, PacketNumber};

struct All(u32);
impl MissingRanges for All {
    fn holes(&self, _: BufferNumber, _: IndexRange, each: &mut dyn FnMut(IndexRange)) {
        each(IndexRange { start: 0, end: self.0 });
    }
    fn missing(&self, _: BufferNumber) -> u32 {
        self.0
    }
}

fn timing() -> TimingInfo {
    TimingInfo {
        rtt: None,
        timeout: Some(Duration::ZERO),
        burst: Burst { packets: 5, interval: Duration::from_millis(40) },
        varies: false,
        packets_per_buffer: 50,
        packets_per_round: u32::MAX,
    }
}

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

fn arrival(buffer: u64, index: u32) -> Arrival {
    Arrival {
        number: PacketNumber(0),
        buffer: BufferNumber(buffer),
        index: PacketIndex(index),
        last_of_buffer: false,
        ack: ControlSeq(2),
    }
}

/// Grants buffers, and acknowledges the GOs.
fn grant(timer: &mut DataTimer, buffers: u32, timing: &TimingInfo) {
    for n in 1..=buffers {
        timer.on_granted(ms(0), BufferNumber(u64::from(n)), ControlSeq(n));
    }
    timer.on_acknowledged(ms(0), ControlSeq(buffers), timing);
}

#[test]
fn the_loose_timer_allows_for_lower_buffers() {
    let mut timer = DataTimer::new();
    timer.on_granted(ms(0), BufferNumber(1), ControlSeq(1));
    timer.on_granted(ms(0), BufferNumber(2), ControlSeq(2));
    assert_eq!(timer.next_poll(), None, "ACK-WAIT has no data timer");
    timer.on_acknowledged(ms(0), ControlSeq(2), &timing());
    let deadlines: Vec<_> = timer.due.values().map(|d| d.deadline.unwrap()).collect();
    // 10 bursts of 40 ms, half to spare, one interval and the slack; twice that for the second.
    assert_eq!(deadlines, [ms(645), ms(1245)]);
}

#[test]
fn an_arrival_after_expiries_shortens_the_next_timer() {
    let mut timer = DataTimer::new();
    grant(&mut timer, 3, &timing());
    let mut asks = Vec::new();
    let mut seq = 3;
    // The path is dead for a while.
    while timer.due[&BufferNumber(3)].expired < MAX_DOUBLINGS {
        let at = timer.next_poll().unwrap();
        timer.poll(at, &All(50), &timing(), &mut asks);
        for ask in asks.drain(..) {
            seq += 1;
            timer.on_requested(at, ask, ControlSeq(seq));
            timer.on_acknowledged(at, ControlSeq(seq), &timing());
        }
    }
    let deadline = |timer: &DataTimer, n| timer.due[&BufferNumber(n)].deadline.unwrap();
    let (before, now) = (deadline(&timer, 3), ms(10_000));
    assert!(deadline(&timer, 2) > now + ms(3000).since(ms(0)));
    timer.on_arrival(now, &arrival(1, 0), &timing());
    // The rest of two buffers, half to spare, an interval and the slack.
    assert_eq!(deadline(&timer, 2), ms(11_245));
    assert_eq!(deadline(&timer, 3), before, "one after the other");
    timer.on_arrival(ms(10_100), &arrival(2, 0), &timing());
    assert!(deadline(&timer, 3) < before);
}

#[test]
fn the_first_packet_of_a_higher_buffer_shortens_the_lower_timer() {
    let mut timer = DataTimer::new();
    timer.on_granted(ms(0), BufferNumber(1), ControlSeq(1));
    timer.on_granted(ms(0), BufferNumber(2), ControlSeq(2));
    timer.on_acknowledged(ms(0), ControlSeq(2), &timing());
    timer.on_arrival(ms(100), &arrival(2, 0), &timing());
    assert_eq!(timer.due[&BufferNumber(1)].deadline, Some(ms(705)));
    let mut asks = Vec::new();
    timer.poll(ms(705), &All(50), &timing(), &mut asks);
    assert!(asks.is_empty(), "what waits in the host's own queues is looked at first");
    timer.poll(ms(706), &All(50), &timing(), &mut asks);
    assert_eq!(
        asks,
        [ResendRequest { buffer: BufferNumber(1), range: IndexRange { start: 0, end: 50 } }]
    );
    assert_eq!(timer.expiries(), 1);
}

/// Lets the timer of `buffer` expire and acknowledges its request at once. Returns its next
/// deadline.
fn asked_in_vain(timer: &mut DataTimer, buffer: u64, seq: u32) -> (Instant, Instant) {
    let buffer = BufferNumber(buffer);
    let (mut at, mut asks) = (Instant::EPOCH, Vec::new());
    while asks.is_empty() {
        at = timer.due[&buffer].deadline.unwrap();
        timer.poll(at, &All(50), &timing(), &mut asks);
    }
    asks.iter().for_each(|ask| timer.on_requested(at, *ask, ControlSeq(seq)));
    timer.on_acknowledged(at, ControlSeq(seq), &timing());
    (at, timer.due[&buffer].deadline.unwrap())
}

#[test]
fn the_timer_of_a_buffer_that_has_begun_does_not_double() {
    for (begun, longer) in [(false, true), (true, false)] {
        let mut timer = DataTimer::new();
        timer.on_granted(ms(0), BufferNumber(1), ControlSeq(1));
        timer.on_acknowledged(ms(0), ControlSeq(1), &timing());
        if begun {
            timer.on_arrival(ms(1), &arrival(1, 0), &timing());
        }
        let waits = [2, 3, 4].map(|seq| {
            let (at, next) = asked_in_vain(&mut timer, 1, seq);
            next.since(at)
        });
        assert_eq!(waits[2] > waits[0] * 3, longer, "{waits:?}");
    }
}

#[test]
fn new_higher_buffers_do_not_postpone_an_unanswered_request() {
    let mut timer = DataTimer::new();
    grant(&mut timer, 40, &timing());
    let (at, _) = asked_in_vain(&mut timer, 1, 41);
    let mut deadlines = (2..=40).map(|n| {
        timer.on_arrival(at + Duration::from_millis(20 * n), &arrival(n, 0), &timing());
        timer.due[&BufferNumber(1)].deadline.unwrap()
    });
    let first = deadlines.next().unwrap();
    assert!(deadlines.all(|deadline| deadline <= first));
}

/// Three buffers of 50 packets are granted, and the first begins.
fn begun() -> DataTimer {
    let mut timer = DataTimer::new();
    grant(&mut timer, 3, &timing());
    timer.on_arrival(ms(10), &arrival(1, 0), &timing());
    timer
}

/// The requests until `until`, with one poll per millisecond.
fn asked(timer: &mut DataTimer, from: u64, until: u64) -> Vec<ResendRequest> {
    let mut all = Vec::new();
    for at in from..until {
        let mut asks = Vec::new();
        timer.poll(ms(at), &All(50), &timing(), &mut asks);
        for ask in &asks {
            timer.on_requested(ms(at), *ask, ControlSeq(10));
        }
        all.append(&mut asks);
    }
    all
}

#[test]
fn unsent_packets_of_a_slower_sender_are_not_requested() {
    let mut timer = begun();
    // A packet every 100 ms, where 5 every 40 were announced.
    for i in 1..50 {
        let at = 10 + u64::from(i) * 100;
        assert_eq!(asked(&mut timer, at - 100, at), [], "{i}");
        timer.on_arrival(ms(at), &arrival(1, i), &timing());
    }
}

#[test]
fn a_sender_with_gaps_gets_one_request_and_then_longer_timers() {
    let mut timer = begun();
    timer.on_arrival(ms(11), &arrival(1, 1), &timing());
    let asks = asked(&mut timer, 11, 5000);
    assert_eq!(asks.len(), 1, "for the lowest buffer alone: {asks:?}");
    assert_eq!((asks[0].buffer, timer.expiries()), (BufferNumber(1), 1));
    timer.on_complete(BufferNumber(1));
    timer.on_arrival(ms(5000), &arrival(2, 0), &timing());
    timer.on_arrival(ms(7000), &arrival(2, 1), &timing());
    assert_eq!(asked(&mut timer, 7000, 8900), [], "it was silent as long before");
}

#[test]
fn a_sender_that_never_began_is_checked_at_growing_intervals() {
    let burst = Burst { packets: 1, interval: Duration::from_millis(2) };
    let timing = TimingInfo { burst, packets_per_buffer: 1, ..timing() };
    let mut timer = DataTimer::new();
    for buffer in 1..=7 {
        timer.on_granted(ms(0), BufferNumber(buffer), ControlSeq(buffer as u32));
    }
    timer.on_acknowledged(ms(0), ControlSeq(7), &timing);
    let (mut looks, mut asks) = (0, Vec::new());
    while let Some(at) = timer.next_poll().filter(|at| *at < ms(60_000)) {
        timer.poll(at, &All(1), &timing, &mut asks);
        for ask in asks.drain(..) {
            timer.on_requested(at, ask, ControlSeq(8));
        }
        looks += 1;
    }
    // Six buffers, each once a second, and a little more often at first.
    assert!(looks < 500, "{looks}");
}

#[test]
fn a_slow_path_lengthens_the_timers() {
    let mut timer = DataTimer::new();
    timer.on_granted(ms(0), BufferNumber(1), ControlSeq(1));
    timer.on_acknowledged(ms(0), ControlSeq(1), &timing());
    for i in 0..50 {
        timer.on_arrival(ms(u64::from(i) * 40), &arrival(1, i), &timing());
    }
    timer.on_complete(BufferNumber(1));
    timer.on_granted(ms(2000), BufferNumber(2), ControlSeq(2));
    timer.on_acknowledged(ms(2000), ControlSeq(2), &timing());
    // 50 packets of 40 ms, four deviations of 20 ms, the slack, one interval to begin.
    assert_eq!(timer.next_poll(), Some(ms(2000 + 2000 + 80 + 5 + 40)));
}

#[test]
fn an_outage_does_not_count_as_a_slow_sender() {
    let mut timer = DataTimer::new();
    timer.on_granted(ms(0), BufferNumber(1), ControlSeq(1));
    timer.on_arrival(ms(0), &arrival(1, 0), &timing());
    timer.on_arrival(ms(30_000), &arrival(1, 1), &timing());
    timer.on_complete(BufferNumber(1));
    timer.on_granted(ms(30_000), BufferNumber(2), ControlSeq(2));
    timer.on_acknowledged(ms(30_000), ControlSeq(2), &timing());
    // Eight seconds for 50 packets, eight for silences, the slack, one interval to begin.
    assert_eq!(timer.next_poll(), Some(ms(30_000 + 8000 + 8000 + 5 + 40)));
}

/// Sends buffer 1 at `per_packet` without the packets in `lost`, and all of buffer 2 but its
/// last, the first at 10 s.
fn second_buffer(per_packet: u64, lost: &[u32]) -> DataTimer {
    let timing = TimingInfo { packets_per_buffer: 10, ..timing() };
    let mut timer = DataTimer::new();
    for (buffer, start, missing) in [(1, 0, lost), (2, 10_000, &[9][..])] {
        timer.on_granted(ms(start), BufferNumber(buffer), ControlSeq(buffer as u32));
        timer.on_acknowledged(ms(start), ControlSeq(buffer as u32), &timing);
        for i in (0..10).filter(|i| !missing.contains(i)) {
            // Two bursts of five.
            let at = start + u64::from(i / 5 * 40) + u64::from(i % 5) * per_packet;
            timer.on_arrival(ms(at), &arrival(buffer, i), &timing);
        }
        if buffer == 1 {
            timer.on_complete(BufferNumber(1));
        }
    }
    timer
}

#[test]
fn a_tight_timer_expires_soon_after_the_last_packet_was_due() {
    // Packets of 6 ms in bursts every 40: the tenth is due 64 ms after the first. Nine times
    // 7.1 ms, four deviations of 3.6 ms, the slack.
    let due = second_buffer(6, &[]).next_poll().unwrap();
    assert!((ms(10_064)..ms(10_085)).contains(&due), "{due:?}");
    // Bursts that take no time: nine times 4.4 ms is as good as the interval between them.
    let due = second_buffer(0, &[]).next_poll().unwrap();
    assert!((ms(10_040)..ms(10_056)).contains(&due), "{due:?}");
}

#[test]
fn lost_packets_count_in_the_pace() {
    let (whole, holes) = (second_buffer(6, &[]), second_buffer(6, &[2, 5, 7]));
    assert_eq!(whole.next_poll(), holes.next_poll());
}

/// The time of the first request, from `from` on.
fn first_question(timer: &mut DataTimer, from: u64, timing: &TimingInfo) -> u64 {
    let mut asks = Vec::new();
    let at = (from..from + 20_000).find(|at| {
        timer.poll(ms(*at), &All(50), timing, &mut asks);
        !asks.is_empty()
    });
    at.unwrap()
}

/// Otherwise a sender that began with a buffer in ten seconds would get requests seconds late, long
/// after it has become a hundred times faster.
#[test]
fn the_timer_follows_a_sender_that_became_faster() {
    let mut timer = DataTimer::new();
    grant(&mut timer, 3, &timing());
    for (buffer, each, packets) in [(1, 100, 50), (2, 1, 50), (3, 1, 40)] {
        for index in 0..packets {
            let at = 10_000 * buffer + each * u64::from(index);
            timer.on_arrival(ms(at), &arrival(buffer, index), &timing());
        }
        if packets == 50 {
            timer.on_complete(BufferNumber(buffer));
        }
    }
    // As long as the burst values promise, and 250 ms of deviation; 4.6 s by the mean.
    let at = first_question(&mut timer, 30_040, &timing());
    assert!((30_300..30_700).contains(&at), "{at}");
}

/// The burst values imply a buffer in four seconds; it arrives in 50 ms except for one packet.
#[test]
fn packets_that_a_sender_passed_are_soon_requested() {
    let slow = TimingInfo {
        burst: Burst { packets: 5, interval: Duration::from_millis(400) },
        ..timing()
    };
    for by_the_next in [false, true] {
        for (mut timer, asked) in [(DataTimer::new(), 355), (DataTimer::first(), 6105)] {
            grant(&mut timer, 2, &slow);
            for index in (0..50).filter(|index| *index != 7) {
                let last_of_buffer = index == 49 && !by_the_next;
                let piece = Arrival { last_of_buffer, ..arrival(1, index) };
                timer.on_arrival(ms(100 + u64::from(index)), &piece, &slow);
            }
            if by_the_next {
                timer.on_arrival(ms(150), &arrival(2, 0), &slow);
            }
            let at = first_question(&mut timer, 150, &slow);
            assert!(at.abs_diff(asked) <= 2, "{by_the_next}: {at}");
            if !by_the_next || timer.first {
                continue;
            }
            // The request arrives, and the resend is lost.
            let ask =
                ResendRequest { buffer: BufferNumber(1), range: IndexRange { start: 0, end: 50 } };
            timer.on_requested(ms(at), ask, ControlSeq(3));
            timer.on_acknowledged(ms(at), ControlSeq(3), &slow);
            timer.on_granted(ms(at), BufferNumber(3), ControlSeq(4));
            timer.on_acknowledged(ms(at), ControlSeq(4), &slow);
            timer.on_arrival(ms(at + 10), &arrival(3, 0), &timing());
            // Ten bursts at their intervals, and the slack; 6.4 s as it was set.
            let again = first_question(&mut timer, at + 1, &timing());
            assert!(again.abs_diff(at + 10 + 400 + 205) <= 4, "{}", again - at);
        }
    }
}
