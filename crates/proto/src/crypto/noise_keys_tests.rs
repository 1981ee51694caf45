//! Handshakes by static keys (`docs/protocol §4.8`).

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;

const PROLOGUE: &[u8] = b"netblt 9 and sixteen bytes";

fn key(byte: u8) -> StaticKey {
    StaticKey::from_bytes([byte; 32])
}

fn keys(own: &StaticKey, peer: u8) -> HandshakeAuth<'_> {
    HandshakeAuth::Keys { own, peer: key(peer).public() }
}

/// Message 1 of the client 20 to the server 21.
fn call(payload: &[u8]) -> (Initiator, Vec<u8>) {
    Initiator::start(keys(&key(20), 21), PROLOGUE, [2; 32], payload).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn ends_that_know_each_others_keys_agree() {
    let (mut initiator, message1) = call(b"proposed");
    let more = MESSAGE_OVERHEAD_BYTES + STATIC_KEY_BYTES;
    assert_eq!(message1.len(), b"proposed".len() + more);
    let server = key(21);
    let (payload1, responder) = respond(keys(&server, 20), PROLOGUE, [3; 32], &message1).unwrap();
    assert_eq!(payload1, b"proposed");
    let (message2, there) = responder.finish(b"settled").unwrap();
    assert_eq!(message2.len(), b"settled".len() + MESSAGE_OVERHEAD_BYTES);
    assert_eq!(initiator.finish(&message2), Ok((b"settled".to_vec(), there)));
}

/// Given all four keys, Noise written in Python with `cryptography` makes the same.
#[test]
fn messages_agree_with_an_independent_implementation() {
    let message1 = call(b"proposed").1;
    let server = key(21);
    let (_, responder) = respond(keys(&server, 20), PROLOGUE, [3; 32], &message1).unwrap();
    let (message2, keys) = responder.finish(b"settled").unwrap();
    let made =
        [&message1[..], &message2, &keys.initiator_to_responder, &keys.responder_to_initiator];
    let expected = [
        concat!(
            "00f848cdfd4ba4f9709ffcb04a7522fc91cf6ecde545fbdfc12909c1cad1ab32",
            "a92fccd57cb628dce5c0b235948f909178a67381e4bd5620d0ad9f245866c1f4",
            "17ad342e5b04c1cecc56a3c5b095fef114304aabb038cdcc7841b6b2be28dd46",
            "c15e2137ef75a02d",
        ),
        concat!(
            "9cb8ac6765f9e7de64173935afbcb9ff1b596ca56f698b9570278292feacac3c",
            "9a5256d0c3e60f091f4a83e849be977689f6ddc280dfa6",
        ),
        "7c9e902505c7d83d3d1aa3a50d5073cb90c916fb1ed7e7560cc91772da3ff3bd",
        "e16def9a13fc205211c0d46549fb22ed8b0fc92311d742d231cf46b60776a827",
    ];
    assert_eq!(made.map(hex), expected);
}

#[test]
fn a_handshake_needs_the_keys_of_both_owners() {
    let message1 = call(b"p").1;
    let (server, other) = (key(21), key(22));
    assert!(respond(keys(&other, 20), PROLOGUE, [3; 32], &message1).is_err());
    assert!(respond(keys(&server, 22), PROLOGUE, [3; 32], &message1).is_err());
    assert!(respond(keys(&server, 20), b"another", [3; 32], &message1).is_err());
    assert!(respond(keys(&server, 20), PROLOGUE, [3; 32], &message1).is_ok());
}

#[test]
fn a_secret_and_keys_do_not_mix() {
    let secret = Secret([1; 32]);
    let by_secret = Initiator::start(&secret, PROLOGUE, [2; 32], b"p").unwrap().1;
    let by_keys = call(b"p").1;
    let server = key(21);
    assert!(respond(&secret, PROLOGUE, [3; 32], &by_keys).is_err());
    assert!(respond(keys(&server, 20), PROLOGUE, [3; 32], &by_secret).is_err());
}

#[test]
fn an_invalid_key_opens_no_handshake() {
    let own = key(20);
    let invalid = HandshakeAuth::Keys { own: &own, peer: PublicKey([0; 32]) };
    assert!(Initiator::start(invalid, PROLOGUE, [2; 32], b"p").is_err());
    // Nor does an ephemeral one.
    let server = key(21);
    let mut message1 = call(b"p").1;
    message1[..32].fill(0);
    assert!(respond(keys(&server, 20), PROLOGUE, [3; 32], &message1).is_err());
}

/// The static key of an attacker that has the private key 21 and claims to own 20: it computes
/// their shared secret from the other side.
struct Stolen(Curve);

impl Dh for Stolen {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn pub_len(&self) -> usize {
        KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        KEY_BYTES
    }

    fn set(&mut self, private: &[u8]) {
        self.0.set(private);
        self.0.public = key(20).public().0;
    }

    fn generate(&mut self, _: &mut dyn Random) -> Result<(), snow::Error> {
        Err(snow::Error::Rng)
    }

    fn pubkey(&self) -> &[u8] {
        self.0.pubkey()
    }

    fn privkey(&self) -> &[u8] {
        self.0.privkey()
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        // It knows the secret shared with the server, but can only guess that with the server's
        // ephemeral key.
        let (client, server) = (key(20).public().0, key(21).public().0);
        self.0.dh(if public.starts_with(&server) { &client } else { public }, out)
    }
}

struct Thief(Ephemeral, AtomicBool);

impl CryptoResolver for Thief {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        self.0.resolve_rng()
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        // The first one that is asked for is the static one's.
        match self.1.swap(true, Ordering::Relaxed) {
            false => Some(Box::new(Stolen(Curve::default()))),
            true => self.0.resolve_dh(choice),
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        self.0.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        self.0.resolve_cipher(choice)
    }
}

/// Key compromise impersonation: message 1 is accepted, and nothing more. All else is sent under
/// the keys that follow from message 2.
#[test]
fn a_stolen_server_key_does_not_impersonate_a_client() {
    let thief = Thief(Ephemeral::new("thief", [4; 32], &[]), AtomicBool::new(false));
    let (server, client) = (key(21), key(20));
    let PublicKey(asked) = server.public();
    let state = Builder::with_resolver(BY_KEYS.parse().unwrap(), Box::new(thief))
        .prologue(PROLOGUE)
        .and_then(|builder| builder.local_private_key(server.private()))
        .and_then(|builder| builder.remote_public_key(&asked))
        .and_then(Builder::build_initiator);
    let mut state = state.unwrap();
    let message1 = write(&mut state, b"p").unwrap();
    let mut thief = Initiator(state);

    let means = HandshakeAuth::Keys { own: &server, peer: client.public() };
    let (payload, responder) = respond(means, PROLOGUE, [3; 32], &message1).unwrap();
    assert_eq!(payload, b"p", "it claims to come from the client, and looks like it");
    let (message2, _) = responder.finish(b"settled").unwrap();
    assert_eq!(thief.finish(&message2), Err(HandshakeFailed));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn a_corrupted_message_1_fails(at in any::<prop::sample::Index>(), flip in 1..=u8::MAX) {
        let mut message1 = call(b"payload").1;
        let at = at.index(message1.len());
        message1[at] ^= flip;
        let server = key(21);
        prop_assert!(respond(keys(&server, 20), PROLOGUE, [3; 32], &message1).is_err());
    }
}
