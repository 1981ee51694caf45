//! TCP: CUBIC (RFC 9438) with HyStart's delay test, or Reno. Each packet is acknowledged, with the
//! latest arrivals. Data leave when acknowledgements arrive.
//!
//! A lost packet is not sent again by number. A transfer ends when as many packets as it has were
//! acknowledged, so that a loss costs one more packet, and the time until it is known.

use std::collections::VecDeque;
use std::time::Duration;

use netblt_proto::api::Ecn;
use netblt_proto::rate::Cubic;
use netblt_proto::time::Instant;

use super::ends::{Ack, Body, Ends, FEEDBACK_BYTES, FlowPacket, Outbox};
use super::scene::{FlowOptions, Supply, TcpLaw};

/// RFC 6928.
const FIRST_WINDOW: f64 = 10.0;
/// RFC 5681 §4.
const LEAST_WINDOW: f64 = 2.0;
/// A packet counts as lost when so many later ones have arrived (RFC 6675).
const DUPLICATES: u64 = 3;
/// The least that Linux adds to the round trip for the retransmission timeout.
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);
/// Round trips of a round before HyStart believes its least, and how much longer it may be than
/// that of the round before (RFC 9406 §4.3).
const HYSTART_SAMPLES: u32 = 8;
const HYSTART: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));
/// No timer is longer.
const MOST_DOUBLINGS: u32 = 6;

#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    at: Instant,
    acked: bool,
}

/// The round trips of slow start.
#[derive(Clone, Copy, Debug, Default)]
struct HyStart {
    /// The first number of the next round.
    round_end: u64,
    samples: u32,
    least: Option<Duration>,
    before: Option<Duration>,
}

impl HyStart {
    /// Whether the path is full.
    fn on_rtt(&mut self, number: u64, next_number: u64, rtt: Duration) -> bool {
        if number >= self.round_end {
            let before = self.least.or(self.before);
            *self = Self { round_end: next_number, before, ..Self::default() };
        }
        self.samples += 1;
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let (Some(before), true) = (self.before, self.samples >= HYSTART_SAMPLES) else {
            return false;
        };
        least >= before + (before / 8).clamp(HYSTART.0, HYSTART.1)
    }
}

/// The rest of the supply.
#[derive(Clone, Copy, Debug)]
struct Piece {
    begun: Instant,
    /// Packets of it that are not acknowledged.
    left: u64,
}

/// Both ends of a connection.
#[derive(Debug)]
pub(super) struct Tcp {
    law: TcpLaw,
    supply: Supply,
    packet: u32,
    curve: Cubic,
    window: f64,
    threshold: f64,
    hystart: HyStart,
    flight: VecDeque<Sent>,
    in_flight: u64,
    next_number: u64,
    /// Packets before this belong to the answered congestion event.
    recover: u64,
    srtt: Option<Duration>,
    variance: Duration,
    doublings: u32,
    /// When something was acknowledged last, or first sent.
    progress: Instant,
    /// The tail was probed since then.
    probed: bool,
    piece: Option<Piece>,
    pieces: Vec<(Instant, Duration)>,
    /// Marks that the sender knows of.
    marked: u64,
    /// The receiver's.
    ack: Ack,
}

impl Tcp {
    pub(super) fn new(law: TcpLaw, supply: Supply, options: &FlowOptions) -> Self {
        let mut tcp = Self {
            law,
            supply,
            packet: options.packet_bytes,
            curve: Cubic::default(),
            window: FIRST_WINDOW,
            threshold: f64::INFINITY,
            hystart: HyStart::default(),
            flight: VecDeque::new(),
            in_flight: 0,
            next_number: 0,
            recover: 0,
            srtt: None,
            variance: Duration::ZERO,
            doublings: 0,
            progress: Instant::EPOCH,
            probed: false,
            piece: None,
            pieces: Vec::new(),
            marked: 0,
            ack: Ack::default(),
        };
        tcp.begin_piece(Instant::EPOCH + options.start);
        tcp
    }

    fn begin_piece(&mut self, begun: Instant) {
        let bytes = match self.supply {
            Supply::Endless => return,
            Supply::Once(bytes) | Supply::Pieces(bytes, _) => bytes,
        };
        self.piece = Some(Piece { begun, left: bytes.div_ceil(u64::from(self.packet)) });
    }

    /// Packets that may be sent beside those in flight, by the supply.
    fn supplied(&self, now: Instant) -> u64 {
        match (self.supply, self.piece) {
            (Supply::Endless, _) => u64::MAX,
            (_, Some(piece)) if piece.begun <= now => piece.left.saturating_sub(self.in_flight),
            _ => 0,
        }
    }

    fn rtt(&self) -> Duration {
        self.srtt.unwrap_or(Duration::from_secs(1))
    }

    fn timeout(&self) -> Duration {
        let timeout = self.rtt() + (self.variance * 4).max(LEAST_TIMEOUT);
        timeout * (1 << self.doublings)
    }

    /// The time of the tail loss probe (RFC 8985 §7), or of the retransmission timeout.
    fn timer(&self) -> Instant {
        if self.in_flight == 0 {
            return Instant::NEVER;
        }
        let probe =
            if self.probed || self.srtt.is_none() { self.timeout() } else { self.rtt() * 2 };
        self.progress + probe.min(self.timeout())
    }

    fn has_room(&self) -> bool {
        (self.in_flight as f64) < self.window.max(1.0).floor()
    }

    fn send_one(&mut self, now: Instant, out: &mut Outbox) {
        if self.in_flight == 0 {
            self.after_idle(now);
            self.progress = now;
        }
        self.flight.push_back(Sent { number: self.next_number, at: now, acked: false });
        out.push(Body::Data(self.next_number), self.packet);
        self.next_number += 1;
        self.in_flight += 1;
    }

    /// An idle connection restarts with its first window (RFC 5681 §4.1), and keeps its threshold
    /// (RFC 2861).
    fn after_idle(&mut self, now: Instant) {
        if self.next_number > 0 && now.since(self.progress) > self.timeout() {
            self.threshold = self.threshold.max(self.window * 0.75);
            self.window = self.window.min(FIRST_WINDOW);
            self.curve.restart();
            self.hystart = HyStart { round_end: self.next_number, ..HyStart::default() };
        }
    }

    fn send(&mut self, now: Instant, out: &mut Outbox) {
        while self.has_room() && self.supplied(now) > 0 {
            self.send_one(now, out);
        }
    }

    fn reduce(&mut self) {
        let reduced = match self.law {
            TcpLaw::Cubic => self.curve.reduce(self.window),
            TcpLaw::Reno => self.window / 2.0,
        };
        self.window = reduced.max(LEAST_WINDOW);
        self.threshold = self.window;
        self.recover = self.next_number;
    }

    fn grow(
        &mut self,
        now: Instant,
        number: u64,
        rtt: Option<Duration>,
        acked: u64,
        was_used: bool,
    ) {
        let acked = acked as f64;
        if self.window < self.threshold {
            let full = rtt.is_some_and(|rtt| self.hystart.on_rtt(number, self.next_number, rtt));
            if was_used {
                self.window += acked;
            }
            if full && self.law == TcpLaw::Cubic {
                self.threshold = self.window;
            }
            return;
        }
        if !was_used {
            self.curve.restart();
            return;
        }
        self.window = match self.law {
            TcpLaw::Cubic => self.curve.grow(now, self.window, acked, self.rtt()),
            TcpLaw::Reno => self.window + acked / self.window,
        };
    }

    fn measure(&mut self, rtt: Duration) {
        let Some(srtt) = self.srtt else {
            (self.srtt, self.variance) = (Some(rtt), rtt / 2);
            return;
        };
        self.variance = (self.variance * 3 + rtt.abs_diff(srtt)) / 4;
        self.srtt = Some((srtt * 7 + rtt) / 8);
    }

    /// Finds the losses, now that `number` was acknowledged. Returns whether they are a new
    /// congestion event.
    fn find_lost(&mut self, now: Instant, number: u64) -> bool {
        let late = self.rtt() + self.rtt() / 4;
        let mut is_new = false;
        while let Some(first) = self.flight.front().copied() {
            let overtaken = number >= first.number + DUPLICATES
                || number > first.number && now.since(first.at) > late;
            if !first.acked && !overtaken {
                break;
            }
            self.flight.pop_front();
            if !first.acked {
                self.in_flight -= 1;
                is_new |= first.number >= self.recover;
            }
        }
        is_new
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack) {
        let was_used = self.in_flight as f64 + 1.0 >= self.window.floor()
            || self.window < self.threshold && 2.0 * self.in_flight as f64 >= self.window;
        let (mut acked, mut rtt) = (0, None);
        for sent in self.flight.iter_mut().take_while(|sent| sent.number <= ack.highest) {
            if !sent.acked && ack.covers(sent.number) {
                sent.acked = true;
                acked += 1;
                if sent.number == ack.number {
                    rtt = Some(now.since(sent.at));
                }
            }
        }
        if acked == 0 {
            return;
        }
        self.in_flight -= acked;
        (self.progress, self.probed, self.doublings) = (now, false, 0);
        if let Some(rtt) = rtt {
            self.measure(rtt);
        }
        let is_marked = std::mem::replace(&mut self.marked, ack.marked) < ack.marked;
        let is_lost = self.find_lost(now, ack.highest);
        if is_lost || is_marked && ack.number >= self.recover {
            self.reduce();
        } else if ack.number >= self.recover {
            self.grow(now, ack.number, rtt, acked, was_used);
        }
        self.count_piece(now, acked);
    }

    fn count_piece(&mut self, now: Instant, acked: u64) {
        let Some(piece) = &mut self.piece else { return };
        piece.left = piece.left.saturating_sub(acked);
        if piece.left > 0 {
            return;
        }
        let begun = piece.begun;
        self.pieces.push((begun, now.since(begun)));
        // Packets in flight beyond the piece replaced lost ones.
        (self.piece, self.in_flight) = (None, 0);
        self.flight.clear();
        if let Supply::Pieces(_, pause) = self.supply {
            self.begin_piece(now + pause);
        }
    }

    /// Something new, or the last packet again.
    fn probe_tail(&mut self, now: Instant, out: &mut Outbox) {
        if self.supplied(now) > 0 {
            self.send_one(now, out);
        } else if let Some(last) = self.flight.iter_mut().rev().find(|sent| !sent.acked) {
            last.at = now;
            out.push(Body::Data(last.number), self.packet);
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Outbox) {
        let gives_up = self.probed || now >= self.progress + self.timeout();
        if !gives_up {
            self.probed = true;
            self.probe_tail(now, out);
            return;
        }
        self.reduce();
        self.window = 1.0;
        self.flight.clear();
        self.in_flight = 0;
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
        (self.progress, self.probed) = (now, true);
        self.hystart = HyStart { round_end: self.next_number, ..HyStart::default() };
    }
}

impl Ends for Tcp {
    fn due(&self, now: Instant) -> Instant {
        let piece = match (self.supply, self.piece) {
            (Supply::Endless, _) => Instant::EPOCH,
            (_, Some(piece)) if piece.left > self.in_flight => piece.begun,
            _ => Instant::NEVER,
        };
        let send = if self.has_room() { piece.max(now) } else { Instant::NEVER };
        send.min(self.timer())
    }

    fn work(&mut self, now: Instant, out: &mut Outbox) {
        if self.timer() <= now {
            self.on_timer(now, out);
        }
        self.send(now, out);
    }

    fn on_data(&mut self, _: Instant, packet: &FlowPacket, ecn: Option<Ecn>, out: &mut Outbox) {
        if let Body::Data(number) = packet.body {
            self.ack.take(number, ecn == Some(Ecn::Ce));
            out.push(Body::Ack(self.ack), FEEDBACK_BYTES);
        }
    }

    fn on_feedback(&mut self, now: Instant, body: &Body, out: &mut Outbox) {
        if let Body::Ack(ack) = body {
            self.on_ack(now, ack);
            self.send(now, out);
        }
    }

    fn pieces(&self) -> &[(Instant, Duration)] {
        &self.pieces
    }
}
