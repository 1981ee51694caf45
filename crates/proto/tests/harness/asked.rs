//! Arbitrary bytes as what is asked of a server and as lines of its answers: none may panic,
//! nothing that parses leads out of the root, and what parses is encoded to what parses to the same
//! again (`docs/protocol §8.8`).

use netblt_proto::content::check_name;

use super::bytes::Bytes;
use request::{END, LONGEST_LINE, Request, RequestKind, ResponseItem};

/// It stands in another crate, and needs nothing of that.
#[path = "../../../io/src/serve/request.rs"]
mod request;

/// Does the first byte's kind of thing with the others.
pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    match bytes.byte() % 3 {
        0 => question(bytes.rest()),
        1 => {
            // No fuzzer guesses a length.
            let text = bytes.rest();
            let length = u32::try_from(text.len()).expect("it is short");
            question(&[&length.to_be_bytes()[..], text].concat());
        }
        _ => line(bytes.rest()),
    }
}

fn question(bytes: &[u8]) {
    let Some((request, rest)) = Request::parse(bytes) else { return };
    let most = if matches!(request.what, RequestKind::Read { .. }) { 262_148 } else { 10_004 };
    assert!(bytes.ends_with(rest) && bytes.len() - rest.len() <= most);
    assert!(request.paths().all(|path| path.is_empty() || check_name(path).is_ok()));
    if let RequestKind::Get { name, .. } = &request.what {
        assert!(check_name(name).is_ok() && !name.contains(&b'/'));
    }
    let again = request.encode();
    assert_eq!(Request::parse(&again), Some((request, &[][..])));
}

fn line(bytes: &[u8]) {
    let bytes = bytes.split(|byte| *byte == END).next().unwrap_or_default();
    let Ok(Some(line)) = ResponseItem::parse(bytes) else { return };
    if let ResponseItem::Entry(entry) = &line {
        assert!(entry.name.is_empty() || check_name(&entry.name).is_ok());
        assert!(!entry.name.contains(&b'/'));
    }
    let again = line.encode();
    let (end, again) = again.split_last().expect("not empty");
    assert!(*end == END && again.len() < LONGEST_LINE + bytes.len());
    assert_eq!(ResponseItem::parse(again), Ok(Some(line)));
}
