//! Arbitrary bytes as what is asked of a server and as lines of its answers: none may panic,
//! nothing that parses leads out of the root, and what parses is encoded to what parses to the same
//! again (`docs/protocol §8.8`).

use netblt_proto::content::check_name;

use super::bytes::Bytes;
use requests::get::GetRequest;
use requests::request::{Operation, Request};
use requests::response_item::{END, LONGEST_LINE, ResponseItem};

/// They stand in another crate, and need nothing of that.
#[path = "../../../io/src/serve/requests/mod.rs"]
mod requests;

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
    let most = 4 + request.kind().max_bytes();
    assert!(bytes.ends_with(rest) && bytes.len() - rest.len() <= most);
    assert!(request.paths().iter().all(|path| path.is_empty() || check_name(path).is_ok()));
    if let Operation::Get(GetRequest { name, .. }) = &request.operation {
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
