//! Requests and the lines of answers, as bytes and back.

use netblt_proto::content::FileRange;

use super::*;

fn push() -> PushTarget {
    let own = StaticKey::from_bytes([7; 32]);
    PushTarget { number: 9, server: PublicKey([3; 32]), own, address: "host:1".to_owned() }
}

fn put_range(range: FileRange) -> PutRange {
    PutRange { file: [1; 32], label: [2; 32], range, verify: true }
}

fn join(total: u64, bytes: u64) -> Join {
    let (to, modified) = (b"d/\xff".to_vec(), (-7, 999_999_999));
    Join { to, file: [3; 32], total, bytes, mode: 0o640, modified, replace: true }
}

fn requests() -> Vec<Request> {
    let put = Put { replace: true, atomic: true, times: true, ..Put::default() };
    let labelled = Put { verify: true, via_server: true, label: Some([0; 32]), ..put };
    let whats = [
        RequestKind::Get { trees: true, name: b"n\xff".to_vec(), subflows: 0 },
        RequestKind::Get { trees: false, name: b"n".to_vec(), subflows: 16 },
        RequestKind::Put(put),
        RequestKind::Put(labelled),
        RequestKind::Stat { trees: false },
        RequestKind::Stat { trees: true },
        RequestKind::List { after: b"x".to_vec(), most: 1000 },
        RequestKind::MakeDir { parents: true },
        RequestKind::Remove { directory: true, tree: false },
        RequestKind::Remove { directory: false, tree: true },
        RequestKind::Rename { to: b"b/\xfe".to_vec(), replace: true },
        RequestKind::Copy { to: b"c".to_vec(), how: Copying { trees: true, ..Copying::default() } },
        RequestKind::Copy { to: vec![], how: Copying { keep: true, replace: true, trees: false } },
        RequestKind::Send { trees: true, name: b"n".to_vec(), push: push() },
        RequestKind::PutRange(put_range(FileRange { offset: 4096, length: 2048, total: 9000 })),
        RequestKind::Join(join(9000, 2048)),
    ];
    whats.map(|what| Request { what, path: b"a/\xfe b".to_vec() }).into()
}

#[test]
fn a_request_is_parsed_and_the_rest_is_returned() {
    for request in requests() {
        let bytes = [&request.encode()[..], b"rest"].concat();
        assert_eq!(Request::parse(&bytes), Some((request, &b"rest"[..])));
    }
}

#[test]
fn an_invalid_or_truncated_request_is_refused() {
    for request in requests() {
        let bytes = request.encode();
        for end in 0..bytes.len() {
            assert_eq!(Request::parse(&bytes[..end]), None);
        }
    }
    for path in [&b"../x"[..], b"/etc", b"a//b", b"a/./b", b"a\0"] {
        let bytes =
            Request { what: RequestKind::Stat { trees: false }, path: path.to_vec() }.encode();
        assert_eq!(Request::parse(&bytes), None, "{}", String::from_utf8_lossy(path));
    }
    for to in [&b"../x"[..], b"/etc", b"a/../../b"] {
        let (path, to) = (b"a".to_vec(), to.to_vec());
        let whats = [
            RequestKind::Rename { to: to.clone(), replace: false },
            RequestKind::Copy { to: to.clone(), how: Copying::default() },
            RequestKind::Read { pieces: vec![Piece { path: to, offset: 0, bytes: 1 }] },
        ];
        for what in whats {
            let bytes = Request { what, path: path.clone() }.encode();
            assert_eq!(Request::parse(&bytes), None);
        }
    }
    for name in [&b""[..], b"..", b"a/b"] {
        let what = RequestKind::Get { trees: false, name: name.to_vec(), subflows: 0 };
        assert_eq!(Request::parse(&Request { what, path: vec![] }.encode()), None);
    }
    let refused = |what| Request::parse(&Request { what, path: vec![] }.encode()).is_none();
    for (offset, length, total) in [(0, 9000, 9000), (1024, 2048, 9000), (8192, 900, 9000)] {
        let range = FileRange { offset, length, total };
        assert!(refused(RequestKind::PutRange(put_range(range))), "{range:?}");
    }
    for (total, bytes) in [(9000, 0), (9000, 3000), (9000, 512), (9000, 16_384), (1 << 40, 1024)] {
        assert!(refused(RequestKind::Join(join(total, bytes))), "{total} {bytes}");
    }
    assert!(refused(RequestKind::Join(Join { to: b"../x".to_vec(), ..join(9000, 2048) })));
    let mut odd = requests()[0].encode();
    odd[4] = 99;
    assert_eq!(Request::parse(&odd), None);
}

#[test]
fn pieces_are_understood_and_bounded() {
    let piece = |path: &[u8], offset| Piece { path: path.to_vec(), offset, bytes: u64::MAX };
    let of = |pieces| Request { what: RequestKind::Read { pieces }, path: b"a/\xfe".to_vec() };
    let some = vec![piece(b"a/\xfe", 0), piece(b"a/\xfe", 7), piece(b"b", u64::MAX)];
    for pieces in [vec![], some, vec![piece(b"x", 1); MAX_PIECES]] {
        let request = of(pieces);
        let bytes = [&request.encode()[..], b"rest"].concat();
        assert_eq!(Request::parse(&bytes), Some((request, &b"rest"[..])));
    }
    assert_eq!(Request::parse(&of(vec![piece(b"x", 1); MAX_PIECES + 1]).encode()), None);
    let two = vec![piece(&[b'x'; 200], 1), piece(b"b", 1)];
    let long: Vec<Piece> = std::iter::repeat_n(two, 1300).flatten().collect();
    assert!(long.len() < MAX_PIECES && Request::parse(&of(long).encode()).is_none());
    let mut cut = of(vec![piece(b"x", 1)]).encode();
    cut.pop();
    let length = u32::try_from(cut.len() - 4).expect("short");
    cut[..4].copy_from_slice(&length.to_be_bytes());
    assert_eq!(Request::parse(&cut), None);
}

#[test]
fn a_copy_needs_permission_to_read_and_to_write() {
    let refused = |what| {
        let request = Request { what, path: vec![] };
        [(true, false), (false, true), (true, true)]
            .map(|(read, write)| request.check_permission(read, write).is_some())
    };
    let to = b"x".to_vec();
    let copy = RequestKind::Copy { to: to.clone(), how: Copying::default() };
    assert_eq!(refused(copy), [true, true, false]);
    assert_eq!(refused(RequestKind::Rename { to, replace: true }), [true, false, false]);
    assert_eq!(refused(RequestKind::Read { pieces: vec![] }), [false, true, false]);
    assert_eq!(refused(RequestKind::Stat { trees: false }), [false, true, false]);
    let send = RequestKind::Send { trees: false, name: b"n".to_vec(), push: push() };
    assert_eq!(refused(send), [false, true, false]);
    assert_eq!(refused(RequestKind::MakeDir { parents: true }), [true, false, false]);
}

#[test]
fn a_users_path_becomes_plain_and_never_leads_up() {
    for (path, is) in [("", ""), ("/", ""), ("/a//b/", "a/b"), ("./a/.", "a")] {
        assert_eq!(plain(path.as_bytes()).as_deref(), Ok(is.as_bytes()));
    }
    assert!(plain(b"a/../b").is_err());
    assert!(plain(b"..").is_err());
}

#[test]
fn lines_are_understood() {
    let entry = |name: &[u8], sort| Entry {
        name: name.to_vec(),
        sort,
        length: 7,
        data: 7,
        modified: (-3, 999_999_999),
        mode: 0o644,
    };
    for line in [
        ResponseItem::Entry(entry(b"a b \xff", EntryType::File)),
        ResponseItem::Entry(entry(b"", EntryType::Directory)),
        ResponseItem::Entry(entry(b"l", EntryType::Link)),
        ResponseItem::Entry(entry(b"o", EntryType::Other)),
        ResponseItem::Room(5),
        ResponseItem::More,
        ResponseItem::Put(u64::MAX, b"x y".to_vec()),
        ResponseItem::Put(0, vec![]),
        ResponseItem::Done(3),
        ResponseItem::Data(u64::MAX),
        ResponseItem::Moved([1, 2, 3, 4, u64::MAX, 6]),
        ResponseItem::Key(StaticKey::from_bytes([5; 32])),
        ResponseItem::Denied("not-found".to_owned(), "no such file".to_owned()),
    ] {
        let bytes = line.encode();
        let (end, bytes) = bytes.split_last().expect("not empty");
        assert_eq!((*end, ResponseItem::parse(bytes)), (END, Ok(Some(line))));
    }
    for odd in [
        &b"f 1 2 3 4 ../x"[..],
        b"f x 1 1 1 a",
        b"put 1",
        b"put 1 a/b",
        b"done",
        b"data x",
        b"moved 1 2 3 4 5",
        b"key x",
    ] {
        assert_eq!(ResponseItem::parse(odd), Err(()), "{}", String::from_utf8_lossy(odd));
    }
    assert_eq!(ResponseItem::parse(b"tape 1"), Ok(None));
}
