//! What is in a buffer on the `sealed` wire: data, and the table of the extents they are made of
//! (`docs/protocol.md §8`).
//!
//! Tables come from an authentic peer, who may still be a bad one: reading them is bounded in
//! memory, and nothing is said here about where a name leads. [`check_name`] refuses names that no
//! receiver should look at; that the others stay beneath the destination is for whoever opens them.

use thiserror::Error;

use crate::limits::{
    ATTRIBUTES_BYTES, DIGEST_BYTES, EXTENT_BYTES, MAX_DEPTH, MAX_NAME, MAX_PART, MAX_TABLE_BYTES,
    TRAILER_BYTES,
};
use crate::wire::sealed::{ParseError, Reader};

/// Flag: first extent of its file, attributes follow.
const FIRST: u8 = 1;
/// Flag: last extent of its file, its digest follows.
const LAST: u8 = 2;

/// What a numbered thing of a transfer is (`docs/protocol.md §8.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File = 0,
    /// A directory, which has no content.
    Directory = 1,
    /// Bytes without a place in a file system, of a length not known before.
    Stream = 2,
    /// A file or directory that the sender cannot send after all: what came of it is not kept. Its
    /// one extent of this kind has no content and no digest, and attributes only if no other had.
    Withdrawn = 3,
    /// A regular file of which the receiver has parts, or all, and the sender has found that they
    /// are those of its own file (`docs/protocol.md §8.7`): they do not come again. Its one extent
    /// of this kind has no content, and attributes; and the digest, if nothing of it comes.
    Kept = 4,
}

/// What a receiver needs to create a file (`docs/protocol.md §8.2`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Unix permission bits.
    pub mode: u32,
    /// Modification time: whole seconds since 1970, negative before.
    pub mtime_seconds: i64,
    /// Modification time: nanoseconds after `mtime_seconds`, below 10^9.
    pub mtime_nanos: u32,
    /// Path relative to the destination, `/` between its parts; not checked by
    /// [`parse_image`] but for its length (see [`check_name`]).
    pub name: Vec<u8>,
}

/// A piece of a file, and where it belongs (`docs/protocol.md §8.2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// File number, from 0, in the order of the sender's plan.
    pub file: u64,
    /// Bytes of the file before it, a multiple of the buffer size.
    pub offset: u64,
    /// Bytes in it, at most the buffer size.
    pub length: u32,
    /// What it is a piece of.
    pub kind: Kind,
    /// With the first extent of a file.
    pub attributes: Option<Attributes>,
    /// With the last extent of a file, which ends with it: BLAKE3 of the file's content.
    pub digest: Option<[u8; 32]>,
}

/// Why an image or a table is none (`docs/protocol.md §8.1, §8.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ContentError {
    /// The table does not have its layout, or a value is beyond its bounds.
    #[error("extent table: {0}")]
    Table(#[from] ParseError),
    /// The lengths of the extents do not add up to that of the data.
    #[error("the extents do not add up to the data")]
    Lengths,
    /// Longer than any table may be.
    #[error("the extent table is too long")]
    TooLong,
}

/// Bytes that `extent` takes in a table (`docs/protocol.md §8.2`).
pub fn encoded_len(extent: &Extent) -> usize {
    let attributes = extent.attributes.as_ref().map_or(0, |a| ATTRIBUTES_BYTES + a.name.len());
    EXTENT_BYTES + attributes + if extent.digest.is_some() { DIGEST_BYTES } else { 0 }
}

/// Bytes that the table of `extents` takes in an image, its trailing length included: what counts
/// against the table bytes negotiated (`docs/protocol.md §3.2, §8.1`).
pub fn table_len(extents: &[Extent]) -> usize {
    extents.iter().map(encoded_len).sum::<usize>() + TRAILER_BYTES
}

/// Appends the table of `extents` and its length to the data, which makes them an image
/// (`docs/protocol.md §8.1`). On an error nothing is appended: a name has more than [`MAX_NAME`]
/// bytes, or the table more than 1 MiB.
pub fn encode_table(extents: &[Extent], image: &mut Vec<u8>) -> Result<(), ContentError> {
    let names = extents.iter().filter_map(|extent| extent.attributes.as_ref());
    if names.into_iter().any(|attributes| attributes.name.len() > MAX_NAME) {
        return Err(ParseError::Field("name length").into());
    }
    let len = table_len(extents);
    if len > MAX_TABLE_BYTES as usize {
        return Err(ContentError::TooLong);
    }
    image.reserve(len);
    for extent in extents {
        encode_extent(extent, image);
    }
    image.extend_from_slice(&((len - TRAILER_BYTES) as u32).to_be_bytes());
    Ok(())
}

fn encode_extent(extent: &Extent, out: &mut Vec<u8>) {
    let first = if extent.attributes.is_some() { FIRST } else { 0 };
    let last = if extent.digest.is_some() { LAST } else { 0 };
    out.extend_from_slice(&extent.file.to_be_bytes());
    out.extend_from_slice(&extent.offset.to_be_bytes());
    out.extend_from_slice(&extent.length.to_be_bytes());
    out.extend_from_slice(&[first | last, extent.kind as u8, 0, 0]);
    if let Some(Attributes { mode, mtime_seconds, mtime_nanos, name }) = &extent.attributes {
        out.extend_from_slice(&mode.to_be_bytes());
        out.extend_from_slice(&mtime_seconds.to_be_bytes());
        out.extend_from_slice(&mtime_nanos.to_be_bytes());
        out.extend_from_slice(&(name.len() as u16).to_be_bytes());
        out.extend_from_slice(name);
    }
    if let Some(digest) = &extent.digest {
        out.extend_from_slice(digest);
    }
}

/// The data of an assembled buffer and the extents they are made of, in their order
/// (`docs/protocol.md §8.1, §8.2`). `buffer_bytes` is the negotiated data area.
///
/// Each extent is within its bounds and all of them together are the data. How extents of different
/// buffers go together is not seen here.
pub fn parse_image(image: &[u8], buffer_bytes: u32) -> Result<(&[u8], Vec<Extent>), ContentError> {
    let (rest, len) = image.split_last_chunk().ok_or(ParseError::Truncated)?;
    let table_bytes = u32::from_be_bytes(*len) as usize;
    if table_bytes > MAX_TABLE_BYTES as usize - TRAILER_BYTES {
        return Err(ContentError::TooLong);
    }
    let data_bytes = rest.len().checked_sub(table_bytes).ok_or(ParseError::Truncated)?;
    let (data, table) = rest.split_at(data_bytes);
    let mut reader = Reader::new(table);
    let (mut extents, mut described) = (Vec::new(), 0u64);
    while !reader.is_empty() {
        let extent = parse_extent(&mut reader, buffer_bytes)?;
        described += u64::from(extent.length);
        extents.push(extent);
    }
    if data.len() > buffer_bytes as usize || described != data.len() as u64 {
        return Err(ContentError::Lengths);
    }
    Ok((data, extents))
}

fn parse_extent(reader: &mut Reader<'_>, buffer_bytes: u32) -> Result<Extent, ParseError> {
    let (file, offset, length) = (reader.u64()?, reader.u64()?, reader.u32()?);
    let [flags, kind, _, _] = reader.array()?;
    if !offset.is_multiple_of(buffer_bytes.into()) || offset.checked_add(length.into()).is_none() {
        return Err(ParseError::Field("extent offset"));
    }
    if length > buffer_bytes {
        return Err(ParseError::Field("extent length"));
    }
    if flags & !(FIRST | LAST) != 0 {
        return Err(ParseError::Field("extent flags"));
    }
    let kind = match kind {
        0 => Kind::File,
        1 if (offset, length) == (0, 0) => Kind::Directory,
        1 => return Err(ParseError::Field("directory length")),
        2 => Kind::Stream,
        3 if (offset, length) == (0, 0) && flags & LAST == 0 => Kind::Withdrawn,
        3 => return Err(ParseError::Field("withdrawn file")),
        4 if (offset, length) == (0, 0) && flags & FIRST != 0 => Kind::Kept,
        4 => return Err(ParseError::Field("kept file")),
        _ => return Err(ParseError::Field("extent kind")),
    };
    let attributes = if flags & FIRST == 0 { None } else { Some(parse_attributes(reader)?) };
    let digest = if flags & LAST == 0 { None } else { Some(reader.array()?) };
    Ok(Extent { file, offset, length, kind, attributes, digest })
}

fn parse_attributes(reader: &mut Reader<'_>) -> Result<Attributes, ParseError> {
    let mode = reader.u32()?;
    let mtime_seconds = reader.array().map(i64::from_be_bytes)?;
    let mtime_nanos = reader.u32()?;
    if mtime_nanos >= 1_000_000_000 {
        return Err(ParseError::Field("modification time"));
    }
    let len = usize::from(reader.u16()?);
    if len > MAX_NAME {
        return Err(ParseError::Field("name length"));
    }
    Ok(Attributes { mode, mtime_seconds, mtime_nanos, name: reader.bytes(len)?.to_vec() })
}

/// Whether a receiver may look at this name at all; `Err` says why not
/// (`docs/protocol.md §8.4`). What depends on other names or on the disk is not known here.
pub fn check_name(name: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("the name is empty");
    }
    if name.len() > MAX_NAME {
        return Err("the name is longer than 4,096 bytes");
    }
    // NUL is one of them.
    if name.iter().any(u8::is_ascii_control) {
        return Err("the name has control characters");
    }
    if name[0] == b'/' {
        return Err("the name is an absolute path");
    }
    for (depth, part) in name.split(|&byte| byte == b'/').enumerate() {
        if depth >= MAX_DEPTH {
            return Err("the name has more than 128 parts");
        }
        match part {
            b"" => return Err("the name has an empty part"),
            b"." => return Err("the name has a part '.'"),
            b".." => return Err("the name has a part '..'"),
            _ if part.len() > MAX_PART => return Err("the name has a part over 255 bytes"),
            _ => {}
        }
    }
    Ok(())
}

/// Makes the digest of a transfer of those of its files (`docs/protocol.md §8.3`).
#[derive(Clone, Debug, Default)]
pub struct TransferDigest(blake3::Hasher);

impl TransferDigest {
    /// The digest of no files yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a file: its number, kind, length in bytes, BLAKE3 of its content, and name. Files
    /// must come in the order of their numbers, or the digest is another one.
    pub fn add(&mut self, file: u64, kind: Kind, length: u64, digest: &[u8; 32], name: &[u8]) {
        // Longer names are never sent; should one come, its bytes are taken in all the same.
        let name_len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        self.0
            .update(&file.to_be_bytes())
            .update(&[kind as u8])
            .update(&length.to_be_bytes())
            .update(digest)
            .update(&name_len.to_be_bytes())
            .update(name);
    }

    /// The digest of the files taken in so far, for END and DONE.
    pub fn finish(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const BUFFER_BYTES: u32 = 1 << 10;

    fn extent(length: u32) -> Extent {
        Extent { file: 1, offset: 0, length, kind: Kind::File, attributes: None, digest: None }
    }

    fn image(data: usize, extents: &[Extent]) -> Vec<u8> {
        let mut image = vec![0xaa; data];
        encode_table(extents, &mut image).unwrap();
        assert_eq!(image.len(), data + table_len(extents));
        image
    }

    fn parsed(data: usize, extents: &[Extent]) -> Result<usize, ContentError> {
        parse_image(&image(data, extents), BUFFER_BYTES).map(|(data, _)| data.len())
    }

    #[test]
    fn extents_are_the_data_and_nothing_else() {
        assert_eq!(parsed(0, &[]), Ok(0));
        assert_eq!(parsed(1024, &[extent(1000), extent(0), extent(24)]), Ok(1024));
        assert_eq!(parsed(1, &[]), Err(ContentError::Lengths));
        assert_eq!(parsed(9, &[extent(10)]), Err(ContentError::Lengths));
        assert_eq!(parsed(1025, &[extent(1000), extent(25)]), Err(ContentError::Lengths));
        // Lengths that add up only modulo 2^32 are each too long.
        let result = parsed(0, &[extent(1 << 31), extent(1 << 31)]);
        assert_eq!(result, Err(ParseError::Field("extent length").into()));
    }

    #[test]
    fn fields_stay_within_their_bounds() {
        let with = |change: &dyn Fn(&mut Extent)| {
            let mut extent = extent(10);
            change(&mut extent);
            parsed(10, &[extent])
        };
        let wrong = |name| Err(ParseError::Field(name).into());
        let last = u64::MAX - 1023;
        assert_eq!(with(&|e| e.offset = last), Ok(10));
        assert_eq!(with(&|e| e.offset = 1000), wrong("extent offset"));
        assert_eq!(with(&|e| e.kind = Kind::Directory), wrong("directory length"));
        assert_eq!(with(&|e| e.kind = Kind::Withdrawn), wrong("withdrawn file"));
        let withdrawn = Extent { kind: Kind::Withdrawn, ..extent(0) };
        assert_eq!(parsed(0, std::slice::from_ref(&withdrawn)), Ok(0));
        let ended = Extent { digest: Some([0; 32]), ..withdrawn };
        assert_eq!(parsed(0, &[ended]), wrong("withdrawn file"));
        assert_eq!(with(&|e| e.kind = Kind::Kept), wrong("kept file"));
        let attributes = Some(Attributes::default());
        let kept = Extent { kind: Kind::Kept, attributes, ..extent(0) };
        assert_eq!(parsed(0, std::slice::from_ref(&kept)), Ok(0));
        let unnamed = Extent { attributes: None, ..kept };
        assert_eq!(parsed(0, &[unnamed]), wrong("kept file"));
        let full = Extent { offset: last, ..extent(1024) };
        assert_eq!(parsed(1024, &[full]), wrong("extent offset"));
        let nanos = |mtime_nanos| Some(Attributes { mtime_nanos, ..Attributes::default() });
        assert_eq!(with(&|e| e.attributes = nanos(999_999_999)), Ok(10));
        assert_eq!(with(&|e| e.attributes = nanos(1_000_000_000)), wrong("modification time"));
        for (at, byte, name) in [(20, 4, "extent flags"), (21, 5, "extent kind")] {
            let mut image = image(10, &[extent(10)]);
            image[10 + at] = byte;
            let read = parse_image(&image, BUFFER_BYTES).map(|(data, _)| data.len());
            assert_eq!(read, wrong(name));
        }
    }

    #[test]
    fn tables_and_names_that_are_too_long_are_not_written_or_read() {
        let named = |len| {
            let name = vec![b'x'; len];
            let attributes = Some(Attributes { name, ..Attributes::default() });
            Extent { attributes, ..extent(0) }
        };
        assert_eq!(parsed(0, &[named(MAX_NAME)]), Ok(0));
        let mut out = Vec::new();
        let long = encode_table(&[named(MAX_NAME + 1)], &mut out);
        assert_eq!(long, Err(ParseError::Field("name length").into()));
        let most = (MAX_TABLE_BYTES as usize - TRAILER_BYTES) / EXTENT_BYTES;
        assert_eq!(encode_table(&vec![extent(0); most + 1], &mut out), Err(ContentError::TooLong));
        assert!(out.is_empty());
        let mut image = image(0, &vec![extent(0); most]);
        assert_eq!(parse_image(&image, BUFFER_BYTES).unwrap().1.len(), most);
        let at = image.len() - 4;
        image[at..].copy_from_slice(&(MAX_TABLE_BYTES - 3).to_be_bytes());
        assert_eq!(parse_image(&image, BUFFER_BYTES), Err(ContentError::TooLong));
    }

    #[test]
    fn names_that_could_harm_are_refused() {
        let (part, name) = ("x".repeat(255), ("x".repeat(31) + "/").repeat(127) + &"x".repeat(32));
        assert_eq!(name.len(), MAX_NAME);
        for good in ["a", "a/b.c", "...", "..a/a..", "größer 文", &part, &name] {
            assert_eq!(check_name(good.as_bytes()), Ok(()), "{good:?}");
        }
        assert_eq!(check_name(&[0xff, 0x80]), Ok(()));
        let (part, name, deep) = (part + "x", name + "x", "x/".repeat(128) + "x");
        for bad in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/.",
            "./a",
            "a/../b",
            "../a",
            "a/..",
            "a\0b",
            "a\nb",
            "\u{1b}[2J",
            "a\u{7f}",
            "\u{1f}",
            &part,
            &name,
            &deep,
        ] {
            assert!(check_name(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_transfers_digest_depends_on_every_field_and_on_the_order() {
        let digest = |files: &[(u64, Kind, u64, u8, &str)]| {
            let mut transfer = TransferDigest::new();
            for (file, kind, length, digest, name) in files {
                transfer.add(*file, *kind, *length, &[*digest; 32], name.as_bytes());
            }
            transfer.finish()
        };
        assert_eq!(digest(&[]), *blake3::hash(&[]).as_bytes());
        let (one, two) = ((0, Kind::File, 5, 7, "one"), (1, Kind::File, 5, 7, "two"));
        let mut bytes = [0; 8].to_vec();
        bytes.push(0);
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 5]);
        bytes.extend_from_slice(&[7; 32]);
        bytes.extend_from_slice(b"\0\x03one");
        let plain = digest(&[one]);
        assert_eq!(plain, *blake3::hash(&bytes).as_bytes());
        assert_ne!(digest(&[one, two]), digest(&[two, one]));
        for other in [
            (9, Kind::File, 5, 7, "one"),
            (0, Kind::Stream, 5, 7, "one"),
            (0, Kind::File, 6, 7, "one"),
            (0, Kind::File, 5, 8, "one"),
            (0, Kind::File, 5, 7, "on"),
        ] {
            assert_ne!(digest(&[other]), plain);
        }
    }

    fn extents() -> impl Strategy<Value = Vec<Extent>> {
        let kind = prop_oneof![Just(Kind::File), Just(Kind::Directory), Just(Kind::Stream)];
        let attributes = (any::<u32>(), any::<i64>(), 0..1_000_000_000u32, vec(any::<u8>(), 0..9))
            .prop_map(|(mode, mtime_seconds, mtime_nanos, name)| Attributes {
                mode,
                mtime_seconds,
                mtime_nanos,
                name,
            });
        let place = (any::<u64>(), 0..u64::MAX >> 10, 0..100u32);
        let extent = (place, kind, proptest::option::of(attributes), any::<Option<[u8; 32]>>());
        let extent = extent.prop_map(|((file, at, length), kind, attributes, digest)| {
            let directory = kind == Kind::Directory;
            let (offset, length) = if directory { (0, 0) } else { (at << 10, length) };
            Extent { file, offset, length, kind, attributes, digest }
        });
        vec(extent, 0..10)
    }

    proptest! {
        #[test]
        fn an_image_is_read_as_it_was_made(extents in extents()) {
            let data = extents.iter().map(|e| e.length as usize).sum();
            let image = image(data, &extents);
            let (bytes, read) = parse_image(&image, BUFFER_BYTES).unwrap();
            prop_assert_eq!((bytes, read), (&image[..data], extents));
            for len in 0..image.len() {
                prop_assert!(parse_image(&image[..len], BUFFER_BYTES).is_err());
            }
        }

        #[test]
        fn no_bytes_make_an_image_panic(
            bytes in vec(any::<u8>(), 0..300),
            table_bytes in 0..300u32,
            buffer_bytes in any::<u32>(),
        ) {
            let _ = parse_image(&bytes, buffer_bytes);
            let image = [&bytes[..], &table_bytes.to_be_bytes()].concat();
            let _ = parse_image(&image, 0);
            let _ = check_name(&bytes);
            if let Ok((data, extents)) = parse_image(&image, buffer_bytes) {
                let mut again = data.to_vec();
                encode_table(&extents, &mut again).unwrap();
                prop_assert_eq!(parse_image(&again, buffer_bytes), Ok((data, extents)));
            }
        }
    }
}
