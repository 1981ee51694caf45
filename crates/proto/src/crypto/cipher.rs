//! The ciphers of the `sealed` wire, and which of them an end prefers (`docs/protocol §3.2`).

/// The ciphers of the `sealed` wire (`docs/protocol §3.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-GCM, by far the faster one where the processor knows AES.
    Aes256Gcm,
    /// ChaCha20-Poly1305, the faster one elsewhere.
    ChaCha20Poly1305,
}

impl Cipher {
    /// The faster cipher on this processor.
    pub fn preferred() -> Self {
        if has_aes() { Self::Aes256Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// This cipher's bit in the parameters (`docs/protocol §3.2`).
    pub const fn bit(self) -> u8 {
        match self {
            Self::Aes256Gcm => 1,
            Self::ChaCha20Poly1305 => 2,
        }
    }

    /// The cipher of a RESPONSE: exactly one bit, and a known one (`docs/protocol §3.2`).
    pub const fn from_bit(bit: u8) -> Option<Self> {
        match bit {
            1 => Some(Self::Aes256Gcm),
            2 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// The ciphers that an end which prefers this one offers in OPEN (`docs/protocol §3.2`).
    /// Without AES hardware that is ChaCha20-Poly1305 alone, since the other end cannot know what
    /// AES would cost here, while ChaCha20-Poly1305 is bearable everywhere.
    pub const fn offer(self) -> u8 {
        match self {
            Self::Aes256Gcm => Self::Aes256Gcm.bit() | Self::ChaCha20Poly1305.bit(),
            Self::ChaCha20Poly1305 => Self::ChaCha20Poly1305.bit(),
        }
    }

    /// The cipher for an OPEN with these bits: `mine` if it is offered, else another one that is,
    /// `None` if none is known. Bits of ciphers yet to come are ignored (`docs/protocol §3.2`).
    pub fn choose(offered: u8, mine: Self) -> Option<Self> {
        [mine, Self::Aes256Gcm, Self::ChaCha20Poly1305]
            .into_iter()
            .find(|cipher| offered & cipher.bit() != 0)
    }
}

/// Whether the processor has what AES-GCM needs to be fast: AES and carry-less multiplication.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

/// Whether the processor has what AES-GCM needs to be fast: AES and carry-less multiplication.
#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
}

/// Nothing is known of AES on other processors.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}
