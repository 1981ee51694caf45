//! The receiver's transition table: buffer 1 in every state, and every input.

use std::time::Duration;

use super::*;
use crate::api::RecvMeta;
use crate::buffer::Buffer;
use crate::loss_detection::{self, LossDetection};
use crate::negotiated::PacketOutcome;
use crate::receiver::{Receiver, ReceiverPhase, ReceivingState};
use crate::units::{BufferNumber, PacketIndex, PacketNumber};
use crate::wire::packet::{DataHeader, End, NullAck, Verdict};

struct ReceiverUnderTest {
    receiver: Receiver,
    own: Codec,
    peer: Codec,
    now: Instant,
    /// DATA 1.0 as it was sent, to send it again.
    first: Vec<u8>,
}

const STATES: [&str; 8] =
    ["None", "ACK-WAIT", "ACKED", "RECEIVING", "RECEIVED", "COMPLETE", "JUDGED", "FINISHED"];
const INPUTS: [&str; 16] = [
    "offer",
    "acknowledgement",
    "DATA 1.0",
    "DATA 1.0, the same again",
    "DATA 1.1",
    "LDATA 1.2",
    "DATA 9.0 without GO",
    "DATA 1.7 past the buffer",
    "DATA 1.1 forged",
    "drained through 1",
    "END of 1 buffer",
    "END of 0 buffers",
    "control timer",
    "quiet",
    "verdict",
    "DONE acknowledged",
];

impl ReceiverUnderTest {
    fn new() -> Self {
        let (own, peer) = codecs();
        let receiver = Receiver::new(negotiated(), loss_detection::build(LossDetection::EarlyGaps));
        Self { receiver, own, peer, now: ms(1000), first: Vec::new() }
    }

    fn in_state(state: &str) -> Self {
        let mut bench = Self::new();
        let path: &[&str] = match state {
            "None" => &[],
            "ACK-WAIT" => &["offer"],
            "ACKED" => &["offer", "acknowledgement"],
            "RECEIVING" => &["offer", "acknowledgement", "DATA 1.0"],
            "RECEIVED" => &["offer", "acknowledgement", "DATA 1.0", "DATA 1.1", "LDATA 1.2"],
            "COMPLETE" => &[
                "offer",
                "acknowledgement",
                "DATA 1.0",
                "DATA 1.1",
                "LDATA 1.2",
                "END of 1 buffer",
            ],
            "JUDGED" => &[
                "offer",
                "acknowledgement",
                "DATA 1.0",
                "DATA 1.1",
                "LDATA 1.2",
                "END of 1 buffer",
                "verdict",
            ],
            _ => &[
                "offer",
                "acknowledgement",
                "DATA 1.0",
                "DATA 1.1",
                "LDATA 1.2",
                "END of 1 buffer",
                "verdict",
                "DONE acknowledged",
            ],
        };
        for input in path {
            bench.apply(input);
            bench.outputs();
        }
        bench
    }

    fn state(&self) -> &'static str {
        match self.receiver.phase() {
            ReceiverPhase::Finished => "FINISHED",
            ReceiverPhase::Decided => "JUDGED",
            ReceiverPhase::Complete => "COMPLETE",
            ReceiverPhase::Receiving => match self.receiver.buffer_state(BufferNumber(1)) {
                None => "None",
                Some(ReceivingState::AckWait) => "ACK-WAIT",
                Some(ReceivingState::Acked) => "ACKED",
                Some(ReceivingState::Receiving) => "RECEIVING",
                Some(ReceivingState::Received) => "RECEIVED",
            },
        }
    }

    fn data(&mut self, buffer: u64, index: u32, last: bool, ack: u32) -> Vec<u8> {
        let header = DataHeader {
            number: PacketNumber(0),
            buffer: BufferNumber(buffer),
            index: PacketIndex(index),
            generation: 0,
            law: 0,
            last_of_buffer: last,
            last_buffer: false,
            ack: ControlSeq(ack),
        };
        let mut out = Vec::new();
        self.peer.put_data(&mut out, &header, &[5; PACKET as usize]);
        out
    }

    fn take_data(&mut self, mut bytes: Vec<u8>) -> Option<PacketOutcome> {
        let received = self.own.receive(&mut bytes, ControlSeq(0));
        let Some(DecodedPacket::Data { header, raw }) = received else { return None };
        let raw = raw.to_vec();
        Some(self.receiver.handle_data(self.now, &header, &raw, RecvMeta::default(), &mut self.own))
    }

    fn null_ack(&mut self, ack: u32, through: Option<u64>, end: Option<u64>) -> PacketOutcome {
        let null_ack = NullAck {
            number: PacketNumber(0),
            ack: ControlSeq(ack),
            burst: negotiated().burst,
            sent_through: through.map(BufferNumber),
            end: end.map(|buffers| End { buffers, bytes: 30, digest: [0; 32] }),
            packet_bytes: 0,
            limit: 0,
            back_millis: 0,
            paused: false,
        };
        self.receiver.handle_null_ack(self.now, &null_ack)
    }

    fn apply(&mut self, input: &str) -> Vec<String> {
        let taken = match input {
            "offer" => {
                self.receiver.offer(self.now, Buffer::new(BUFFER as usize));
                None
            }
            "acknowledgement" => Some(self.null_ack(1, None, None)),
            "DATA 1.0" => {
                self.first = self.data(1, 0, false, 0);
                self.take_data(self.first.clone())
            }
            "DATA 1.0, the same again" => {
                let again = if self.first.is_empty() {
                    self.data(1, 0, false, 0)
                } else {
                    self.first.clone()
                };
                self.take_data(again.clone());
                self.take_data(again).or(Some(PacketOutcome::Dropped))
            }
            "DATA 1.1" => {
                let d = self.data(1, 1, false, 1);
                self.take_data(d)
            }
            "LDATA 1.2" => {
                let d = self.data(1, 2, true, 1);
                self.take_data(d)
            }
            "DATA 9.0 without GO" => {
                let d = self.data(9, 0, false, 0);
                self.take_data(d)
            }
            "DATA 1.7 past the buffer" => {
                let d = self.data(1, 7, false, 0);
                self.take_data(d)
            }
            "DATA 1.1 forged" => {
                let mut d = self.data(1, 1, false, 0);
                d[40] ^= 1;
                self.take_data(d)
            }
            "drained through 1" => Some(self.null_ack(1, Some(1), None)),
            "END of 1 buffer" => Some(self.null_ack(0, None, Some(1))),
            "END of 0 buffers" => Some(self.null_ack(0, None, Some(0))),
            "control timer" => {
                self.now += self.receiver.control_timer() * 2;
                self.receiver.handle_timeout(self.now);
                None
            }
            "quiet" => {
                self.now += Duration::from_secs(30);
                self.receiver.handle_timeout(self.now);
                self.receiver.handle_timeout(self.now);
                None
            }
            "verdict" => {
                self.receiver.set_verdict(verified());
                None
            }
            _ => {
                // The last message there is, whatever its number.
                for seq in 1..9 {
                    self.null_ack(seq, None, None);
                }
                None
            }
        };
        match taken {
            None | Some(PacketOutcome::Authentic) => Vec::new(),
            Some(PacketOutcome::Dropped) => vec!["dropped".to_owned()],
            Some(PacketOutcome::Violation(what)) => vec![format!("violation: {what}")],
        }
    }

    fn outputs(&mut self) -> Vec<String> {
        let mut outputs: Vec<String> =
            self.receiver.events.drain(..).map(|e| describe_event(&e)).collect();
        for _ in 0..4 {
            let mut out = Vec::new();
            if self.receiver.poll_transmit(self.now, &mut self.own, &mut out) {
                outputs.push(describe(&mut self.peer, &mut out));
            }
            self.now += Duration::from_millis(6);
        }
        outputs
    }
}

fn verified() -> Verdict {
    Verdict { verified: true, bytes: 30, digest: [0; 32], reason: String::new() }
}

#[test]
fn every_state_against_every_input() {
    let mut table = String::new();
    for state in STATES {
        for input in INPUTS {
            let mut bench = ReceiverUnderTest::in_state(state);
            assert_eq!(bench.state(), state, "the path to it");
            let mut outputs = bench.apply(input);
            outputs.extend(bench.outputs());
            line(&mut table, state, input, bench.state(), &outputs);
        }
    }
    insta::assert_snapshot!("receiver", table);
}
