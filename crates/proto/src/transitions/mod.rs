//! The transition tables of sender, receiver and handshake: every state against every input, as
//! snapshots.
//!
//! A table is made by driving the real machines; a change of behaviour shows as a changed line.
//! The drawings are in `docs/protocol §10`.

mod handshake;
mod receiver;
mod sender;

use std::fmt::Write;

use crate::api::Event;
use crate::buffer::Geometry;
use crate::codec::{Codec, DecodedPacket, OtherPacket};
use crate::crypto::cipher::Cipher;
use crate::negotiated::Negotiated;
use crate::time::Instant;
use crate::units::ControlSeq;
use crate::wire::Wire;
use crate::wire::packet::Message;

/// Three packets of ten bytes.
const PACKET: u32 = 10;
const BUFFER: u32 = 30;

fn negotiated() -> Negotiated {
    Negotiated {
        geometry: Geometry { buffer_bytes: BUFFER, packet_bytes: PACKET },
        ..Negotiated::example(Wire::Sealed)
    }
}

/// The codecs of both ends of a `sealed` connection.
fn codecs() -> (Codec, Codec) {
    let (a, b) = ([1; 32], [2; 32]);
    (Codec::sealed(1, 2, Cipher::Aes256Gcm, a, b), Codec::sealed(2, 1, Cipher::Aes256Gcm, b, a))
}

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

/// The content of a datagram, decoded by the other end.
fn describe(codec: &mut Codec, bytes: &mut [u8]) -> String {
    match codec.receive(bytes, ControlSeq(0)) {
        None => "unreadable".to_owned(),
        Some(DecodedPacket::Data { header, .. }) => {
            let kind = if header.last_of_buffer { "LDATA" } else { "DATA" };
            format!("{kind} {}.{} ack {}", header.buffer.0, header.index.0, header.ack.0)
        }
        Some(DecodedPacket::Repair { header, .. }) => {
            format!("REPAIR {}.{} of {}", header.buffer.0, header.index, header.image_bytes)
        }
        Some(DecodedPacket::Other { packet, .. }) => describe_other(&packet),
    }
}

fn describe_other(packet: &OtherPacket) -> String {
    match packet {
        OtherPacket::NullAck(n) => {
            let mut text = format!("NULL-ACK ack {}", n.ack.0);
            if let Some(through) = n.sent_through {
                let _ = write!(text, " sent through {}", through.0);
            }
            if let Some(end) = n.end {
                let _ = write!(text, " END {}", end.buffers);
            }
            text
        }
        OtherPacket::Control { end_received, messages, report, .. } => {
            let mut text = "CONTROL".to_owned();
            if *end_received {
                text.push_str(" end-received");
            }
            for (seq, message) in messages {
                let _ = write!(text, " [{}: {}]", seq.0, describe_message(message));
            }
            if report.is_some() {
                text.push_str(" REPORT");
            }
            text
        }
        OtherPacket::Keepalive(k) if k.answer_wanted => "KEEPALIVE answer wanted".to_owned(),
        OtherPacket::Keepalive(_) => "KEEPALIVE".to_owned(),
        OtherPacket::Quit(reason) => format!("QUIT {reason}"),
        OtherPacket::QuitAck => "QUITACK".to_owned(),
        OtherPacket::Branch(branch) => format!("BRANCH {}", branch.number),
        OtherPacket::Abort(reason) => format!("ABORT {reason}"),
        OtherPacket::Done => "DONE".to_owned(),
        OtherPacket::Challenge(_) => "CHALLENGE".to_owned(),
        OtherPacket::Answer(_) => "ANSWER".to_owned(),
    }
}

fn describe_message(message: &Message) -> String {
    match message {
        Message::Go(go) => format!("GO {}+{}", go.first.0, go.count),
        Message::Ok(ok) => format!("OK {}+{}", ok.first.0, ok.count),
        Message::Resend(resend) => {
            let ranges: Vec<String> = resend
                .missing
                .iter()
                .map(|r| match r.end {
                    u32::MAX => format!("{}..", r.start),
                    end => format!("{}..{end}", r.start),
                })
                .collect();
            format!("RESEND {} {}", resend.buffer.0, ranges.join(" "))
        }
        Message::Done(verdict) => format!("DONE verified={}", verdict.verified),
        Message::Have(have) => format!("HAVE {} bytes last={}", have.bytes.len(), have.last),
    }
}

fn describe_event(event: &Event) -> String {
    match event {
        Event::Wanted(n) => format!("wanted {}", n.0),
        Event::PeerHas { place, bytes, last } => {
            format!("had {place}: {} bytes last={last}", bytes.len())
        }
        Event::Released(n, _) => format!("released {}", n.0),
        Event::Filled(n, buffer) => format!("filled {} ({} bytes)", n.0, buffer.filled().len()),
        Event::Returned(_) => "returned".to_owned(),
        Event::Complete(end) => format!("complete, end {}", end.is_some()),
        Event::Finished(verdict) => {
            format!("finished, verified {:?}", verdict.as_ref().map(|v| v.verified))
        }
        Event::Opened { .. } => "opened".to_owned(),
        Event::Closed(reason) => format!("closed: {reason}"),
        Event::Silent => "silent".to_owned(),
        Event::Answering => "answering".to_owned(),
    }
}

/// One line of a table.
fn line(table: &mut String, state: &str, input: &str, next: &str, outputs: &[String]) {
    let outputs = if outputs.is_empty() { "-".to_owned() } else { outputs.join("; ") };
    let _ = writeln!(table, "{state:<11} | {input:<28} | {next:<11} | {outputs}");
}
