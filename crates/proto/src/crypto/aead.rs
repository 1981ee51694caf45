//! Sealing and opening packets (`docs/protocol §5`).
//!
//! [`SealingKeys`] protect outgoing packets, [`OpeningKeys`] incoming ones. Two packets must never
//! be sealed under one number, and a packet that does not authenticate must never move the replay
//! window or the epoch.

use std::fmt;

pub use super::cipher::Cipher;
use super::epoch::{EpochKey, KeyChain, epoch_of};
use super::replay::ReplayWindow;
use super::{OpenError, TAG_BYTES};
use crate::units::PacketNumber;

/// The keys of outgoing packets, and their numbers (`docs/protocol §5.1, §5.4`).
pub struct SealingKeys {
    chain: KeyChain,
    /// Packets are numbered before they are sealed: some of the last epoch may still be to come.
    previous: Option<EpochKey>,
    current: EpochKey,
    epoch: u64,
    next: u64,
}

impl SealingKeys {
    /// The keys that begin with `secret`, this direction's half of
    /// [`super::noise::SplitKeys`] (`docs/protocol §5.1`).
    pub fn new(cipher: Cipher, secret: [u8; 32]) -> Self {
        let mut chain = KeyChain::new(cipher, secret);
        let current = chain.next_epoch();
        Self { chain, previous: None, current, epoch: 0, next: 0 }
    }

    /// Hands out the number of one packet, never the same twice (`docs/protocol §5.4`).
    ///
    /// The end of the numbers is 2^64 packets away. There it would go on handing out the last
    /// one, which [`Self::seal_in_place`] does not seal.
    pub fn next_number(&mut self) -> PacketNumber {
        let number = self.next;
        self.next = number.saturating_add(1);
        if epoch_of(number) != self.epoch {
            self.enter_next_epoch();
        }
        PacketNumber(number)
    }

    /// The number that is handed out next (`docs/protocol §5.4`).
    pub fn upcoming(&self) -> PacketNumber {
        PacketNumber(self.next)
    }

    /// Whether this number was handed out (`docs/protocol §5.4`).
    pub fn has_handed_out(&self, number: PacketNumber) -> bool {
        number.0 < self.next
    }

    /// Encrypts `body` where it lies, authenticates `header` with it and returns the tag that
    /// goes behind it (`docs/protocol §3.1, §5.3`).
    ///
    /// `number` comes from [`Self::next_number`] and is sealed once; it may be sealed after later
    /// ones. A number that was not handed out, or was handed out more than an epoch ago, seals
    /// nothing: the body is then erased, never left in clear, and the peer drops the packet.
    pub fn seal_in_place(
        &self,
        number: PacketNumber,
        header: &[u8],
        body: &mut [u8],
    ) -> [u8; TAG_BYTES] {
        let tag = self.key(number.0).and_then(|key| key.seal(number.0, header, body));
        tag.unwrap_or_else(|| {
            body.fill(0);
            [0; TAG_BYTES]
        })
    }

    /// Encrypts `body`, which stays as it is, into `out`, which is [`TAG_BYTES`] longer and gets
    /// the tag as well (`docs/protocol §3.1, §5.3`): memory is read once and written once.
    ///
    /// For `number` the same holds as with [`Self::seal_in_place`]; where that seals nothing, or
    /// `out` is of another length, `out` is zeros.
    pub fn seal_into(&self, number: PacketNumber, header: &[u8], body: &[u8], out: &mut [u8]) {
        let sealed =
            self.key(number.0).is_some_and(|key| key.seal_into(number.0, header, body, out));
        if !sealed {
            out.fill(0);
        }
    }

    /// The cipher in use.
    pub fn cipher(&self) -> Cipher {
        self.chain.cipher()
    }

    fn key(&self, number: u64) -> Option<&EpochKey> {
        if number >= self.next {
            return None;
        }
        match self.epoch - epoch_of(number) {
            0 => Some(&self.current),
            1 => self.previous.as_ref(),
            _ => None,
        }
    }

    fn enter_next_epoch(&mut self) {
        let next = self.chain.next_epoch();
        self.previous = Some(std::mem::replace(&mut self.current, next));
        self.epoch += 1;
    }
}

impl fmt::Debug for SealingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKeys({:?}, next {})", self.cipher(), self.next)
    }
}

/// The keys of incoming packets, and the numbers that have arrived (`docs/protocol §5.2, §5.5`).
pub struct OpeningKeys {
    chain: KeyChain,
    previous: Option<EpochKey>,
    current: EpochKey,
    /// Made in advance, so that a forged packet of the next epoch costs no derivation.
    next: EpochKey,
    epoch: u64,
    window: ReplayWindow,
}

impl OpeningKeys {
    /// The keys that begin with `secret`, this direction's half of
    /// [`super::noise::SplitKeys`] (`docs/protocol §5.1`).
    pub fn new(cipher: Cipher, secret: [u8; 32]) -> Self {
        let mut chain = KeyChain::new(cipher, secret);
        let (current, next) = (chain.next_epoch(), chain.next_epoch());
        Self { chain, previous: None, current, next, epoch: 0, window: ReplayWindow::new() }
    }

    /// Whether a packet of this number would be refused unread, as seen before or too old
    /// (`docs/protocol §5.5`).
    pub fn is_replay(&self, number: PacketNumber) -> bool {
        self.window.check(number).is_err()
    }

    /// Decrypts straight into `out`, which is exactly as long as the ciphertext without its tag,
    /// and returns that length (`docs/protocol §5.6`).
    ///
    /// Only a packet that authenticates is remembered. After any error `out` holds nothing of
    /// value: a failed opening leaves the slot missing, and must not be tried on a slot that
    /// already holds data. An `out` of another length is [`OpenError::Forged`] and left alone.
    pub fn open_into(
        &mut self,
        number: PacketNumber,
        header: &[u8],
        ciphertext_and_tag: &[u8],
        out: &mut [u8],
    ) -> Result<usize, OpenError> {
        let key = self.key(number)?;
        let body_bytes = key.open_into(number.0, header, ciphertext_and_tag, out)?;
        self.remember(number);
        Ok(body_bytes)
    }

    /// Decrypts ciphertext and tag where they lie and returns the plaintext
    /// (`docs/protocol §5.2`). After an error the bytes are of no more use.
    pub fn open_in_place<'a>(
        &mut self,
        number: PacketNumber,
        header: &[u8],
        ciphertext_and_tag: &'a mut [u8],
    ) -> Result<&'a [u8], OpenError> {
        let key = self.key(number)?;
        let body = key.open_in_place(number.0, header, ciphertext_and_tag)?;
        self.remember(number);
        Ok(body)
    }

    /// Whether a packet would be opened. Neither it nor its bytes are changed, so that it can be
    /// opened after that (`docs/protocol §4.3`).
    pub fn authenticates(
        &self,
        number: PacketNumber,
        header: &[u8],
        ciphertext_and_tag: &[u8],
    ) -> bool {
        let mut copy = ciphertext_and_tag.to_vec();
        self.key(number).is_ok_and(|key| key.open_in_place(number.0, header, &mut copy).is_ok())
    }

    /// The cipher in use.
    pub fn cipher(&self) -> Cipher {
        self.chain.cipher()
    }

    /// The key for a number that may still come; checked before any cryptography, so that a flood
    /// of copies costs little.
    fn key(&self, number: PacketNumber) -> Result<&EpochKey, OpenError> {
        self.window.check(number)?;
        let epoch = epoch_of(number.0);
        if epoch == self.epoch {
            Ok(&self.current)
        } else if epoch == self.epoch + 1 {
            Ok(&self.next)
        } else if epoch + 1 == self.epoch {
            self.previous.as_ref().ok_or(OpenError::UnknownEpoch)
        } else {
            Err(OpenError::UnknownEpoch)
        }
    }

    /// The state changes of an authentic packet; nothing else may make them (`docs/protocol
    /// §5.2, §5.5`).
    fn remember(&mut self, number: PacketNumber) {
        self.window.mark(number);
        if epoch_of(number.0) == self.epoch + 1 {
            let after = self.chain.next_epoch();
            let next = std::mem::replace(&mut self.next, after);
            self.previous = Some(std::mem::replace(&mut self.current, next));
            self.epoch += 1;
        }
    }
}

impl fmt::Debug for OpeningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let highest = self.window.highest();
        write!(f, "OpeningKeys({:?}, epoch {}, {highest:?})", self.cipher(), self.epoch)
    }
}

#[cfg(test)]
#[path = "aead_tests.rs"]
mod tests;
