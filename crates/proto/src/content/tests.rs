//! Valid and invalid images and names.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const BUFFER_BYTES: u32 = 1 << 10;

fn extent(length: u32) -> Extent {
    let (kind, pieces) = (Kind::File, None);
    Extent { file: 1, offset: 0, length, kind, pieces, attributes: None, digest: None }
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
    for (at, byte, name) in
        [(20, 16, "extent flags"), (20, 8, "extent flags"), (21, 7, "extent kind")]
    {
        let mut image = image(10, &[extent(10)]);
        image[10 + at] = byte;
        let read = parse_image(&image, BUFFER_BYTES).map(|(data, _)| data.len());
        assert_eq!(read, wrong(name));
    }
}

#[test]
fn links_are_one_extent_and_hard_links_refer_to_an_earlier_file() {
    let named = Some(Attributes { name: b"l".to_vec(), ..Attributes::default() });
    let whole = |kind, offset, length| {
        let (attributes, digest) = (named.clone(), Some([1; 32]));
        Extent { file: 3, offset, kind, attributes, digest, ..extent(length) }
    };
    let wrong = |name| Err(ParseError::Field(name).into());
    let link = |offset, length| {
        let image = image(length as usize, &[whole(Kind::SymbolicLink, offset, length)]);
        parse_image(&image, 1 << 13).map(|(data, _)| data.len())
    };
    assert_eq!((link(0, 1), link(0, 4095)), (Ok(1), Ok(4095)));
    for (offset, length) in [(0, 0), (0, 4096), (1 << 13, 5)] {
        assert_eq!(link(offset, length), wrong("symbolic link"), "{offset} {length}");
    }
    let endless = Extent { digest: None, ..whole(Kind::SymbolicLink, 0, 9) };
    assert_eq!(parsed(9, &[endless]), wrong("symbolic link"));
    let link = |to, length| parsed(length as usize, &[whole(Kind::HardLink, to, length)]);
    assert_eq!((link(0, 0), link(2, 0)), (Ok(0), Ok(0)));
    for (to, length) in [(3, 0), (4, 0), (u64::MAX, 0), (2, 1)] {
        assert_eq!(link(to, length), wrong("hard link"), "{to} {length}");
    }
    let nameless = Extent { attributes: None, ..whole(Kind::HardLink, 0, 0) };
    assert_eq!(parsed(0, &[nameless]), wrong("hard link"));
}

#[test]
fn holes_are_within_their_extent_and_bounded() {
    let with = |length, pieces: &[(u32, u32)]| {
        let piece = |(from, bytes): &(u32, u32)| DataRun { from: *from, bytes: *bytes };
        let pieces: Vec<DataRun> = pieces.iter().map(piece).collect();
        let extent = Extent { pieces: Some(pieces), ..extent(length) };
        parsed(extent.data_bytes() as usize, &[extent])
    };
    let wrong = Err(ParseError::Field("pieces").into());
    assert_eq!(with(1024, &[]), Ok(0));
    assert_eq!(with(1024, &[(0, 1), (1, 1), (1023, 1)]), Ok(3));
    for pieces in [
        &[(0, 1025)][..],
        &[(1024, 1)],
        &[(5, 0)],
        &[(5, 2), (6, 2)],
        &[(5, 2), (1, 2)],
        &[(u32::MAX, 2)],
    ] {
        assert_eq!(with(1024, pieces), wrong, "{pieces:?}");
    }
    let of_a_stream = Extent { kind: Kind::Stream, pieces: Some(vec![]), ..extent(9) };
    assert_eq!(parsed(0, &[of_a_stream]), Err(ParseError::Field("extent flags").into()));
    let hole = Extent { pieces: Some(vec![]), ..extent(1 << 24) };
    let most = (MAX_HOLES_BYTES >> 24) as usize;
    let parsed = |count| parse_image(&image(0, &vec![hole.clone(); count]), 1 << 24).is_ok();
    assert_eq!((parsed(most), parsed(most + 1)), (true, false));
}

#[test]
fn further_attributes_are_read_strictly() {
    let owner = Owner { uid: 1, gid: 2, user: b"u".to_vec(), group: b"g".to_vec() };
    let more =
        ExtraAttributes { owner: Some(owner), xattrs: vec![(b"user.a".to_vec(), b"v".to_vec())] };
    let read = |bytes: &[u8]| ExtraAttributes::parse(&mut Reader::new(bytes));
    let mut bytes = Vec::new();
    more.encode(&mut bytes);
    assert_eq!(bytes.len(), more.encoded_len());
    assert_eq!(read(&bytes), Ok(more));
    // An unknown type is skipped; a second owner and a value without a name are errors.
    assert_eq!(read(&[0, 4, 9, 0, 1, 7]), Ok(ExtraAttributes::default()));
    assert!(read(&[0, 4, 2, 0, 1, 0]).is_err());
    assert!(read(&[0, 5, 2, 0, 2, 1, 0]).is_err());
    let twice = [&[0, 24, 1, 0, 9][..], &[0; 9], &[1, 0, 9], &[0; 9]].concat();
    assert!(read(&twice[..14]).is_err() && read(&twice).is_err());
    let large = ExtraAttributes {
        xattrs: vec![(b"user.a".to_vec(), vec![0; 65_525])],
        ..ExtraAttributes::default()
    };
    let encoded = |more| {
        let attributes = Some(Attributes { more, ..Attributes::default() });
        encode_table(&[Extent { attributes, ..extent(0) }], &mut Vec::new())
    };
    let mut larger = large.clone();
    larger.xattrs[0].1.push(0);
    assert_eq!((encoded(large), encoded(larger)), (Ok(()), Err(ContentError::TooLong)));
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
    // Files have such names; output to people must escape them.
    for odd in [&[0xff, 0x80][..], b"a\nb", b"\x1b[2J", b"\x7f"] {
        assert_eq!(check_name(odd), Ok(()));
    }
    let (part, name, deep) = (part + "x", name + "x", "x/".repeat(128) + "x");
    for bad in [
        "", "/", "/a", "a/", "a//b", ".", "..", "a/.", "./a", "a/../b", "../a", "a/..", "a\0b",
        "\0", &part, &name, &deep,
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

fn more() -> impl Strategy<Value = ExtraAttributes> {
    let name = || vec(1..=255u8, 1..9);
    let owner = (any::<u32>(), any::<u32>(), name(), vec(any::<u8>(), 0..9))
        .prop_map(|(uid, gid, user, group)| Owner { uid, gid, user, group });
    (proptest::option::of(owner), vec((name(), vec(any::<u8>(), 0..9)), 0..3))
        .prop_map(|(owner, xattrs)| ExtraAttributes { owner, xattrs })
}

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let kind = prop_oneof![Just(Kind::File), Just(Kind::Directory), Just(Kind::Stream)];
    let attributes =
        (any::<u32>(), any::<i64>(), 0..1_000_000_000u32, vec(any::<u8>(), 0..9), more()).prop_map(
            |(mode, mtime_seconds, mtime_nanos, name, more)| Attributes {
                mode,
                mtime_seconds,
                mtime_nanos,
                name,
                more,
            },
        );
    let place = (any::<u64>(), 0..u64::MAX >> 10, 0..100u32);
    let pieces = proptest::option::of(vec((1..9u32, 1..9u32), 0..5));
    let digest = any::<Option<[u8; 32]>>();
    let extent = (place, kind, proptest::option::of(attributes), digest, pieces);
    let extent = extent.prop_map(|((file, at, length), kind, attributes, digest, pieces)| {
        let directory = kind == Kind::Directory;
        let (offset, length) = if directory { (0, 0) } else { (at << 10, length) };
        let mut end = 0;
        let pieces = pieces.filter(|_| kind == Kind::File).map(|gaps| {
            let piece = |(gap, bytes)| {
                let from = end + gap;
                end = from + bytes;
                DataRun { from, bytes }
            };
            let all: Vec<DataRun> = gaps.into_iter().map(piece).collect();
            all.into_iter().filter(|piece| piece.from + piece.bytes <= length).collect()
        });
        Extent { file, offset, length, kind, pieces, attributes, digest }
    });
    vec(extent, 0..10)
}

proptest! {
    #[test]
    fn an_encoded_image_parses_to_the_same_extents(extents in extents()) {
        let data = extents.iter().map(|e| e.data_bytes() as usize).sum();
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
