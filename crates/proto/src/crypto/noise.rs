//! The handshake: one message each way makes two fresh keys (`docs/protocol §4.1`).
//!
//! Noise by `snow`, its randomness replaced: the caller gives 32 bytes of entropy and the ephemeral
//! key is derived from them, so that a run can be repeated. The entropy must be fresh for every
//! handshake. Should it not be, the derivation also takes in everything that is known when it is
//! made, so that only the very same opening has the very same ephemeral key.

use std::fmt;

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use thiserror::Error;
use zeroize::{Zeroize, Zeroizing};

use crate::crypto::secret::Secret;
use crate::crypto::static_keys::{KEY_BYTES, PublicKey, StaticKey, public_of, shared};

/// With a secret that both ends hold, and with static keys.
const BY_SECRET: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
const BY_KEYS: &str = "Noise_IK_25519_AESGCM_SHA256";

/// How much longer a handshake message is than its payload: ephemeral public key and tag.
pub const MESSAGE_OVERHEAD_BYTES: usize = 32 + 16;
/// How much longer message 1 is when it brings a static key: that key and its tag.
pub const STATIC_KEY_BYTES: usize = 32 + 16;

/// The credentials of a handshake (`docs/protocol §4.1, §4.8`).
#[derive(Clone, Copy, Debug)]
pub enum HandshakeAuth<'a> {
    /// A secret that both ends hold.
    Secret(&'a Secret),
    /// Static keys: the end proves that it owns `own`, to the owner of `peer` only.
    Keys {
        /// The end's own key.
        own: &'a StaticKey,
        /// The other end's.
        peer: PublicKey,
    },
}

impl<'a> From<&'a Secret> for HandshakeAuth<'a> {
    fn from(secret: &'a Secret) -> Self {
        Self::Secret(secret)
    }
}

/// A handshake message that is not the peer's, or a payload that fits into none
/// (`docs/protocol §4.1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the handshake message does not authenticate")]
pub struct HandshakeFailed;

/// The result of a handshake: the first secret of each direction's key chain (`docs/protocol
/// §5.1`). Wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct SplitKeys {
    /// From the active end to the passive one.
    pub initiator_to_responder: [u8; 32],
    /// From the passive end to the active one.
    pub responder_to_initiator: [u8; 32],
}

impl Drop for SplitKeys {
    fn drop(&mut self) {
        self.initiator_to_responder.zeroize();
        self.responder_to_initiator.zeroize();
    }
}

impl fmt::Debug for SplitKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SplitKeys(..)")
    }
}

/// The active end of a handshake, waiting for message 2 (`docs/protocol §4.1`).
#[derive(Debug)]
pub struct Initiator(HandshakeState);

impl Initiator {
    /// Begins a handshake; the message goes into OPEN, and into its retries unchanged
    /// (`docs/protocol §4.1`). Fails only if `payload` is longer than a Noise message.
    pub fn start<'a>(
        means: impl Into<HandshakeAuth<'a>>,
        prologue: &[u8],
        entropy: [u8; 32],
        payload: &[u8],
    ) -> Result<(Self, Vec<u8>), HandshakeFailed> {
        let state = match means.into() {
            HandshakeAuth::Secret(secret) => {
                let psk = psk(secret);
                let context: [&[u8]; 3] = [&psk[..], prologue, payload];
                let ephemeral = Ephemeral::new("initiator", entropy, &context);
                let builder = builder(BY_SECRET, prologue, ephemeral)?;
                builder.psk(0, &psk).and_then(Builder::build_initiator)
            }
            HandshakeAuth::Keys { own, peer } => {
                let context: [&[u8]; 4] = [own.private(), &peer.0, prologue, payload];
                let ephemeral = Ephemeral::new("initiator by key", entropy, &context);
                builder(BY_KEYS, prologue, ephemeral)?
                    .local_private_key(own.private())
                    .and_then(|builder| builder.remote_public_key(&peer.0))
                    .and_then(Builder::build_initiator)
            }
        };
        let mut state = state.map_err(failed)?;
        let message = write(&mut state, payload)?;
        Ok((Self(state), message))
    }

    /// Reads message 2 and returns its payload and the keys (`docs/protocol §4.1`).
    ///
    /// A message that fails changes nothing: an attacker on the path may forge any number of them,
    /// and the true one is still accepted. After that one, every further message fails.
    pub fn finish(&mut self, message2: &[u8]) -> Result<(Vec<u8>, SplitKeys), HandshakeFailed> {
        let payload = read(&mut self.0, message2)?;
        Ok((payload, split(&mut self.0)))
    }
}

/// The passive end of a handshake, which has read message 1 (`docs/protocol §4.1`).
#[derive(Debug)]
pub struct Responder(HandshakeState);

/// Reads message 1 and returns its payload (`docs/protocol §4.1`). With keys it fails unless the
/// key that the message brings is the peer's.
///
/// The payload then comes from the owner of that key or of this end's: an attacker who stole this
/// end's key can write message 1, but not continue after message 2 (`docs/protocol §4.8`).
pub fn respond<'a>(
    means: impl Into<HandshakeAuth<'a>>,
    prologue: &[u8],
    entropy: [u8; 32],
    message1: &[u8],
) -> Result<(Vec<u8>, Responder), HandshakeFailed> {
    let means = means.into();
    let state = match means {
        HandshakeAuth::Secret(secret) => {
            let psk = psk(secret);
            let context: [&[u8]; 3] = [&psk[..], prologue, message1];
            let ephemeral = Ephemeral::new("responder", entropy, &context);
            let builder = builder(BY_SECRET, prologue, ephemeral)?;
            builder.psk(0, &psk).and_then(Builder::build_responder)
        }
        HandshakeAuth::Keys { own, peer } => {
            let context: [&[u8]; 4] = [own.private(), &peer.0, prologue, message1];
            let ephemeral = Ephemeral::new("responder by key", entropy, &context);
            let builder = builder(BY_KEYS, prologue, ephemeral)?;
            builder.local_private_key(own.private()).and_then(Builder::build_responder)
        }
    };
    let mut state = state.map_err(failed)?;
    let payload = read(&mut state, message1)?;
    if let HandshakeAuth::Keys { peer, .. } = means
        && state.get_remote_static() != Some(&peer.0)
    {
        return Err(HandshakeFailed);
    }
    Ok((payload, Responder(state)))
}

impl Responder {
    /// Makes message 2, which goes into RESPONSE and its retries unchanged, and the keys
    /// (`docs/protocol §4.1`). Fails only if `payload` is longer than a Noise message.
    ///
    /// Once for each [`respond`]: two payloads sealed under one ephemeral key would reveal both.
    pub fn finish(mut self, payload2: &[u8]) -> Result<(Vec<u8>, SplitKeys), HandshakeFailed> {
        let message = write(&mut self.0, payload2)?;
        Ok((message, split(&mut self.0)))
    }
}

/// The pre-shared key of the handshake (`docs/protocol §4.1`).
fn psk(secret: &Secret) -> Zeroizing<[u8; 32]> {
    blake3::derive_key("netblt 9 noise psk", &secret.0).into()
}

fn builder<'a>(
    pattern: &str,
    prologue: &'a [u8],
    ephemeral: Ephemeral,
) -> Result<Builder<'a>, HandshakeFailed> {
    let params = pattern.parse().map_err(failed)?;
    Builder::with_resolver(params, Box::new(ephemeral)).prologue(prologue).map_err(failed)
}

fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, HandshakeFailed> {
    let mut message = vec![0; payload.len() + MESSAGE_OVERHEAD_BYTES + STATIC_KEY_BYTES];
    let len = state.write_message(payload, &mut message).map_err(failed)?;
    message.truncate(len);
    Ok(message)
}

fn read(state: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, HandshakeFailed> {
    let mut payload = vec![0; message.len()];
    let len = state.read_message(message, &mut payload).map_err(failed)?;
    payload.truncate(len);
    Ok(payload)
}

/// Which of its many errors `snow` found is of use to an attacker only.
fn failed(_: snow::Error) -> HandshakeFailed {
    HandshakeFailed
}

fn split(state: &mut HandshakeState) -> SplitKeys {
    let (initiator_to_responder, responder_to_initiator) = state.dangerously_get_raw_split();
    SplitKeys { initiator_to_responder, responder_to_initiator }
}

/// `snow`'s own primitives, with the operating system's randomness replaced by a given one, and its
/// curve by one that wipes its keys.
struct Ephemeral {
    seed: Zeroizing<[u8; 32]>,
}

impl Ephemeral {
    fn new(role: &str, entropy: [u8; 32], context: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("netblt 9 noise ephemeral");
        hasher.update(&entropy);
        for part in [role.as_bytes()].iter().chain(context) {
            hasher.update(&(part.len() as u64).to_be_bytes()).update(part);
        }
        Self { seed: Zeroizing::new(*hasher.finalize().as_bytes()) }
    }
}

impl CryptoResolver for Ephemeral {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Expansion(blake3::Hasher::new_keyed(&self.seed).finalize_xof())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        match choice {
            DHChoice::Curve25519 => Some(Box::new(Curve::default())),
            other => DefaultResolver.resolve_dh(other),
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// X25519 with a private key that is wiped when it goes.
#[derive(Default)]
pub(super) struct Curve {
    private: Zeroizing<[u8; KEY_BYTES]>,
    public: [u8; KEY_BYTES],
}

impl Dh for Curve {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        KEY_BYTES
    }

    fn set(&mut self, private: &[u8]) {
        self.private.copy_from_slice(private);
        self.public = public_of(&self.private).0;
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), snow::Error> {
        let mut private = Zeroizing::new([0; KEY_BYTES]);
        rng.try_fill_bytes(&mut *private)?;
        self.set(&*private);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.private
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let public = public.first_chunk().ok_or(snow::Error::Dh)?;
        let shared = shared(&self.private, public).map_err(|_| snow::Error::Dh)?;
        out.get_mut(..KEY_BYTES).ok_or(snow::Error::Dh)?.copy_from_slice(&*shared);
        Ok(())
    }
}

/// As many bytes as wanted, all from one seed.
struct Expansion(blake3::OutputReader);

impl Random for Expansion {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        self.0.fill(dest);
        Ok(())
    }
}

#[cfg(test)]
#[path = "noise_keys_tests.rs"]
mod keys_tests;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: Secret = Secret([1; 32]);
    const PROLOGUE: &[u8] = b"netblt 9 and sixteen bytes";

    fn start(entropy: u8, payload: &[u8]) -> (Initiator, Vec<u8>) {
        Initiator::start(&SECRET, PROLOGUE, [entropy; 32], payload).unwrap()
    }

    fn answer(message1: &[u8], entropy: u8, payload2: &[u8]) -> (Vec<u8>, SplitKeys) {
        let (_, responder) = respond(&SECRET, PROLOGUE, [entropy; 32], message1).unwrap();
        responder.finish(payload2).unwrap()
    }

    #[test]
    fn both_ends_get_payloads_and_the_same_keys() {
        let (mut initiator, message1) = start(2, b"proposed");
        let (payload1, responder) = respond(&SECRET, PROLOGUE, [3; 32], &message1).unwrap();
        assert_eq!(payload1, b"proposed");
        assert_eq!(message1.len(), b"proposed".len() + MESSAGE_OVERHEAD_BYTES);

        let (message2, responder_keys) = responder.finish(b"settled").unwrap();
        let (payload2, initiator_keys) = initiator.finish(&message2).unwrap();
        assert_eq!(payload2, b"settled");
        assert_eq!(initiator_keys, responder_keys);
        assert_ne!(initiator_keys.initiator_to_responder, initiator_keys.responder_to_initiator);
        assert_eq!(format!("{initiator_keys:?}"), "SplitKeys(..)");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Given the two ephemeral keys, Noise written in Python with `cryptography` makes the same.
    #[test]
    fn messages_and_keys_agree_with_an_independent_implementation() {
        let message1 = start(2, b"proposed").1;
        let (message2, keys) = answer(&message1, 3, b"settled");
        let made =
            [&message1[..], &message2, &keys.initiator_to_responder, &keys.responder_to_initiator];
        let expected = [
            concat!(
                "18fdcedb8407144ef620dd7541f580ffa653420f16ebc289f94caedbaaff5e50",
                "6b315ff0949e4e454cc85c936188619646d44403a6cf3450",
            ),
            concat!(
                "2a99447baffd632ea26dee4b2abe950d6845c6ec4a019dc68b7bb77cd4caf465",
                "525ea33a5a75d0006a7eb18495d6ae98d1f092213a168d",
            ),
            "37c79bc84474857290bbd8a6db39842fda18e037abc9fa2e1cd37d6fb74c9825",
            "d00a76350c409ec7188884d41a9f830570ba5a0cc4b1801b171fab89cf4a2bb5",
        ];
        assert_eq!(made.map(hex), expected);
    }

    #[test]
    fn same_entropy_same_bytes_other_entropy_other_bytes() {
        let message1 = start(2, b"p").1;
        assert_eq!(start(2, b"p").1, message1);
        assert_ne!(start(3, b"p").1[..32], message1[..32]);
        assert_eq!(answer(&message1, 4, b"q"), answer(&message1, 4, b"q"));
        assert_ne!(answer(&message1, 4, b"q").1, answer(&message1, 5, b"q").1);
    }

    #[test]
    fn reused_entropy_does_not_reuse_the_ephemeral_key() {
        let message1 = start(2, b"p").1;
        let other = start(2, b"q").1;
        assert_ne!(message1[..32], other[..32]);
        assert_ne!(answer(&message1, 2, b"p").0[..32], answer(&other, 2, b"p").0[..32]);
        assert_ne!(answer(&message1, 2, b"p").0[..32], message1[..32]);
    }

    #[test]
    fn another_secret_or_prologue_fails() {
        let message1 = start(2, b"p").1;
        let other = Secret([9; 32]);
        assert!(respond(&other, PROLOGUE, [3; 32], &message1).is_err());
        assert!(respond(&SECRET, b"netblt 9 and other bytes..", [3; 32], &message1).is_err());
        assert!(respond(&SECRET, PROLOGUE, [3; 32], &message1).is_ok());
    }

    #[test]
    fn forged_messages_do_not_keep_the_true_one_out() {
        let (mut initiator, message1) = start(2, b"p");
        let (message2, keys) = answer(&message1, 3, b"q");
        for len in 0..message2.len() {
            assert_eq!(initiator.finish(&message2[..len]), Err(HandshakeFailed));
        }
        for at in 0..message2.len() {
            let mut forged = message2.clone();
            forged[at] ^= 0x10;
            assert_eq!(initiator.finish(&forged), Err(HandshakeFailed), "byte {at}");
        }
        assert_eq!(initiator.finish(&[0; 48]), Err(HandshakeFailed));
        assert_eq!(initiator.finish(&vec![0; 70_000]), Err(HandshakeFailed));
        assert_eq!(initiator.finish(&message2), Ok((b"q".to_vec(), keys)));
        assert_eq!(initiator.finish(&message2), Err(HandshakeFailed));
    }

    #[test]
    fn the_answer_to_another_open_fails() {
        let (mut initiator, message1) = start(2, b"p");
        let other = answer(&start(7, b"p").1, 3, b"q").0;
        assert_eq!(initiator.finish(&other), Err(HandshakeFailed));
        assert!(initiator.finish(&answer(&message1, 3, b"q").0).is_ok());
    }

    #[test]
    fn a_payload_longer_than_a_noise_message_is_refused() {
        let most = vec![0; 65_535 - MESSAGE_OVERHEAD_BYTES];
        assert!(Initiator::start(&SECRET, PROLOGUE, [2; 32], &most).is_ok());
        let more = vec![0; 65_536 - MESSAGE_OVERHEAD_BYTES];
        assert!(Initiator::start(&SECRET, PROLOGUE, [2; 32], &more).is_err());
        let (_, responder) = respond(&SECRET, PROLOGUE, [3; 32], &start(2, b"").1).unwrap();
        assert!(responder.finish(&more).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_corrupted_message_1_fails(at in any::<prop::sample::Index>(), flip in 1..=u8::MAX) {
            let mut message1 = start(2, b"payload").1;
            let at = at.index(message1.len());
            // X25519 ignores the highest bit of a public key, but the transcript does not.
            message1[at] ^= flip;
            prop_assert!(respond(&SECRET, PROLOGUE, [3; 32], &message1).is_err());
        }

        #[test]
        fn bytes_that_are_no_message_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(respond(&SECRET, PROLOGUE, [3; 32], &bytes).is_err());
            prop_assert!(start(2, b"p").0.finish(&bytes).is_err());
        }
    }
}
