//! Requests as bytes and back.

use std::collections::BTreeSet;

use netblt_proto::config::{PublicKey, StaticKey};
use netblt_proto::content::FileRange;

use super::super::copy::Copying;
use super::super::put::PutOptions;
use super::super::read::{MAX_PIECES, Piece};
use super::super::send::PushTarget;
use super::*;

fn push() -> PushTarget {
    let own = StaticKey::from_bytes([7; 32]);
    PushTarget { number: 9, server: PublicKey([3; 32]), own, address: "host:1".to_owned() }
}

fn request(operation: Operation, path: &[u8]) -> Request {
    Request { operation, path: path.to_vec() }
}

fn put_range(range: FileRange) -> PutRangeRequest {
    PutRangeRequest { file: [1; 32], label: [2; 32], range, verify: true }
}

fn join(total: u64, bytes: u64) -> JoinRequest {
    let (to, modified) = (b"d/\xff".to_vec(), (-7, 999_999_999));
    JoinRequest { to, file: [3; 32], total, bytes, mode: 0o640, modified, replace: true }
}

/// Requests of all kinds.
fn requests() -> Vec<Request> {
    let put = PutOptions { replace: true, atomic: true, times: true, ..PutOptions::default() };
    let labelled = PutOptions { verify: true, via_server: true, label: Some([0; 32]), ..put };
    let trees = Copying { trees: true, ..Copying::default() };
    let keeping = Copying { keep: true, replace: true, trees: false };
    let range = FileRange { offset: 4096, length: 2048, total: 9000 };
    let pieces = vec![Piece { path: b"b".to_vec(), offset: 7, bytes: 9 }];
    let operations = [
        Operation::Get(GetRequest { trees: true, name: b"n\xff".to_vec(), subflows: 0 }),
        Operation::Get(GetRequest { trees: false, name: b"n".to_vec(), subflows: 16 }),
        Operation::Put(PutRequest::Announce(put)),
        Operation::Put(PutRequest::Announce(labelled)),
        Operation::Put(PutRequest::Cancel(7)),
        Operation::Stat(StatRequest { trees: false }),
        Operation::Stat(StatRequest { trees: true }),
        Operation::List(ListRequest { after: b"x".to_vec(), most: 1000 }),
        Operation::MakeDir(MakeDirRequest { parents: true }),
        Operation::Remove(RemoveRequest { directory: true, tree: false }),
        Operation::Remove(RemoveRequest { directory: false, tree: true }),
        Operation::Rename(RenameRequest { to: b"b/\xfe".to_vec(), replace: true }),
        Operation::Copy(CopyRequest { to: b"c".to_vec(), how: trees }),
        Operation::Copy(CopyRequest { to: vec![], how: keeping }),
        Operation::Read(ReadRequest { pieces }),
        Operation::Send(SendRequest { trees: true, name: b"n".to_vec(), push: push() }),
        Operation::PutRange(put_range(range)),
        Operation::Join(join(9000, 2048)),
    ];
    operations.map(|operation| Request { operation, path: b"a/\xfe b".to_vec() }).into()
}

#[test]
fn every_kind_is_among_the_requests_of_these_tests() {
    let numbers: BTreeSet<u8> = requests().iter().map(|request| request.kind().number()).collect();
    assert!(numbers.into_iter().eq(RequestKind::ALL.map(RequestKind::number)));
}

#[test]
fn a_request_has_the_bytes_of_the_protocols_example() {
    let stat = Operation::Stat(StatRequest { trees: false });
    let bytes = Request { operation: stat, path: b"a/b".to_vec() }.encode();
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        digits,
        concat!("00000012", "03", "0000", "0000000000000000", "0003", "612f62", "0000")
    );
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
        let bytes = request(Operation::Stat(StatRequest { trees: false }), path).encode();
        assert_eq!(Request::parse(&bytes), None, "{}", String::from_utf8_lossy(path));
    }
    for to in [&b"../x"[..], b"/etc", b"a/../../b"] {
        let (path, to) = (b"a".to_vec(), to.to_vec());
        let operations = [
            Operation::Rename(RenameRequest { to: to.clone(), replace: false }),
            Operation::Copy(CopyRequest { to: to.clone(), how: Copying::default() }),
            Operation::Read(ReadRequest { pieces: vec![Piece { path: to, offset: 0, bytes: 1 }] }),
        ];
        for operation in operations {
            let bytes = request(operation, &path).encode();
            assert_eq!(Request::parse(&bytes), None);
        }
    }
    for name in [&b""[..], b"..", b"a/b"] {
        let get = GetRequest { trees: false, name: name.to_vec(), subflows: 0 };
        assert_eq!(Request::parse(&request(Operation::Get(get), b"").encode()), None);
    }
    let refused = |operation| Request::parse(&request(operation, b"").encode()).is_none();
    for (offset, length, total) in [(0, 9000, 9000), (1024, 2048, 9000), (8192, 900, 9000)] {
        let range = FileRange { offset, length, total };
        assert!(refused(Operation::PutRange(put_range(range))), "{range:?}");
    }
    for (total, bytes) in [(9000, 0), (9000, 3000), (9000, 512), (9000, 16_384), (1 << 40, 1024)] {
        assert!(refused(Operation::Join(join(total, bytes))), "{total} {bytes}");
    }
    assert!(refused(Operation::Join(JoinRequest { to: b"../x".to_vec(), ..join(9000, 2048) })));
    let mut odd = requests()[0].encode();
    odd[4] = 99;
    assert_eq!(Request::parse(&odd), None);
}

#[test]
fn pieces_are_understood_and_bounded() {
    let piece = |path: &[u8], offset| Piece { path: path.to_vec(), offset, bytes: u64::MAX };
    let of = |pieces| request(Operation::Read(ReadRequest { pieces }), b"a/\xfe");
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
