//! The sender's transition table: buffer 1 in every state, and every input.

use std::time::Duration;

use super::*;
use crate::buffer::Buffer;
use crate::negotiated::PacketOutcome;
use crate::rate::fixed::Fixed;
use crate::rate::{Law, Ways};
use crate::sender::Sender;
use crate::units::BufferNumber;
use crate::wire::packet::Burst;
use crate::wire::packet::{Accepted, End, Go, IndexRange, Report, Resend, Verdict};

struct SenderUnderTest {
    sender: Sender,
    own: Codec,
    peer: Codec,
    now: Instant,
    seq: u32,
}

const STATES: [&str; 7] =
    ["None", "GRANTED", "SENDING", "SENT", "ACCEPTED", "DALLYING", "FINISHED"];
const INPUTS: [&str; 17] = [
    "GO 1",
    "GO 1 renewed",
    "GO 900, not agreed",
    "supply 1",
    "supply 2, not wanted",
    "RESEND 1 0..",
    "RESEND 77, no GO",
    "OK 1",
    "OK 9, never sent",
    "an old message again",
    "end after 1 buffer",
    "END received",
    "REPORT",
    "DONE verified",
    "DONE not verified",
    "DONE packet",
    "dally over",
];

impl SenderUnderTest {
    fn in_state(state: &str) -> Self {
        let (own, peer) = codecs();
        let burst = Burst { packets: 1, interval: Duration::from_millis(1) };
        let rate =
            Law { control: Box::new(Fixed::new(burst, 1260)), learns: false, ways: Ways::OURS };
        let sender = Sender::new(ms(1000), negotiated(), rate, 28);
        let mut bench = Self { sender, own, peer, now: ms(1000), seq: 0 };
        let path: &[&str] = match state {
            "None" => &[],
            "GRANTED" => &["GO 1"],
            "SENDING" => &["GO 1", "supply 1"],
            "SENT" => &["GO 1", "supply 1", "send all"],
            "ACCEPTED" => &["GO 1", "supply 1", "send all", "OK 1"],
            "DALLYING" => {
                &["GO 1", "supply 1", "send all", "OK 1", "end after 1 buffer", "DONE verified"]
            }
            _ => &[
                "GO 1",
                "supply 1",
                "send all",
                "OK 1",
                "end after 1 buffer",
                "DONE verified",
                "DONE packet",
            ],
        };
        for input in path {
            bench.apply(input);
            match *input {
                "supply 1" => drop(bench.outputs(1)),
                "GO 1" => bench.sender.events_mut().clear(),
                _ => drop(bench.outputs(20)),
            }
        }
        bench
    }

    fn state(&self) -> &'static str {
        if self.sender.is_finished() {
            return "FINISHED";
        }
        if self.sender.is_settled() {
            return "DALLYING";
        }
        self.sender.buffer_state(BufferNumber(1))
    }

    fn say(&mut self, message: Message) -> PacketOutcome {
        self.seq += 1;
        self.sender.handle_control(self.now, false, vec![(ControlSeq(self.seq), message)])
    }

    fn go(first: u64, generation: u8) -> Message {
        Message::Go(Go { first: BufferNumber(first), count: 1, packet_bytes: PACKET, generation })
    }

    fn ok(first: u64) -> Message {
        let control_timer = Duration::from_millis(50);
        Message::Ok(Accepted { first: BufferNumber(first), count: 1, offer: None, control_timer })
    }

    fn resend(buffer: u64) -> Message {
        let missing = vec![IndexRange { start: 0, end: u32::MAX }];
        Message::Resend(Resend { buffer: BufferNumber(buffer), missing })
    }

    fn done(verified: bool) -> Message {
        Message::Done(Verdict { verified, bytes: 30, digest: [0; 32], reason: String::new() })
    }

    fn supply(&mut self, number: u64) {
        let mut buffer = Buffer::new(BUFFER as usize);
        buffer.set_len(BUFFER as usize);
        self.sender.supply(self.now, BufferNumber(number), buffer, false);
    }

    fn apply(&mut self, input: &str) -> Vec<String> {
        let taken = match input {
            "GO 1" => self.say(Self::go(1, 0)),
            "GO 1 renewed" => self.say(Self::go(1, 1)),
            "GO 900, not agreed" => self.say(Self::go(900, 0)),
            "RESEND 1 0.." => self.say(Self::resend(1)),
            "RESEND 77, no GO" => self.say(Self::resend(77)),
            "OK 1" => self.say(Self::ok(1)),
            "OK 9, never sent" => self.say(Self::ok(9)),
            "DONE verified" => self.say(Self::done(true)),
            "DONE not verified" => self.say(Self::done(false)),
            "DONE packet" => self.sender.handle_done_packet(),
            "an old message again" => {
                let seq = ControlSeq(self.seq.max(1));
                self.sender.handle_control(self.now, false, vec![(seq, Self::go(1, 0))])
            }
            "REPORT" => self.sender.handle_report(self.now, &Report::default()),
            "END received" => self.sender.handle_control(self.now, true, Vec::new()),
            other => {
                self.apply_other(other);
                PacketOutcome::Authentic
            }
        };
        match taken {
            PacketOutcome::Authentic => Vec::new(),
            PacketOutcome::Dropped => vec!["dropped".to_owned()],
            PacketOutcome::Violation(what) => vec![format!("violation: {what}")],
        }
    }

    fn apply_other(&mut self, input: &str) {
        match input {
            "supply 1" => self.supply(1),
            "supply 2, not wanted" => self.supply(2),
            "end after 1 buffer" => {
                self.sender.end(self.now, End { buffers: 1, bytes: 30, digest: [0; 32] });
            }
            "dally over" => {
                self.now += Duration::from_secs(4);
                self.sender.handle_timeout(self.now);
            }
            _ => {}
        }
    }

    fn outputs(&mut self, turns: u32) -> Vec<String> {
        let mut outputs: Vec<String> =
            self.sender.events_mut().drain(..).map(|e| describe_event(&e)).collect();
        for _ in 0..turns {
            let mut out = Vec::new();
            if self.sender.poll_transmit(self.now, &mut self.own, &mut out).is_some() {
                outputs.push(describe(&mut self.peer, &mut out));
            }
            self.now += Duration::from_millis(1);
        }
        outputs
    }
}

#[test]
fn every_state_against_every_input() {
    let mut table = String::new();
    for state in STATES {
        for input in INPUTS {
            let mut bench = SenderUnderTest::in_state(state);
            assert_eq!(bench.state(), state, "the path to it");
            let mut outputs = bench.apply(input);
            let next = bench.state();
            outputs.extend(bench.outputs(4));
            line(&mut table, state, input, next, &outputs);
        }
    }
    insta::assert_snapshot!("sender", table);
}
