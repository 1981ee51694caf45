//! Tests of sealing and opening: both sides of an epoch's border, forgeries, replays.

use proptest::prelude::*;

use super::super::epoch::EPOCH_SHIFT;
use super::super::replay::WINDOW_NUMBERS;
use super::*;

const BORDER: u64 = 1 << EPOCH_SHIFT;
const CIPHERS: [Cipher; 2] = [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];

/// A packet as it would cross the wire.
#[derive(Clone, Debug)]
struct Packet {
    number: PacketNumber,
    header: Vec<u8>,
    sealed: Vec<u8>,
}

impl Packet {
    fn open(&self, keys: &mut OpeningKeys) -> Result<Vec<u8>, OpenError> {
        let mut out = vec![0; self.sealed.len() - TAG_BYTES];
        let n = keys.open_into(self.number, &self.header, &self.sealed, &mut out)?;
        assert_eq!(n, out.len());
        Ok(out)
    }

    fn open_in_place(&self, keys: &mut OpeningKeys) -> Result<Vec<u8>, OpenError> {
        let mut sealed = self.sealed.clone();
        keys.open_in_place(self.number, &self.header, &mut sealed).map(<[u8]>::to_vec)
    }
}

fn pair(cipher: Cipher) -> (SealingKeys, OpeningKeys) {
    (SealingKeys::new(cipher, [42; 32]), OpeningKeys::new(cipher, [42; 32]))
}

fn seal(keys: &SealingKeys, number: PacketNumber, body: &[u8]) -> Packet {
    let header = [&[0, 0, 6, 6][..], &number.0.to_be_bytes()].concat();
    let mut sealed = body.to_vec();
    let tag = keys.seal_in_place(number, &header, &mut sealed);
    sealed.extend_from_slice(&tag);
    Packet { number, header, sealed }
}

/// The same from one place into another.
fn seal_into(keys: &SealingKeys, number: PacketNumber, body: &[u8]) -> Packet {
    let header = [&[0, 0, 6, 6][..], &number.0.to_be_bytes()].concat();
    let mut sealed = vec![1; body.len() + TAG_BYTES];
    keys.seal_into(number, &header, body, &mut sealed);
    Packet { number, header, sealed }
}

fn seal_next(keys: &mut SealingKeys, body: &[u8]) -> Packet {
    let number = keys.next_number();
    seal(keys, number, body)
}

/// Hands out numbers, as if for packets that got lost, until `number` is the next.
fn skip_to(keys: &mut SealingKeys, number: u64) {
    while keys.next < number {
        // Only the numbers that matter are really drawn: the last one and each epoch's first.
        keys.next = number.min((keys.epoch + 1) << EPOCH_SHIFT) - 1;
        keys.next_number();
        if keys.next < number {
            keys.next_number();
        }
    }
    assert_eq!(keys.next, number);
}

/// All that an opening may change.
fn state(keys: &OpeningKeys) -> (u64, bool, [u8; 32], ReplayWindow) {
    (keys.epoch, keys.previous.is_some(), keys.chain.secret(), keys.window.clone())
}

#[test]
fn sealing_in_place_and_into_a_slot_give_the_same_bytes() {
    for cipher in CIPHERS {
        let (mut keys, _) = pair(cipher);
        for len in [0, 1, 15, 16, 17, 1424, 16_308] {
            let body: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            let number = keys.next_number();
            let (there, here) = (seal_into(&keys, number, &body), seal(&keys, number, &body));
            assert_eq!(there.sealed, here.sealed, "{cipher:?}, {len} bytes");
        }
    }
}

#[test]
fn a_failed_seal_leaves_no_plaintext() {
    let (mut keys, _) = pair(Cipher::Aes256Gcm);
    let number = keys.next_number();
    let unknown = seal_into(&keys, PacketNumber(9), b"not handed out");
    assert_eq!(unknown.sealed, [0; 14 + TAG_BYTES]);
    for room in [0, 3, 3 + TAG_BYTES - 1, 3 + TAG_BYTES + 1] {
        let mut out = vec![7; room];
        keys.seal_into(number, b"", b"abc", &mut out);
        assert_eq!(out, vec![0; room]);
    }
}

#[test]
fn a_sealed_packet_opens_in_place_and_into_a_slot() {
    for cipher in CIPHERS {
        let (mut sealing, mut opening) = pair(cipher);
        for body in [&b""[..], b"x", &[7; 1424]] {
            let packet = seal_next(&mut sealing, body);
            assert_eq!(packet.open(&mut opening).unwrap(), body);
            let packet = seal_next(&mut sealing, body);
            assert_eq!(packet.open_in_place(&mut opening).unwrap(), body);
        }
    }
}

#[test]
fn numbers_start_at_zero_and_never_repeat() {
    let mut sealing = pair(Cipher::Aes256Gcm).0;
    for expected in 0..1000 {
        assert_eq!(sealing.next_number(), PacketNumber(expected));
    }
}

#[test]
fn a_number_that_was_not_handed_out_seals_nothing_and_leaks_nothing() {
    let mut sealing = pair(Cipher::Aes256Gcm).0;
    skip_to(&mut sealing, 2 * BORDER + 1);
    for number in [5, 2 * BORDER + 1, u64::MAX] {
        let packet = seal(&sealing, PacketNumber(number), b"in clear");
        assert_eq!(packet.sealed, [0; 8 + TAG_BYTES]);
    }
}

#[test]
fn the_end_of_the_numbers_repeats_no_nonce() {
    let mut sealing = pair(Cipher::Aes256Gcm).0;
    sealing.epoch = epoch_of(u64::MAX);
    sealing.next = u64::MAX - 1;
    let last = sealing.next_number();
    assert_ne!(seal(&sealing, last, b"last").sealed[..4], [0; 4]);
    for _ in 0..2 {
        let number = sealing.next_number();
        assert_eq!(seal(&sealing, number, b"none").sealed, [0; 4 + TAG_BYTES]);
    }
}

#[test]
fn packets_are_opened_once() {
    let (mut sealing, mut opening) = pair(Cipher::Aes256Gcm);
    let packet = seal_next(&mut sealing, b"once");
    assert!(!opening.is_replay(packet.number));
    packet.open(&mut opening).unwrap();
    assert!(opening.is_replay(packet.number));
    assert_eq!(packet.open(&mut opening), Err(OpenError::Replayed));
    assert_eq!(packet.open_in_place(&mut opening), Err(OpenError::Replayed));
}

#[test]
fn a_packet_below_the_window_is_too_old() {
    let (mut sealing, mut opening) = pair(Cipher::Aes256Gcm);
    let late = seal_next(&mut sealing, b"late");
    skip_to(&mut sealing, WINDOW_NUMBERS);
    seal_next(&mut sealing, b"far").open(&mut opening).unwrap();
    assert_eq!(late.open(&mut opening), Err(OpenError::TooOld));
}

#[test]
fn an_epoch_is_entered_in_order() {
    for cipher in CIPHERS {
        let (mut sealing, mut opening) = pair(cipher);
        for epoch in 1..5 {
            skip_to(&mut sealing, (epoch << EPOCH_SHIFT) - 3);
            for _ in 0..6 {
                seal_next(&mut sealing, b"border").open(&mut opening).unwrap();
            }
            assert_eq!((sealing.epoch, opening.epoch), (epoch, epoch));
        }
    }
}

#[test]
fn packets_reordered_across_the_border_open() {
    let (mut sealing, mut opening) = pair(Cipher::Aes256Gcm);
    skip_to(&mut sealing, BORDER - 3);
    let packets: Vec<_> = (0..6).map(|_| seal_next(&mut sealing, b"border")).collect();
    for i in [3, 0, 5, 2, 1, 4] {
        packets[i].open(&mut opening).unwrap();
    }
    assert_eq!(opening.epoch, 1);
    for packet in &packets {
        assert_eq!(packet.open(&mut opening), Err(OpenError::Replayed));
    }
}

#[test]
fn numbers_of_the_previous_epoch_are_sealed_after_its_end() {
    let (mut sealing, mut opening) = pair(Cipher::Aes256Gcm);
    skip_to(&mut sealing, BORDER - 1);
    let (last, first) = (sealing.next_number(), sealing.next_number());
    for number in [first, last] {
        seal(&sealing, number, b"border").open(&mut opening).unwrap();
    }
}

#[test]
fn an_epoch_after_the_next_is_unknown_until_the_next_is_entered() {
    let (mut sealing, mut opening) = pair(Cipher::Aes256Gcm);
    skip_to(&mut sealing, BORDER);
    let one = seal_next(&mut sealing, b"one");
    skip_to(&mut sealing, 2 * BORDER);
    let two = seal_next(&mut sealing, b"two");

    let before = state(&opening);
    assert_eq!(two.open(&mut opening), Err(OpenError::UnknownEpoch));
    assert_eq!(two.open_in_place(&mut opening), Err(OpenError::UnknownEpoch));
    assert_eq!(state(&opening), before);

    one.open(&mut opening).unwrap();
    two.open(&mut opening).unwrap();
}

#[test]
fn one_number_seals_to_different_bytes_under_each_epochs_key() {
    let mut chain = KeyChain::new(Cipher::Aes256Gcm, [42; 32]);
    let mut seal = || {
        let mut body = [0; 32];
        (chain.next_epoch().seal(0, b"", &mut body), body)
    };
    let (first, second) = (seal(), seal());
    assert_ne!(first.1, second.1);
    assert_ne!(first.0, second.0);
}

#[test]
fn a_slot_of_the_wrong_length_is_left_unchanged() {
    let (mut sealing, mut opening) = pair(Cipher::Aes256Gcm);
    let packet = seal_next(&mut sealing, b"four");
    for len in [0, 3, 5, 20] {
        let mut out = vec![0xaa; len];
        let opened = opening.open_into(packet.number, &packet.header, &packet.sealed, &mut out);
        assert_eq!(opened, Err(OpenError::Forged));
        assert_eq!(out, vec![0xaa; len]);
    }
    packet.open(&mut opening).unwrap();
}

#[test]
fn ciphers_are_chosen_by_what_both_ends_have() {
    use Cipher::{Aes256Gcm as Aes, ChaCha20Poly1305 as ChaCha};
    let table = [
        (Aes.offer(), Aes, Some(Aes)),
        (Aes.offer(), ChaCha, Some(ChaCha)),
        (ChaCha.offer(), Aes, Some(ChaCha)),
        (ChaCha.offer(), ChaCha, Some(ChaCha)),
        (1, ChaCha, Some(Aes)),
        (0xfe, Aes, Some(ChaCha)),
        (0xfc, Aes, None),
        (0, Aes, None),
    ];
    for (offered, mine, chosen) in table {
        assert_eq!(Cipher::choose(offered, mine), chosen, "{offered:#x} {mine:?}");
    }
    for bits in 0..=u8::MAX {
        assert!(Cipher::from_bit(bits).is_none_or(|cipher| cipher.bit() == bits));
    }
}

#[test]
fn debug_output_shows_no_secret() {
    let (sealing, opening) = pair(Cipher::Aes256Gcm);
    assert_eq!(format!("{sealing:?}"), "SealingKeys(Aes256Gcm, next 0)");
    assert_eq!(format!("{opening:?}"), "OpeningKeys(Aes256Gcm, epoch 0, None)");
}

/// Where an attacker may say that a packet stands: near, far, across the border, at the end.
fn claimed_number() -> impl Strategy<Value = u64> {
    prop_oneof![0..3 * BORDER, BORDER - 9..BORDER + 9, any::<u64>()]
}

proptest! {
    #[test]
    fn any_corrupted_packet_is_forged_and_changes_nothing(
        chacha in any::<bool>(),
        start in prop_oneof![Just(0), BORDER - 40..BORDER + 40, Just(2 * BORDER)],
        body in prop::collection::vec(any::<u8>(), 0..100),
        at in any::<prop::sample::Index>(),
        flip in 1..=u8::MAX,
        in_place in any::<bool>(),
    ) {
        let (mut sealing, mut opening) = pair(CIPHERS[usize::from(chacha)]);
        for epoch in 1..=epoch_of(start) {
            skip_to(&mut sealing, epoch << EPOCH_SHIFT);
            seal_next(&mut sealing, b"").open(&mut opening).unwrap();
        }
        let start = start.max(sealing.next);
        skip_to(&mut sealing, start);
        let packet = seal_next(&mut sealing, &body);
        let mut forged = packet.clone();
        let at = at.index(packet.header.len() + packet.sealed.len());
        match at.checked_sub(packet.header.len()) {
            None => forged.header[at] ^= flip,
            Some(at) => forged.sealed[at] ^= flip,
        }

        let before = state(&opening);
        let opened =
            if in_place { forged.open_in_place(&mut opening) } else { forged.open(&mut opening) };
        prop_assert_eq!(opened, Err(OpenError::Forged));
        prop_assert_eq!(state(&opening), before);
        prop_assert_eq!(packet.open(&mut opening), Ok(body));
    }

    #[test]
    fn a_packet_under_another_number_is_forged_and_changes_nothing(number in claimed_number()) {
        let (mut sealing, mut opening) = pair(Cipher::Aes256Gcm);
        let packet = seal_next(&mut sealing, b"number 0");
        prop_assume!(number != packet.number.0);
        let forged = Packet { number: PacketNumber(number), ..packet.clone() };

        let before = state(&opening);
        let expected =
            if epoch_of(number) < 2 { OpenError::Forged } else { OpenError::UnknownEpoch };
        prop_assert_eq!(forged.open(&mut opening), Err(expected));
        prop_assert_eq!(state(&opening), before);
        prop_assert!(packet.open(&mut opening).is_ok());
    }

    #[test]
    fn noise_from_the_network_is_never_opened(
        number in claimed_number(),
        header in prop::collection::vec(any::<u8>(), 0..40),
        sealed in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut opening = pair(Cipher::Aes256Gcm).1;
        let before = state(&opening);
        let mut out = vec![0; sealed.len().saturating_sub(TAG_BYTES)];
        let number = PacketNumber(number);
        prop_assert!(opening.open_into(number, &header, &sealed, &mut out).is_err());
        prop_assert!(opening.open_in_place(number, &header, &mut sealed.clone()).is_err());
        prop_assert_eq!(state(&opening), before);
    }
}
