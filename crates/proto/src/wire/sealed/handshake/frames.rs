//! The clear frames of OPEN, RESPONSE, COOKIE, REFUSED and UNKNOWN (`docs/protocol §3.2`).
//!
//! Any sender can make them: no value in a frame may be used before its MAC or its Noise message
//! has been verified, over the bytes that the frame covers.

use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::crypto::mac::{COOKIE_BYTES, MAC_BYTES};
use crate::crypto::static_pairing::{KEY_ID_BYTES, KeyId};
use crate::limits::MAX_REASON;
use crate::units::PacketNumber;
use crate::wire::sealed::{
    HEADER_BYTES, OPEN_BYTES, PacketType, ParseError, Reader, SHORT_KEY_OPEN_BYTES,
    SHORT_OPEN_BYTES, VERSION, cut,
};

/// Where OPEN's cookie ends and the rest of what its MAC covers begins.
const COOKIE_END: usize = HEADER_BYTES + COOKIE_BYTES;
/// Where OPEN's Noise message begins.
const OPEN_NOISE_AT: usize = COOKIE_END + 2;
/// Where OPEN's MAC begins.
const OPEN_MAC_AT: usize = OPEN_BYTES - MAC_BYTES;
/// Where REFUSED's reason begins.
const REASON_AT: usize = HEADER_BYTES + 2;
/// Where the connection id of a packet under transport keys is.
const ID_AT: usize = 4;
/// Id field of a REFUSED that holds only for now, in place of the passive end's id.
const FOR_NOW: u32 = 1;

/// Bytes of an UNKNOWN (`docs/protocol §3.2`): fewer than any packet that may draw it has.
pub const UNKNOWN_BYTES: usize = 4 + HEADER_BYTES;

/// Where COOKIE's MAC begins.
const COOKIE_MAC_AT: usize = HEADER_BYTES + COOKIE_BYTES;

/// Values of byte 0 of OPEN: how its sender authenticates (`docs/protocol §3.2`).
const BY_SECRET: u8 = 0;
const BY_KEY: u8 = 1;

/// Longest Noise message in OPEN, in bytes (`docs/protocol §3.2`), and the bytes by which a key
/// id shortens it. A RESPONSE with one of that length is still shorter than an OPEN.
pub const MAX_NOISE_BYTES: usize = OPEN_MAC_AT - OPEN_NOISE_AT;

/// OPEN: proposes a connection (`docs/protocol §3.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFrame<'a> {
    /// Connection id chosen by the active end, not 0.
    pub connection: u32,
    /// Connection unique ID.
    pub uid: u32,
    /// The id of the sender's static key; `None` if it holds a ticket's secret.
    pub key: Option<KeyId>,
    /// The cookie, or zeros.
    pub cookie: [u8; COOKIE_BYTES],
    /// Noise message 1.
    pub noise: &'a [u8],
    /// The MAC, over [`Self::covered_before`] and [`Self::covered_after`].
    pub mac: [u8; MAC_BYTES],
    /// The clear header: what the MAC covers before the cookie, and the end of the prologue
    /// (`docs/protocol §4.1`).
    pub covered_before: &'a [u8],
    /// The bytes that the MAC covers after the cookie.
    pub covered_after: &'a [u8],
}

/// RESPONSE: accepts a connection (`docs/protocol §3.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFrame<'a> {
    /// The active end's connection id.
    pub to: u32,
    /// Connection id chosen by the passive end, not 0.
    pub connection: u32,
    /// Connection unique ID, as in OPEN.
    pub uid: u32,
    /// Noise message 2.
    pub noise: &'a [u8],
}

/// COOKIE: requests another OPEN with this cookie (`docs/protocol §3.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieFrame<'a> {
    /// The active end's connection id.
    pub to: u32,
    /// Connection unique ID, as in OPEN.
    pub uid: u32,
    /// The cookie for OPEN.
    pub cookie: [u8; COOKIE_BYTES],
    /// The MAC, over [`Self::covered`] and the MAC of the OPEN it answers.
    pub mac: [u8; MAC_BYTES],
    /// All before the MAC.
    pub covered: &'a [u8],
}

/// REFUSED: there will be no connection (`docs/protocol §3.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedFrame<'a> {
    /// The active end's connection id.
    pub to: u32,
    /// Connection unique ID, as in OPEN.
    pub uid: u32,
    /// The refusal holds only for now: a later attempt may succeed.
    pub for_now: bool,
    /// Why, meant to be UTF-8; at most [`MAX_REASON`] bytes.
    pub reason: &'a [u8],
    /// The MAC, over [`Self::covered`] and the MAC of the OPEN it answers; zeros make a hint.
    pub mac: [u8; MAC_BYTES],
    /// All before the MAC.
    pub covered: &'a [u8],
}

/// The first 16 bytes of all four.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ClearFields {
    /// A field of OPEN; else reserved.
    means: u8,
    reserved: u8,
    version: u8,
    kind: u8,
    /// The id chosen by the destination end, 0 if it has none yet.
    to: U32,
    /// The id chosen by the source end, 0 if it has none.
    from: U32,
    uid: U32,
}

const _: () = assert!(size_of::<ClearFields>() == HEADER_BYTES);

impl ClearFields {
    fn encode(kind: PacketType, to: u32, from: u32, uid: u32) -> [u8; HEADER_BYTES] {
        zerocopy::transmute!(Self {
            means: BY_SECRET,
            reserved: 0,
            version: VERSION,
            kind: kind as u8,
            to: to.into(),
            from: from.into(),
            uid: uid.into(),
        })
    }

    fn parse(bytes: &[u8], kind: PacketType) -> Result<&Self, ParseError> {
        let (clear, _) = Self::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
        if clear.version != VERSION {
            return Err(ParseError::Version(clear.version));
        }
        clear.of_kind(kind)
    }

    fn of_kind(&self, kind: PacketType) -> Result<&Self, ParseError> {
        if self.kind == kind as u8 { Ok(self) } else { Err(ParseError::Kind(self.kind)) }
    }

    /// The id of the source end, where it must have one.
    fn connection(&self) -> Result<u32, ParseError> {
        match self.from.get() {
            0 => Err(ParseError::Field("connection id")),
            id => Ok(id),
        }
    }
}

/// Bytes 0 to 15 of the OPEN of an end that holds a ticket's secret, which are also the end of the
/// prologue (`docs/protocol §3.2, §4.1`).
pub fn open_clear(connection: u32, uid: u32) -> [u8; HEADER_BYTES] {
    ClearFields::encode(PacketType::Open, 0, connection, uid)
}

/// Bytes 0 to 15 of the OPEN of an end with a static key (`docs/protocol §3.2, §4.8`).
pub fn key_open_clear(connection: u32, uid: u32) -> [u8; HEADER_BYTES] {
    let mut clear = open_clear(connection, uid);
    clear[0] = BY_KEY;
    clear
}

/// Bytes 0 to 15 of RESPONSE, with which the payload of its Noise message begins again; `to` is the
/// active end's id and `connection` the passive end's (`docs/protocol §3.2`).
pub fn response_clear(to: u32, connection: u32, uid: u32) -> [u8; HEADER_BYTES] {
    ClearFields::encode(PacketType::Response, to, connection, uid)
}

/// An OPEN without a cookie; `mac` makes the MAC over the parts it is given, in their order
/// (`docs/protocol §3.2`). With a `key` its clear bytes are [`key_open_clear`]'s. Of `noise`
/// only [`MAX_NOISE_BYTES`], less those of the key id, have room.
pub fn build_open(
    clear: &[u8; HEADER_BYTES],
    key: Option<KeyId>,
    noise: &[u8],
    mac: impl FnOnce(&[&[u8]]) -> [u8; MAC_BYTES],
) -> Vec<u8> {
    let key = key.as_ref().map_or(&[][..], |id| &id.0);
    let noise = &noise[..noise.len().min(MAX_NOISE_BYTES - key.len())];
    let mut open = Vec::with_capacity(OPEN_BYTES);
    open.extend_from_slice(clear);
    open.extend_from_slice(&[0; COOKIE_BYTES]);
    open.extend_from_slice(&(noise.len() as u16).to_be_bytes());
    open.extend_from_slice(key);
    open.extend_from_slice(noise);
    open.resize(OPEN_MAC_AT, 0);
    let mac = mac(&[&open[..HEADER_BYTES], &open[COOKIE_END..]]);
    open.extend_from_slice(&mac);
    open
}

/// The short form of a built OPEN: the same without padding (`docs/protocol §3.2`). `None` if
/// its content is too long for that.
pub fn shorten_open(open: &[u8]) -> Option<Vec<u8>> {
    let (most, mac) = open.split_at_checked(OPEN_MAC_AT)?;
    let short = short_bytes(*open.first()?);
    let (kept, left_out) = most.split_at_checked(short - MAC_BYTES)?;
    let fits = left_out.iter().all(|byte| *byte == 0) && mac.len() == MAC_BYTES;
    fits.then(|| [kept, mac].concat())
}

/// The whole of an OPEN that came in its short form; `None` for anything else.
pub fn widen_open(bytes: &[u8]) -> Option<Vec<u8>> {
    let open = bytes.get(2..4) == Some(&[VERSION, PacketType::Open as u8]);
    if bytes.len() != short_bytes(*bytes.first()?) || !open {
        return None;
    }
    let (kept, mac) = bytes.split_last_chunk::<MAC_BYTES>()?;
    let mut open = Vec::with_capacity(OPEN_BYTES);
    open.extend_from_slice(kept);
    open.resize(OPEN_MAC_AT, 0);
    open.extend_from_slice(mac);
    Some(open)
}

/// Bytes of the short form of an OPEN that begins with this byte.
const fn short_bytes(means: u8) -> usize {
    if means == BY_KEY { SHORT_KEY_OPEN_BYTES } else { SHORT_OPEN_BYTES }
}

/// Puts a cookie into a built OPEN, whose MAC does not cover it (`docs/protocol §3.2`); answers
/// whether another one, or none, stood there.
pub fn set_cookie(open: &mut [u8], cookie: &[u8; COOKIE_BYTES]) -> bool {
    let Some(place) = open.get_mut(HEADER_BYTES..COOKIE_END) else { return false };
    let another = place != cookie;
    place.copy_from_slice(cookie);
    another
}

/// The MAC of a built OPEN, which the MACs of COOKIE and REFUSED take in
/// (`docs/protocol §3.2`).
pub fn open_mac(open: &[u8]) -> &[u8] {
    open.get(OPEN_MAC_AT..).unwrap_or_default()
}

/// An OPEN of this version (`docs/protocol §3.2`).
pub fn parse_open(bytes: &[u8]) -> Result<OpenFrame<'_>, ParseError> {
    let clear = ClearFields::parse(bytes, PacketType::Open)?;
    let (key, noise) = open_noise(bytes, clear.means)?;
    open_frame(bytes, clear, key, noise)
}

/// An OPEN of any version, to refuse it with this version (`docs/protocol §4.2`). Ids and UID
/// are read where this version has them; a Noise message elsewhere is empty. RFC 998's OPEN has
/// another length and is none.
pub fn parse_open_of_any_version(bytes: &[u8]) -> Result<OpenFrame<'_>, ParseError> {
    let (clear, _) = ClearFields::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
    let clear = clear.of_kind(PacketType::Open)?;
    let (key, noise) = open_noise(bytes, clear.means).unwrap_or_default();
    open_frame(bytes, clear, key, noise)
}

fn open_frame<'a>(
    bytes: &'a [u8],
    clear: &ClearFields,
    key: Option<KeyId>,
    noise: &'a [u8],
) -> Result<OpenFrame<'a>, ParseError> {
    let mut reader = Reader::new(bytes);
    let covered_before = reader.bytes(HEADER_BYTES)?;
    let cookie = reader.array()?;
    let covered_after = reader.bytes(OPEN_MAC_AT - COOKIE_END)?;
    let mac = reader.array()?;
    reader.finish()?;
    let (connection, uid) = (clear.connection()?, clear.uid.get());
    Ok(OpenFrame { connection, uid, key, cookie, noise, mac, covered_before, covered_after })
}

/// OPEN's key id, if it has one, and its Noise message. The padding is not checked: the MAC covers
/// it.
fn open_noise(bytes: &[u8], means: u8) -> Result<(Option<KeyId>, &[u8]), ParseError> {
    let mut reader = Reader::new(bytes);
    reader.bytes(COOKIE_END)?;
    let len = usize::from(reader.u16()?);
    let key = match means {
        BY_SECRET => None,
        BY_KEY => Some(KeyId(reader.array()?)),
        _ => return Err(ParseError::Field("means of proof")),
    };
    let room = MAX_NOISE_BYTES - key.map_or(0, |_| KEY_ID_BYTES);
    if len > room {
        return Err(ParseError::Field("Noise message length"));
    }
    Ok((key, reader.bytes(len)?))
}

/// A RESPONSE (`docs/protocol §3.2`). Of `noise` only [`MAX_NOISE_BYTES`] are sent.
pub fn build_response(clear: &[u8; HEADER_BYTES], noise: &[u8]) -> Vec<u8> {
    let mut response = clear.to_vec();
    put_bytes(&mut response, noise, MAX_NOISE_BYTES);
    response
}

/// A RESPONSE (`docs/protocol §3.2`).
pub fn parse_response(bytes: &[u8]) -> Result<ResponseFrame<'_>, ParseError> {
    let clear = ClearFields::parse(bytes, PacketType::Response)?;
    let mut reader = Reader::new(bytes);
    reader.bytes(HEADER_BYTES)?;
    let len = usize::from(reader.u16()?);
    let noise = reader.bytes(len)?;
    reader.finish()?;
    if noise.len() > MAX_NOISE_BYTES {
        return Err(ParseError::Field("Noise message length"));
    }
    let (to, uid) = (clear.to.get(), clear.uid.get());
    Ok(ResponseFrame { to, connection: clear.connection()?, uid, noise })
}

/// A COOKIE for the OPEN with this id and UID; `mac` makes the MAC over the bytes it is given and
/// that OPEN's MAC (`docs/protocol §3.2`).
pub fn build_cookie(
    to: u32,
    uid: u32,
    cookie: &[u8; COOKIE_BYTES],
    mac: impl FnOnce(&[u8]) -> [u8; MAC_BYTES],
) -> Vec<u8> {
    let mut packet = ClearFields::encode(PacketType::Cookie, to, 0, uid).to_vec();
    packet.extend_from_slice(cookie);
    let mac = mac(&packet);
    packet.extend_from_slice(&mac);
    packet
}

/// A COOKIE (`docs/protocol §3.2`).
pub fn parse_cookie(bytes: &[u8]) -> Result<CookieFrame<'_>, ParseError> {
    let clear = ClearFields::parse(bytes, PacketType::Cookie)?;
    let mut reader = Reader::new(bytes);
    reader.bytes(HEADER_BYTES)?;
    let (cookie, mac) = (reader.array()?, reader.array()?);
    reader.finish()?;
    let covered = &bytes[..COOKIE_MAC_AT];
    Ok(CookieFrame { to: clear.to.get(), uid: clear.uid.get(), cookie, mac, covered })
}

/// A REFUSED for the OPEN with this id and UID, its reason cut to [`MAX_REASON`] bytes; `mac` makes
/// the MAC over the bytes it is given and that OPEN's MAC, or zeros for a hint
/// (`docs/protocol §3.2`).
pub fn build_refused(
    to: u32,
    uid: u32,
    for_now: bool,
    reason: &str,
    mac: impl FnOnce(&[u8]) -> [u8; MAC_BYTES],
) -> Vec<u8> {
    let mut packet = ClearFields::encode(PacketType::Refused, to, u32::from(for_now), uid).to_vec();
    put_bytes(&mut packet, cut(reason, MAX_REASON).as_bytes(), MAX_REASON);
    let mac = mac(&packet);
    packet.extend_from_slice(&mac);
    packet
}

/// A REFUSED (`docs/protocol §3.2`).
pub fn parse_refused(bytes: &[u8]) -> Result<RefusedFrame<'_>, ParseError> {
    let clear = ClearFields::parse(bytes, PacketType::Refused)?;
    let mut reader = Reader::new(bytes);
    reader.bytes(HEADER_BYTES)?;
    let len = usize::from(reader.u16()?);
    let reason = reader.bytes(len)?;
    let mac = reader.array()?;
    reader.finish()?;
    if reason.len() > MAX_REASON {
        return Err(ParseError::Field("reason"));
    }
    let covered = &bytes[..REASON_AT + len];
    let (to, uid, for_now) = (clear.to.get(), clear.uid.get(), clear.from.get() == FOR_NOW);
    Ok(RefusedFrame { to, uid, for_now, reason, mac, covered })
}

/// An UNKNOWN in answer to a packet under unknown keys: it quotes the packet's connection id and
/// number. `None` if it would not be shorter than the packet (`docs/protocol §3.2`).
pub fn build_unknown(packet: &[u8]) -> Option<[u8; UNKNOWN_BYTES]> {
    let quoted = packet.get(ID_AT..HEADER_BYTES).filter(|_| packet.len() > UNKNOWN_BYTES)?;
    let mut unknown = [0; UNKNOWN_BYTES];
    unknown[2..ID_AT].copy_from_slice(&[VERSION, PacketType::Unknown as u8]);
    unknown[UNKNOWN_BYTES - quoted.len()..].copy_from_slice(quoted);
    Some(unknown)
}

/// An UNKNOWN: the connection id and the number of the packet that it answers
/// (`docs/protocol §3.2`).
pub fn parse_unknown(bytes: &[u8]) -> Result<(u32, PacketNumber), ParseError> {
    let mut reader = Reader::new(bytes);
    let [_, _, version, kind] = reader.array()?;
    if version != VERSION {
        return Err(ParseError::Version(version));
    }
    if kind != PacketType::Unknown as u8 {
        return Err(ParseError::Kind(kind));
    }
    reader.u32()?;
    let (connection, number) = (reader.u32()?, reader.u64()?);
    reader.finish()?;
    Ok((connection, PacketNumber(number)))
}

/// Appends a length of 2 bytes and at most `max` of `bytes`, a number that fits 2 bytes.
fn put_bytes(out: &mut Vec<u8>, bytes: &[u8], max: usize) {
    let bytes = &bytes[..bytes.len().min(max)];
    out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAR: [u8; 16] = [0, 0, VERSION, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2];

    #[test]
    fn a_cookie_changes_nothing_that_the_mac_covers() {
        assert_eq!(open_clear(1, 2), CLEAR);
        let mut open = build_open(&CLEAR, None, &[5; 100], |parts| {
            assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 16 + 1184 - 48);
            [7; 16]
        });
        let plain = open.clone();
        assert!(set_cookie(&mut open, &[9; 32]) && !set_cookie(&mut open, &[9; 32]));
        let (before, after) = (parse_open(&plain).unwrap(), parse_open(&open).unwrap());
        assert_eq!((after.cookie, after.mac, after.noise), ([9; 32], [7; 16], &[5; 100][..]));
        assert_eq!(OpenFrame { cookie: [0; 32], ..after }, before);
        assert_eq!(open_mac(&open), [7; 16]);
        assert!(!set_cookie(&mut [0; 47], &[9; 32]));
        assert_eq!(open_mac(&[0; 47]), []);
    }

    #[test]
    fn an_open_holds_no_more_noise_than_it_has_room_for() {
        let mut open = build_open(&CLEAR, None, &[5; 2000], |_| [7; 16]);
        assert_eq!(open.len(), OPEN_BYTES);
        assert_eq!(parse_open(&open).unwrap().noise, [5; MAX_NOISE_BYTES]);
        open[49] += 1;
        assert_eq!(parse_open(&open), Err(ParseError::Field("Noise message length")));
        let clear = response_clear(1, 3, 2);
        assert!(build_response(&clear, &[5; 2000]).len() <= OPEN_BYTES);
    }

    #[test]
    fn a_short_open_is_the_same_open() {
        let open = build_open(&CLEAR, None, &[5; 480], |_| [7; 16]);
        let short = shorten_open(&open).unwrap();
        assert_eq!((short.len(), widen_open(&short)), (SHORT_OPEN_BYTES, Some(open)));
        assert!(parse_open(&short).is_err(), "as it came it is none");
        assert_eq!(shorten_open(&build_open(&CLEAR, None, &[5; 499], |_| [7; 16])), None);
        for other in [&short[1..], &[short.as_slice(), &[0]].concat(), &[1; SHORT_OPEN_BYTES]] {
            assert_eq!(widen_open(other), None);
        }
        // Whatever it draws has room in it.
        let response = build_response(&response_clear(1, 3, 2), &[5; 32 + 16 + 16 + 40 + 400]);
        let refused = build_refused(1, 2, false, &"x".repeat(MAX_REASON), |_| [7; 16]);
        assert!(response.len().max(refused.len()) <= SHORT_OPEN_BYTES);
    }

    #[test]
    fn an_open_by_a_static_key_has_the_key_id_and_room_for_the_longest_payload() {
        let (clear, id) = (key_open_clear(1, 2), KeyId([3; 8]));
        assert_eq!((clear[0], &clear[1..]), (1, &CLEAR[1..]));
        // The longest: ephemeral and static key, tags, parameters, client string.
        let noise = [5; 32 + 48 + 16 + 40 + 400];
        let open = build_open(&clear, Some(id), &noise, |_| [7; 16]);
        let frame = parse_open(&open).unwrap();
        assert_eq!((open.len(), frame.key, frame.noise), (OPEN_BYTES, Some(id), &noise[..]));
        let short = shorten_open(&open).unwrap();
        assert_eq!((short.len(), widen_open(&short)), (SHORT_KEY_OPEN_BYTES, Some(open.clone())));
        // Neither form is the other kind's.
        let mut other = short.clone();
        other[0] = 0;
        assert_eq!(widen_open(&other), None);
        let mut other = open;
        other[0] = 2;
        assert_eq!(parse_open(&other), Err(ParseError::Field("means of proof")));
        let most = build_open(&clear, Some(id), &[5; 2000], |_| [7; 16]);
        assert_eq!(parse_open(&most).unwrap().noise.len(), MAX_NOISE_BYTES - 8);
    }

    #[test]
    fn ids_that_must_be_there_are_not_zero() {
        let open = build_open(&open_clear(0, 2), None, &[], |_| [0; 16]);
        assert_eq!(parse_open(&open), Err(ParseError::Field("connection id")));
        let response = build_response(&response_clear(1, 0, 2), &[]);
        assert_eq!(parse_response(&response), Err(ParseError::Field("connection id")));
    }

    #[test]
    fn an_open_of_another_version_is_known_by_its_length_and_type() {
        let mut open = build_open(&CLEAR, None, &[], |_| [0; 16]);
        (open[2], open[48]) = (VERSION + 1, 0xff);
        assert_eq!(parse_open(&open), Err(ParseError::Version(VERSION + 1)));
        let frame = parse_open_of_any_version(&open).unwrap();
        assert_eq!((frame.connection, frame.uid, frame.noise), (1, 2, &[][..]));
        assert!(parse_open_of_any_version(&open[1..]).is_err());
        open[3] = 1;
        assert_eq!(parse_open_of_any_version(&open), Err(ParseError::Kind(1)));
    }

    #[test]
    fn a_frame_is_not_another_frame() {
        let response = build_response(&response_clear(1, 3, 2), &[5; 96]);
        assert_eq!(parse_open(&response), Err(ParseError::Kind(1)));
        assert_eq!(parse_cookie(&response), Err(ParseError::Kind(1)));
        assert_eq!(parse_refused(&response), Err(ParseError::Kind(1)));
    }

    #[test]
    fn a_refusal_is_no_longer_than_an_open() {
        let refused = build_refused(1, 2, true, &"ö".repeat(300), |_| [7; 16]);
        assert_eq!(refused.len(), 18 + 400 + 16);
        let frame = parse_refused(&refused).unwrap();
        assert_eq!((frame.reason.len(), frame.mac, frame.covered.len()), (400, [7; 16], 418));
        assert!(frame.for_now);
        let refused = build_refused(1, 2, false, "no", |_| [7; 16]);
        assert!(!parse_refused(&refused).unwrap().for_now);
    }

    #[test]
    fn unknown_quotes_its_packet_and_is_shorter() {
        let mut packet = [0; HEADER_BYTES + 16];
        packet[2..4].copy_from_slice(&[VERSION, 9]);
        packet[7] = 5;
        packet[15] = 6;
        let unknown = build_unknown(&packet).unwrap();
        assert_eq!(parse_unknown(&unknown), Ok((5, PacketNumber(6))));
        assert!(build_unknown(&packet[..UNKNOWN_BYTES]).is_none());
        assert!(build_unknown(&unknown).is_none(), "two ends never answer each other");
        assert!(parse_unknown(&packet).is_err() && parse_unknown(&unknown[..19]).is_err());
    }
}
