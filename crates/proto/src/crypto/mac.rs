//! The cheap checks before a handshake computation (`docs/protocol §3.2, §4.2`).
//!
//! The MAC proves that the author of a handshake packet holds the secret; the cookie, that its
//! sender receives at its address. Both are compared in constant time.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use zeroize::Zeroizing;

use crate::crypto::secret::Secret;
use crate::time::{Instant, nanos};

/// Bytes of the MAC in handshake packets (`docs/protocol §3.2`).
pub const MAC_BYTES: usize = 16;

/// Bytes of a cookie (`docs/protocol §3.2`).
pub const COOKIE_BYTES: usize = 32;

/// The period of cookies. A cookie is accepted in its own period and in the next: long enough for
/// every retry of OPEN (`docs/protocol §4.1`), too short to hoard.
const COOKIE_PERIOD: Duration = Duration::from_secs(120);

/// The key under which OPEN, COOKIE and REFUSED are authenticated (`docs/protocol §3.2`).
#[derive(Clone)]
pub struct MacKey(Zeroizing<[u8; 32]>);

impl MacKey {
    /// The key that follows from `secret` (`docs/protocol §3.2`).
    pub fn from_secret(secret: &Secret) -> Self {
        Self(blake3::derive_key("netblt 9 open mac", &secret.0).into())
    }

    /// The key that the owners of two static keys have, from what they share and both public keys,
    /// the active end's first (`docs/protocol §4.8`).
    pub(super) fn of_keys(both: &[u8]) -> Self {
        Self(blake3::derive_key("netblt 9 open mac of keys", both).into())
    }

    /// A random key, for a check that fails in the same time as any other.
    pub(crate) fn decoy(entropy: [u8; 32]) -> Self {
        Self(entropy.into())
    }

    /// The MAC over the concatenation of `parts` (`docs/protocol §3.2`). All parts but the last
    /// need fixed lengths, since their borders are not encoded.
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let hash = keyed(&self.0, parts);
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&hash[..MAC_BYTES]);
        mac
    }

    /// Whether `mac` is the MAC over `parts`, in constant time (`docs/protocol §3.2`).
    pub fn verify(&self, parts: &[&[u8]], mac: &[u8]) -> bool {
        verify_slices_are_equal(&self.mac(parts), mac).is_ok()
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(..)")
    }
}

/// Makes and verifies cookies without state (`docs/protocol §4.2`).
#[derive(Clone)]
pub struct CookieGenerator {
    key: Zeroizing<[u8; 32]>,
}

impl CookieGenerator {
    /// A generator whose cookies only it can make; `entropy` is fresh for each.
    pub fn new(entropy: [u8; 32]) -> Self {
        Self { key: blake3::derive_key("netblt 9 cookie", &entropy).into() }
    }

    /// The cookie for an OPEN with this id and UID from `address` (`docs/protocol §4.2`).
    pub fn cookie(
        &self,
        now: Instant,
        address: SocketAddr,
        connection: u32,
        uid: u32,
    ) -> [u8; COOKIE_BYTES] {
        self.compute(period(now), address, connection, uid)
    }

    /// Whether `cookie` was made here for the same OPEN, in this period or the one before
    /// (`docs/protocol §4.2`).
    pub fn valid(
        &self,
        now: Instant,
        address: SocketAddr,
        connection: u32,
        uid: u32,
        cookie: &[u8],
    ) -> bool {
        let now = period(now);
        [Some(now), now.checked_sub(1)].into_iter().flatten().any(|period| {
            let cookie_then = self.compute(period, address, connection, uid);
            verify_slices_are_equal(&cookie_then, cookie).is_ok()
        })
    }

    /// A keyed hash of `bytes` as a number, which an attacker cannot predict.
    pub(crate) fn place(&self, bytes: &[u8]) -> u64 {
        // A cookie hashes more bytes, so the two never collide.
        let hash = keyed(&self.key, &[b"place", bytes]);
        hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }

    /// The period is hashed in with the rest, which is as good as a new key for every period and
    /// leaves nothing to rotate.
    fn compute(
        &self,
        period: u64,
        address: SocketAddr,
        connection: u32,
        uid: u32,
    ) -> [u8; COOKIE_BYTES] {
        // An IPv4 peer is the same peer when a socket for both families shows it as mapped.
        let (ip, scope) = match (address.ip(), address) {
            (IpAddr::V4(ip), _) => (ip.to_ipv6_mapped(), 0),
            (IpAddr::V6(ip), SocketAddr::V6(address)) => (ip, address.scope_id()),
            (IpAddr::V6(ip), SocketAddr::V4(_)) => (ip, 0),
        };
        keyed(
            &self.key,
            &[
                &period.to_be_bytes(),
                &ip.octets(),
                &scope.to_be_bytes(),
                &address.port().to_be_bytes(),
                &connection.to_be_bytes(),
                &uid.to_be_bytes(),
            ],
        )
    }
}

impl fmt::Debug for CookieGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieGenerator(..)")
    }
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / nanos(COOKIE_PERIOD)
}

/// Keyed BLAKE3 over `parts`, one after the other.
fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in parts {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_mac_depends_on_secret_and_content_but_not_on_the_cuts() {
        let key = MacKey::from_secret(&Secret([1; 32]));
        let mac = key.mac(&[b"one", b"two"]);
        assert_eq!(key.mac(&[b"onetwo"]), mac);
        assert!(key.verify(&[b"onetwo"], &mac));
        assert!(!key.verify(&[b"onetwO"], &mac));
        assert!(!MacKey::from_secret(&Secret([2; 32])).verify(&[b"onetwo"], &mac));
    }

    #[test]
    fn a_mac_of_another_length_is_wrong() {
        let key = MacKey::from_secret(&Secret([1; 32]));
        let mac = key.mac(&[b"x"]);
        assert!(!key.verify(&[b"x"], &mac[..15]));
        assert!(!key.verify(&[b"x"], &[]));
        assert!(!key.verify(&[b"x"], &[mac, mac].concat()));
        for at in 0..MAC_BYTES {
            let mut wrong = mac;
            wrong[at] ^= 1;
            assert!(!key.verify(&[b"x"], &wrong));
        }
    }

    #[test]
    fn a_cookie_is_valid_until_the_end_of_the_next_period() {
        let jar = CookieGenerator::new([1; 32]);
        let peer = address("192.0.2.1:5000");
        for cookie_then in [0, 119, 120, 239] {
            let cookie = jar.cookie(at(cookie_then), peer, 7, 8);
            let end = (cookie_then / 120 + 2) * 120;
            assert!(jar.valid(at(cookie_then), peer, 7, 8, &cookie));
            assert!(jar.valid(at(end - 1), peer, 7, 8, &cookie), "made at {cookie_then}");
            assert!(!jar.valid(at(end), peer, 7, 8, &cookie), "made at {cookie_then}");
        }
        let future = jar.cookie(at(240), peer, 7, 8);
        assert!(!jar.valid(at(0), peer, 7, 8, &future));
        assert!(!jar.valid(Instant::NEVER, peer, 7, 8, &future));
    }

    #[test]
    fn a_cookie_is_valid_for_one_handshake_of_one_peer_at_one_end() {
        let jar = CookieGenerator::new([1; 32]);
        let peer = address("192.0.2.1:5000");
        let cookie = jar.cookie(at(0), peer, 7, 8);
        assert!(!jar.valid(at(0), address("192.0.2.2:5000"), 7, 8, &cookie));
        assert!(!jar.valid(at(0), address("192.0.2.1:5001"), 7, 8, &cookie));
        assert!(!jar.valid(at(0), peer, 8, 8, &cookie));
        assert!(!jar.valid(at(0), peer, 7, 7, &cookie));
        assert!(!jar.valid(at(0), peer, 7, 8, &[0; 32]));
        assert!(!jar.valid(at(0), peer, 7, 8, &cookie[..31]));
        assert!(!CookieGenerator::new([2; 32]).valid(at(0), peer, 7, 8, &cookie));
    }

    #[test]
    fn one_host_has_one_cookie_however_its_address_is_written() {
        let jar = CookieGenerator::new([1; 32]);
        let cookie = jar.cookie(at(0), address("192.0.2.1:5000"), 7, 8);
        assert!(jar.valid(at(0), address("[::ffff:192.0.2.1]:5000"), 7, 8, &cookie));
        let scoped = jar.cookie(at(0), address("[fe80::1%2]:5000"), 7, 8);
        assert!(!jar.valid(at(0), address("[fe80::1%3]:5000"), 7, 8, &scoped));
    }
}
