//! What it costs to seal and to open one packet (`docs/protocol.md §5`).
//!
//! `cargo bench -p netblt-proto --bench seal`; the bytes a second are of packet bodies.

use divan::Bencher;
use divan::counter::BytesCount;
use netblt_proto::crypto::TAG_BYTES;
use netblt_proto::crypto::aead::{Cipher, OpeningKeys, SealingKeys};
use netblt_proto::units::PacketNumber;

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
