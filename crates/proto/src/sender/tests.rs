//! Limits of a malicious receiver that holds the secret.

use super::*;
use crate::buffer::Geometry;
use crate::crypto::cipher::Cipher;
use crate::negotiated::PacketOutcome;
use crate::rate::fixed::Fixed;
use crate::rate::{Belief, Pacing, RateControl, Sample, Ways};
use crate::units::Burst;
use crate::wire::Wire;
use crate::wire::packet::IndexRange;
use crate::wire::packet::{Accepted, Go, Message, Resend, Verdict};

const PACKET: u32 = 1000;
const BUFFER: u32 = 10_000;

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

fn codec() -> Codec {
    Codec::sealed(1, 2, Cipher::Aes256Gcm, [1; 32], [2; 32])
}

fn sender(wire: Wire) -> Sender {
    let fixed = Fixed::new(Burst { packets: 8, interval: Duration::from_millis(1) }, 1260);
    sender_with(wire, Law { control: Box::new(fixed), learns: false, ways: Ways::OURS })
}

fn sender_with(wire: Wire, law: Law) -> Sender {
    let geometry = Geometry { buffer_bytes: BUFFER, packet_bytes: PACKET };
    let negotiated = Negotiated { geometry, ..Negotiated::example(wire) };
    Sender::new(ms(0), negotiated, law, 28)
}

fn go(first: u64, count: u32, packet_bytes: u32, generation: u8) -> Message {
    Message::Go(Go { first: BufferNumber(first), count, packet_bytes, generation })
}

fn say(sender: &mut Sender, seq: u32, message: Message) -> PacketOutcome {
    sender.handle_control(ms(0), false, vec![(ControlSeq(seq), message)])
}

fn supply(sender: &mut Sender, number: u64) {
    let mut buffer = Buffer::new(BUFFER as usize);
    buffer.set_len(BUFFER as usize);
    sender.supply(ms(0), BufferNumber(number), buffer, false);
}

/// How many datagrams leave at one instant; far more than can be due if they do not end.
fn drain(sender: &mut Sender, now: Instant) -> usize {
    let (mut codec, mut out) = (codec(), Vec::new());
    (0..1000).take_while(|_| sender.poll_transmit(now, &mut codec, &mut out).is_some()).count()
}

#[test]
fn an_end_acknowledged_before_it_was_sent_is_sent_until_acknowledged() {
    let mut sender = sender(Wire::Sealed);
    sender.handle_control(ms(0), true, Vec::new());
    sender.end(ms(1), End { buffers: 0, bytes: 0, digest: [0; 32] });
    assert!(drain(&mut sender, ms(1)) < 4);
    assert!(sender.end.end_due().is_some(), "it is not acknowledged");
}

#[test]
fn an_end_after_the_verdict_is_not_sent() {
    let mut sender = sender(Wire::Sealed);
    let verdict = Verdict { verified: false, bytes: 0, digest: [0; 32], reason: String::new() };
    assert_eq!(say(&mut sender, 1, Message::Done(verdict)), PacketOutcome::Authentic);
    sender.end(ms(1), End { buffers: 0, bytes: 0, digest: [0; 32] });
    assert!(drain(&mut sender, ms(1)) < 4);
}

#[test]
fn too_many_grants_are_a_violation() {
    let mut sender = sender(Wire::Sealed);
    let taken = (0..1000).map(|n| say(&mut sender, n + 1, go(1 + u64::from(n) * 4, 4, PACKET, 0)));
    let accepted = taken.take_while(|taken| *taken == PacketOutcome::Authentic).count();
    assert!(accepted <= 2, "{accepted}");
}

#[test]
fn a_go_with_too_small_packets_is_a_violation() {
    let mut sender = sender(Wire::Sealed);
    assert_eq!(say(&mut sender, 1, go(1, 1, 128, 0)), PacketOutcome::Authentic);
    assert!(matches!(say(&mut sender, 2, go(1, 1, 127, 1)), PacketOutcome::Violation(_)));
}

#[test]
fn a_go_for_buffer_zero_is_a_violation() {
    // A receiver that waits for buffer 0 would wait for ever, and both ends would keep each other
    // alive.
    let mut sender = sender(Wire::Rfc998);
    assert!(matches!(say(&mut sender, 1, go(0, 1, 0, 0)), PacketOutcome::Violation(_)));
}

#[test]
fn an_ok_with_one_unsent_buffer_is_a_violation() {
    let mut sender = sender(Wire::Sealed);
    say(&mut sender, 1, go(1, 2, PACKET, 0));
    supply(&mut sender, 1);
    supply(&mut sender, 2);
    let mut now = ms(0);
    while !sender.scheduler.buffers().all(OutgoingBuffer::is_sent) {
        drain(&mut sender, now);
        now += Duration::from_millis(1);
    }
    let missing = vec![IndexRange { start: 3, end: 5 }];
    say(&mut sender, 2, Message::Resend(Resend { buffer: BufferNumber(2), missing }));
    let ok = |count| {
        let control_timer = Duration::from_millis(50);
        Message::Ok(Accepted { first: BufferNumber(1), count, offer: None, control_timer })
    };
    assert!(
        matches!(say(&mut sender, 3, ok(3)), PacketOutcome::Violation(_)),
        "3 was never supplied"
    );
    assert_eq!(say(&mut sender, 4, ok(2)), PacketOutcome::Authentic);
    assert!(sender.scheduler.outstanding() == 0 && !sender.scheduler.has_retransmits());
}

#[test]
fn without_reports_only_probes_leave() {
    // The forward path is dead, the reverse path is not.
    let mut sender = sender(Wire::Sealed);
    say(&mut sender, 1, go(1, 4, PACKET, 0));
    let mut sent = 0;
    for n in 1..=4 {
        supply(&mut sender, n);
    }
    for n in 0..200 {
        let now = ms(n * 50);
        sender.on_authentic(now);
        let missing = vec![IndexRange { start: 0, end: u32::MAX }];
        let resend = Message::Resend(Resend { buffer: BufferNumber(1), missing });
        sender.handle_control(now, false, vec![(ControlSeq(2 + n as u32), resend)]);
        let before = sender.records.stats.data_packets_sent;
        drain(&mut sender, now);
        sent = if n > 60 { sent + sender.records.stats.data_packets_sent - before } else { 0 };
    }
    assert!((1..=8).contains(&sent), "{sent} in the last seven seconds");
}

#[test]
fn a_buffer_held_back_by_the_window_is_probed() {
    // Packets that never left cannot be requested: an RFC 998 receiver may wait for the end of its
    // buffer.
    let law = Ticking { packets: 1, next: ms(1_000_000), cap: Some(3000) };
    let law = Law { control: Box::new(law), learns: true, ways: Ways::OURS };
    let mut sender = sender_with(Wire::Rfc998, law);
    say(&mut sender, 1, go(1, 1, PACKET, 0));
    supply(&mut sender, 1);
    let mut sent = Vec::new();
    for n in 0..12 {
        let now = ms(n * 500);
        sender.on_authentic(now);
        let before = sender.records.stats.data_packets_sent;
        (0..10).for_each(|more| _ = drain(&mut sender, now + Duration::from_millis(more * 10)));
        sent.push(sender.records.stats.data_packets_sent - before);
    }
    assert_eq!(sent, [3, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
}

/// A law with a timer of its own: one more packet per burst every 10 ms, as with UDT's SYN.
#[derive(Debug)]
struct Ticking {
    packets: u32,
    next: Instant,
    cap: Option<u64>,
}

impl RateControl for Ticking {
    fn on_sample(&mut self, _: Instant, _: &Sample) {}
    fn on_silence(&mut self, _: Instant) {}
    fn on_offer(&mut self, _: Instant, _: Burst) {}
    fn on_packet_bytes(&mut self, _: u32) {}
    fn pacing(&self) -> Pacing {
        let burst = Burst { packets: self.packets, interval: Duration::from_millis(1) };
        Pacing { cap_bytes: self.cap, ..Pacing::of(burst) }
    }
    fn belief(&self) -> Belief {
        Belief { phase: "ticking", ..Belief::default() }
    }
    fn next_timeout(&self) -> Option<Instant> {
        Some(self.next)
    }
    fn on_timeout(&mut self, now: Instant) {
        self.packets += 1;
        self.next = now + Duration::from_millis(10);
    }
}

#[test]
fn a_rate_law_may_have_a_timer_of_its_own() {
    let law = Law {
        control: Box::new(Ticking { packets: 1, next: ms(10), cap: None }),
        learns: true,
        ways: Ways::OURS,
    };
    let mut sender = sender_with(Wire::Sealed, law);
    sender.records.trace.switch(true);
    let mut fired = Vec::new();
    let mut now = ms(0);
    while now < ms(45) {
        let (_, next) = sender.next_timer(now).expect("the law's clock runs without data");
        assert!(next > now, "{next:?} again");
        now = next;
        sender.handle_timeout(now);
        // Changed burst values are announced.
        drain(&mut sender, now);
        fired.push(now);
    }
    assert_eq!(fired, [ms(10), ms(20), ms(30), ms(40), ms(50)]);
    assert_eq!(sender.rate.pacing().burst.packets, 6);
    let verdict = Verdict { verified: false, bytes: 0, digest: [0; 32], reason: String::new() };
    say(&mut sender, 1, Message::Done(verdict));
    assert!(sender.deadline(SenderTimer::Rate, now).is_none(), "nothing is left to send");
}
