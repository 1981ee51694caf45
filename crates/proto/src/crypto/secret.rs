//! What both ends share before they meet.

use zeroize::Zeroize;

/// The secret both ends hold, from a ticket or from ssh. Its memory is wiped when it goes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl Zeroize for Secret {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.zeroize();
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}
