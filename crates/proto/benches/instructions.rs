//! What a packet costs in instructions and allocations, which no noise reaches: under a fixed seed,
//! counted by callgrind.
//!
//! `cargo bench -p netblt-proto --bench instructions [-- NAME]`. It starts itself under valgrind,
//! once a case; without valgrind it says so and measures nothing. Cryptography is that of the
//! processor that valgrind plays (AES-NI, no AVX-512), so what it costs here is more than in truth;
//! the machines' own part is their figure less `seal` or `open` of as many bytes.

#![expect(clippy::unwrap_used, reason = "what cannot go on stops")]

#[path = "instructions/attackers.rs"]
mod attackers;
#[path = "instructions/counting.rs"]
mod counting;
#[path = "instructions/machines.rs"]
mod machines;

use std::env;

use netblt_proto::crypto::TAG_BYTES;
use netblt_proto::crypto::aead::{Cipher, OpeningKeys, SealingKeys};
use netblt_proto::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use netblt_proto::wire::packet::{DataHeader, Go, IndexRange, Message, Report, Resend};
use netblt_proto::wire::sealed::{
    ControlWriter, encode_data_header, parse_control, parse_data_header,
};

use attackers::{Attack, Target};
use counting::{Case, measured};
use machines::{Side, machine};

/// Data bytes of a packet on a path of 1,500 bytes.
const BODY_BYTES: usize = 1424;
/// Packets, or what else is counted, in a case.
const ROUNDS: u64 = 20_000;
/// Packets of an attack.
const ATTACKS: u64 = 500;

const CASES: [Case; 21] = [
    Case { name: "wire: DATA header out", run: header_out },
    Case { name: "wire: DATA header in", run: header_in },
    Case { name: "wire: control packet out", run: control_out },
    Case { name: "wire: control packet in", run: control_in },
    Case { name: "crypto: seal, AES-256-GCM", run: || seal(Cipher::Aes256Gcm) },
    Case { name: "crypto: open, AES-256-GCM", run: || open(Cipher::Aes256Gcm) },
    Case { name: "crypto: seal, ChaCha20-Poly1305", run: || seal(Cipher::ChaCha20Poly1305) },
    Case { name: "crypto: open, ChaCha20-Poly1305", run: || open(Cipher::ChaCha20Poly1305) },
    Case { name: "sender", run: || machine(Side::Sender, 1472, 0) },
    Case { name: "receiver", run: || machine(Side::Receiver, 1472, 0) },
    Case { name: "sender, loss 1 %", run: || machine(Side::Sender, 1472, 100) },
    Case { name: "receiver, loss 1 %", run: || machine(Side::Receiver, 1472, 100) },
    Case { name: "sender, packets of 16 KiB", run: || machine(Side::Sender, 16_356, 0) },
    Case { name: "receiver, packets of 16 KiB", run: || machine(Side::Receiver, 16_356, 0) },
    Case { name: "attack: noise", run: || attacked(Attack::Noise) },
    Case { name: "attack: OPEN, wrong MAC", run: || attacked(Attack::WrongOpen) },
    Case { name: "attack: OPEN, the same again", run: || attacked(Attack::SameOpen) },
    Case { name: "attack: OPEN, true", run: || attacked(Attack::TrueOpen) },
    Case { name: "attack: DATA, unknown", run: || attacked(Attack::UnknownData) },
    Case { name: "attack: DATA, forged", run: || attacked(Attack::ForgedData) },
    Case { name: "attack: DATA, replayed", run: || attacked(Attack::ReplayedData) },
];

fn main() {
    let words: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.as_slice() {
        [flag, name] if flag == counting::INSIDE => counting::inside(&CASES, name),
        names => counting::outside(&CASES, names),
    }
}

fn attacked(attack: Attack) -> u64 {
    let mut target = Target::new(attack);
    for _ in 0..ATTACKS {
        let mut bytes = target.next();
        measured(|| target.hit(&mut bytes));
    }
    ATTACKS
}

fn data_header(number: u64) -> DataHeader {
    DataHeader {
        number: PacketNumber(number),
        buffer: BufferNumber(1 + number / 736),
        index: PacketIndex((number % 736) as u32),
        generation: 0,
        law: 0,
        last_of_buffer: false,
        last_buffer: false,
        ack: ControlSeq(7),
    }
}

fn header_out() -> u64 {
    let mut sum = 0;
    for number in 0..ROUNDS {
        sum += measured(|| u64::from(encode_data_header(9, &data_header(number))[15]));
    }
    std::hint::black_box(sum);
    ROUNDS
}

fn header_in() -> u64 {
    for number in 0..ROUNDS {
        let bytes = encode_data_header(9, &data_header(number));
        let read = measured(|| parse_data_header(std::hint::black_box(&bytes)));
        assert_eq!(read.unwrap().1.number.0, number);
    }
    ROUNDS
}

/// A report, a GO and a RESEND of four ranges.
fn control(number: u32) -> (Report, [Message; 2]) {
    let report = Report {
        at_micros: number,
        packets: number.into(),
        bytes: u64::from(number) * 1472,
        highest: PacketNumber(number.into()),
        highest_age_micros: 9,
        marked: 0,
        missing: 4,
        largest: 1472,
    };
    let range = |start| IndexRange { start, end: start + 2 };
    let missing = [3, 9, 27, 81].map(range).to_vec();
    let go = Go { first: BufferNumber(65), count: 1, packet_bytes: 1424, generation: 0 };
    (report, [Message::Go(go), Message::Resend(Resend { buffer: BufferNumber(3), missing })])
}

fn control_out() -> u64 {
    let mut out = Vec::with_capacity(1472);
    for number in 0..ROUNDS as u32 {
        let (report, messages) = control(number);
        out.clear();
        measured(|| write_control(&mut out, &report, &messages));
    }
    ROUNDS
}

fn write_control(out: &mut Vec<u8>, report: &Report, messages: &[Message]) {
    let mut writer = ControlWriter::new(out, false, 1400);
    writer.push_report(report);
    for (seq, message) in (1..).zip(messages) {
        assert!(writer.push_message(ControlSeq(seq), message));
    }
}

fn control_in() -> u64 {
    let mut out = Vec::new();
    for number in 0..ROUNDS as u32 {
        let (report, messages) = control(number);
        out.clear();
        write_control(&mut out, &report, &messages);
        let read = measured(|| parse_control(&out));
        assert_eq!(read.unwrap().messages.len(), 2);
    }
    ROUNDS
}

fn seal(cipher: Cipher) -> u64 {
    let mut keys = SealingKeys::new(cipher, [1; 32]);
    let mut body = [7; BODY_BYTES];
    for _ in 0..ROUNDS {
        measured(|| {
            let number = keys.next_number();
            keys.seal_in_place(number, &[6; 32], &mut body)
        });
    }
    ROUNDS
}

fn open(cipher: Cipher) -> u64 {
    let mut sealing = SealingKeys::new(cipher, [1; 32]);
    let mut opening = OpeningKeys::new(cipher, [1; 32]);
    let (mut packet, mut out) = ([7; BODY_BYTES + TAG_BYTES], [0; BODY_BYTES]);
    for _ in 0..ROUNDS {
        let number = sealing.next_number();
        let (body, tag) = packet.split_at_mut(BODY_BYTES);
        tag.copy_from_slice(&sealing.seal_in_place(number, &[6; 32], body));
        measured(|| opening.open_into(number, &[6; 32], &packet, &mut out)).unwrap();
    }
    ROUNDS
}
