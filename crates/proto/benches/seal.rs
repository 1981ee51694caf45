//! What it costs to seal and to open one packet (`docs/protocol §5`), and to answer those who
//! would open a connection, or to refuse it (§4.2); and what packets of attackers cost an end.
//!
//! `cargo bench -p netblt-proto --bench seal`; the bytes a second are of packet bodies.

#[path = "instructions/attackers.rs"]
mod attackers;

use std::cell::RefCell;

use attackers::{Attack, Target};
use divan::Bencher;
use divan::counter::BytesCount;
use netblt_proto::config::{PublicKey, Secret, StaticKey};
use netblt_proto::crypto::TAG_BYTES;
use netblt_proto::crypto::aead::{Cipher, OpeningKeys, SealingKeys};
use netblt_proto::crypto::mac::{CookieGenerator, MacKey};
use netblt_proto::crypto::noise::{HandshakeAuth, Initiator, respond};
use netblt_proto::time::Instant;
use netblt_proto::units::PacketNumber;
use netblt_proto::wire::sealed;

const CIPHERS: [Cipher; 2] = [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
const BODY_BYTES: [usize; 2] = [1200, 1424];
const HEADER: [u8; 32] = [6; 32];

fn main() {
    divan::main();
}

#[divan::bench(args = CIPHERS, consts = BODY_BYTES)]
fn seal<const N: usize>(bencher: Bencher, cipher: Cipher) {
    let mut keys = SealingKeys::new(cipher, [1; 32]);
    let mut body = [7; N];
    bencher.counter(BytesCount::new(N)).bench_local(|| {
        let number = keys.next_number();
        keys.seal_in_place(number, &HEADER, &mut body)
    });
}

/// A packet opens once, so every round brings a new one, sealed while the clock stands. So many
/// rounds are timed together that the clock's own grain does not matter.
#[divan::bench(args = CIPHERS, consts = BODY_BYTES, sample_size = 64)]
fn open<const N: usize>(bencher: Bencher, cipher: Cipher) {
    let mut sealing = SealingKeys::new(cipher, [1; 32]);
    let mut opening = OpeningKeys::new(cipher, [1; 32]);
    let mut out = [0; N];
    bencher.counter(BytesCount::new(N)).with_inputs(|| sealed::<N>(&mut sealing)).bench_local_refs(
        |(number, packet)| {
            opening.open_into(*number, &HEADER, packet, &mut out).expect("it is authentic")
        },
    );
}

fn sealed<const N: usize>(keys: &mut SealingKeys) -> (PacketNumber, Vec<u8>) {
    let mut packet = vec![7; N + TAG_BYTES];
    let number = keys.next_number();
    let (body, tag) = packet.split_at_mut(N);
    tag.copy_from_slice(&keys.seal_in_place(number, &HEADER, body));
    (number, packet)
}

/// A host's handshake for an OPEN that is true: by a ticket's secret, and by static keys.
#[divan::bench(args = [false, true])]
fn answer_an_open(bencher: Bencher, by_keys: bool) {
    let [client, server] = [1, 2].map(|byte| StaticKey::from_bytes([byte; 32]));
    let secret = Secret([3; 32]);
    let means = |own, peer: PublicKey| match by_keys {
        true => HandshakeAuth::Keys { own, peer },
        false => HandshakeAuth::Secret(&secret),
    };
    let (_, message) = Initiator::start(means(&client, server.public()), b"x", [4; 32], &[5; 80])
        .expect("a short payload");
    let theirs = means(&server, client.public());
    bencher.bench_local(|| {
        let (_, responder) = respond(theirs, b"x", [6; 32], &message).expect("it is authentic");
        responder.finish(&[7; 96]).expect("a short payload")
    });
}

/// What a forged OPEN costs: the MAC over it.
#[divan::bench]
fn refuse_an_open(bencher: Bencher) {
    let key = MacKey::from_secret(&Secret([3; 32]));
    let open = [7; sealed::OPEN_BYTES - 48];
    bencher.bench_local(|| assert!(!key.verify(&[&open], &[0; 16])));
}

/// A cookie made, or looked at.
#[divan::bench]
fn bake_a_cookie(bencher: Bencher) {
    let jar = CookieGenerator::new([8; 32]);
    let (now, from) = (Instant::from_nanos(1), ([192, 0, 2, 1], 9).into());
    bencher.bench_local(|| jar.cookie(now, from, 1, 2));
}

/// A packet of an attacker that has no secret, or only recorded packets, and what it draws.
#[divan::bench(
    args = [Attack::Noise, Attack::WrongOpen, Attack::SameOpen, Attack::TrueOpen,
            Attack::UnknownData, Attack::ForgedData, Attack::ReplayedData],
    sample_size = 1,
    sample_count = 1000,
)]
fn attacked(bencher: Bencher, attack: Attack) {
    let target = RefCell::new(Target::new(attack));
    bencher
        .with_inputs(|| target.borrow_mut().next())
        .bench_local_values(|mut bytes| target.borrow_mut().hit(&mut bytes));
}
