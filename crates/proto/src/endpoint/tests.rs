//! Header prediction beside the slow path: two receivers get the same packets, and only one
//! predicts.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::api::{Event, RecvMeta};
use crate::buffer::Buffer;
use crate::config::{Config, Role, Secret, Wire};
use crate::connection::Machine;
use crate::crypto::aead::Cipher;
use crate::wire::packet::End;

const BUFFER_BYTES: usize = 1 << 14;
const BUFFERS: u64 = 6;
const DELAY: Duration = Duration::from_millis(3);

/// The fate of a packet on the path to the receivers.
#[derive(Clone, Copy, Debug)]
enum PacketFate {
    Arrives,
    /// Delayed by this much.
    Late(u8),
    Twice,
    Lost,
    /// With this bit changed.
    Broken(u16),
    /// From another address.
    Elsewhere,
}

fn fate() -> impl Strategy<Value = PacketFate> {
    prop_oneof![
        60 => Just(PacketFate::Arrives),
        3 => (0..20_u8).prop_map(PacketFate::Late),
        3 => Just(PacketFate::Twice),
        3 => Just(PacketFate::Lost),
        3 => any::<u16>().prop_map(PacketFate::Broken),
        1 => Just(PacketFate::Elsewhere),
    ]
}

fn address(last: u8) -> SocketAddr {
    ([192, 0, 2, last], 9).into()
}

struct TwoReceivers {
    now: Instant,
    sender: Endpoint,
    /// One that predicts, and one that never does.
    receivers: [Endpoint; 2],
    /// To the receivers if so.
    flying: VecDeque<(Instant, bool, SocketAddr, Vec<u8>)>,
    fates: Vec<PacketFate>,
    sent: usize,
    predicted: u64,
    filled: u64,
}

impl TwoReceivers {
    fn new(fates: Vec<PacketFate>) -> Self {
        let config = |role| Config {
            secret: Some(Secret([7; 32])),
            buffer_bytes: BUFFER_BYTES as u32,
            table_bytes: 0,
            max_outstanding: 3,
            cipher: Cipher::Aes256Gcm,
            ..Config::new(Wire::Sealed, role)
        };
        let now = Instant::EPOCH;
        let receiver = || {
            let mut end = Endpoint::passive(config(Role::Receiver), now, [2; 32]);
            (0..3).for_each(|_| end.offer(now, Buffer::new(BUFFER_BYTES)));
            end
        };
        Self {
            now,
            sender: Endpoint::active(config(Role::Sender), address(2), now, [1; 32]),
            receivers: [receiver(), receiver()],
            flying: VecDeque::new(),
            fates,
            sent: 0,
            predicted: 0,
            filled: 0,
        }
    }

    /// Both receivers get the same packet; one has prediction switched off.
    fn deliver(&mut self, from: SocketAddr, packet: &[u8]) {
        let [predicts, usual] = &mut self.receivers;
        if let Some(connection) = &predicts.connection {
            self.predicted += u64::from(connection.is_predicted(self.now, packet));
        }
        if let Some(Machine::Receiver(receiver)) = usual.connection.as_mut().map(|c| &mut c.machine)
        {
            receiver.forget_prediction();
        }
        for end in &mut self.receivers {
            let mut bytes = packet.to_vec();
            let datagram =
                Datagram { from, local: None, meta: RecvMeta::default(), bytes: &mut bytes };
            end.handle_datagram(self.now, datagram);
        }
        self.compare();
    }

    fn compare(&self) {
        let [predicts, usual] = &self.receivers;
        assert_eq!(format!("{predicts:?}"), format!("{usual:?}"));
        assert_eq!(
            format!("{:?}", predicts.stats(self.now)),
            format!("{:?}", usual.stats(self.now))
        );
    }

    fn launch(&mut self, batch: &[u8], segment: usize) {
        for packet in batch.chunks(segment) {
            let mut packet = packet.to_vec();
            let (mut at, mut from) = (self.now + DELAY, address(1));
            let fate = match packet.len() {
                // The handshake is not under test.
                ..1200 => PacketFate::Arrives,
                _ => self.fates[self.sent % self.fates.len()],
            };
            self.sent += 1;
            match fate {
                PacketFate::Arrives => {}
                PacketFate::Late(by) => at += Duration::from_micros(u64::from(by) * 400),
                PacketFate::Twice => self.flying.push_back((at, true, from, packet.clone())),
                PacketFate::Lost => continue,
                PacketFate::Broken(bit) => {
                    let bit = usize::from(bit) % (packet.len() * 8);
                    packet[bit / 8] ^= 1 << (bit % 8);
                }
                PacketFate::Elsewhere => from = address(3),
            }
            self.flying.push_back((at, true, from, packet));
        }
    }

    fn step(&mut self) -> bool {
        while let Some(at) = self.flying.iter().position(|(at, ..)| *at <= self.now)
            && let Some((_, to_receiver, from, mut bytes)) = self.flying.remove(at)
        {
            if to_receiver {
                self.deliver(from, &bytes);
            } else {
                let bytes = &mut bytes[..];
                let datagram = Datagram { from, local: None, meta: RecvMeta::default(), bytes };
                self.sender.handle_datagram(self.now, datagram);
            }
        }
        let now = self.now;
        for end in self.receivers.iter_mut().chain([&mut self.sender]) {
            if end.next_timeout(now).is_some_and(|at| at <= now) {
                end.handle_timeout(now);
            }
        }
        self.serve();
        let flying = self.flying.iter().map(|(at, ..)| *at).min();
        let (sender, receiver) =
            (self.sender.next_timeout(now), self.receivers[0].next_timeout(now));
        let next = [flying, sender, receiver].into_iter().flatten().min();
        self.now = next.unwrap_or(now).max(now);
        next.is_some()
    }

    fn serve(&mut self) {
        let now = self.now;
        while let Some(event) = self.sender.poll_event() {
            if let Event::Wanted(number) = event
                && number.0 <= BUFFERS
            {
                let mut buffer = Buffer::new(BUFFER_BYTES);
                buffer.space().fill(number.0 as u8);
                buffer.set_len(BUFFER_BYTES);
                self.sender.supply(now, number, buffer, number.0 == BUFFERS);
                if number.0 == BUFFERS {
                    let bytes = BUFFERS * BUFFER_BYTES as u64;
                    self.sender.end(now, End { buffers: BUFFERS, bytes, digest: [0; 32] });
                }
            }
        }
        let mut batch = Vec::new();
        while let Some(transmit) = self.sender.poll_transmit(now, &mut batch) {
            self.launch(&batch, transmit.segment);
            batch.clear();
        }
        loop {
            let [mut one, mut other] = [Vec::new(), Vec::new()];
            for (end, sent) in self.receivers.iter_mut().zip([&mut one, &mut other]) {
                while let Some(event) = end.poll_event() {
                    if let Event::Filled(number, buffer) = event {
                        assert!(buffer.filled().iter().all(|byte| *byte == number.0 as u8));
                        self.filled += 1;
                        end.offer(now, buffer);
                    }
                }
                end.poll_transmit(now, sent);
            }
            assert_eq!(one, other, "what they say differs");
            if one.is_empty() {
                return;
            }
            self.flying.push_back((now + DELAY, false, address(2), one));
        }
    }
}

/// Runs until every buffer is complete. Returns the number of predicted packets, and of all.
fn run(fates: Vec<PacketFate>) -> (u64, u64) {
    let mut world = TwoReceivers::new(fates);
    for _ in 0..20_000 {
        if world.filled == 2 * BUFFERS || !world.step() {
            break;
        }
    }
    assert_eq!(world.filled, 2 * BUFFERS, "{:?}", world.receivers[0].stats(world.now));
    (world.predicted, world.receivers[0].stats(world.now).data_packets_received)
}

#[test]
fn most_packets_of_a_clean_path_are_predicted() {
    let (predicted, all) = run(vec![PacketFate::Arrives]);
    assert!(predicted * 10 > all * 8, "{predicted} of {all}");
}

/// Every full packet is corrupted until smaller ones are probed. The first packets of the new
/// generation then end where the old first pass stopped, and the packet after them begins a burst.
#[test]
fn a_predicted_packet_never_begins_a_burst() {
    run(vec![PacketFate::Broken(48128)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn fast_and_slow_path_leave_the_same_state(fates in prop::collection::vec(fate(), 1..120)) {
        run(fates);
    }
}

#[test]
fn socket_overruns_count_from_the_first_datagram_on() {
    let config = Config { trace: true, ..Config::new(Wire::Rfc998, Role::Receiver) };
    let mut end = Endpoint::passive(config, Instant::EPOCH, [7; 32]);
    assert_eq!(end.stats(Instant::EPOCH).overrun, 0);
    for (overrun, counted) in [(u32::MAX - 1, 0), (u32::MAX, 1), (u32::MAX, 1), (3, 5)] {
        let meta = RecvMeta { overrun, ..RecvMeta::default() };
        let datagram = Datagram { from: address(1), local: None, meta, bytes: &mut [0; 40][..] };
        end.handle_datagram(Instant::EPOCH, datagram);
        assert_eq!(end.stats(Instant::EPOCH).overrun, counted);
    }
    let traced = std::iter::from_fn(|| end.poll_trace());
    let traced = traced.filter_map(|(_, event)| match event {
        TraceEvent::Overrun { datagrams } => Some(datagrams),
        _ => None,
    });
    assert_eq!(traced.collect::<Vec<_>>(), [1, 5]);
}
