//! The lines of answers, as bytes and back.

use netblt_proto::config::StaticKey;

use super::entry::{Entry, EntryType};
use super::path::one_part;

/// The first line of an answer.
pub(crate) const TITLE: &[u8] = b"netblt answer 1";
/// The name of the stream with an answer.
pub(crate) const NAME: &str = "answer";
/// The byte that ends each line. No name contains it.
pub(crate) const END: u8 = 0;
/// Longest line of an answer: numbers and a name.
pub(crate) const LONGEST_LINE: usize = 5000;

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResponseItem {
    Entry(Entry),
    /// Bytes of the entry before it that are no holes.
    Room(u64),
    /// There are more entries after the last one.
    More,
    /// The number of an announced upload, and the name that a single file gets. The name is empty
    /// if the file keeps its own.
    Put(u64, Vec<u8>),
    /// How many entries were made, removed, renamed, copied or sent.
    Done(u64),
    /// The private half of a lent key, for one upload.
    Key(StaticKey),
    /// The progress of *send*: bytes, bytes in all (0: not known), and those of them that were
    /// there before; files, and files that were left out; the limit, by its place in
    /// [`LimitedBy::ALL`](crate::LimitedBy::ALL).
    Moved([u64; 6]),
    /// Bytes of a file follow.
    Data(u64),
    /// A piece of a file that cannot be read: the word of the reason, and a text for people.
    Denied(String, String),
}

impl ResponseItem {
    /// The bytes of the line, with its end.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut line = match self {
            Self::Entry(entry) => {
                let sort = match entry.sort {
                    EntryType::File => 'f',
                    EntryType::Directory => 'd',
                    EntryType::Link => 'l',
                    EntryType::Other => 'o',
                };
                let ((seconds, nanos), length) = (entry.modified, entry.length);
                let head = format!("{sort} {length} {seconds} {nanos} {} ", entry.mode);
                [head.as_bytes(), &entry.name].concat()
            }
            Self::Room(bytes) => format!("room {bytes}").into_bytes(),
            Self::More => b"more".to_vec(),
            Self::Put(number, name) => [format!("put {number} ").as_bytes(), name].concat(),
            Self::Done(count) => format!("done {count}").into_bytes(),
            Self::Key(key) => {
                let digits = |text, byte: &u8| format!("{text}{byte:02x}");
                key.private().iter().fold("key ".to_owned(), digits).into_bytes()
            }
            Self::Moved(counts) => {
                counts.iter().fold("moved".to_owned(), |text, n| format!("{text} {n}")).into_bytes()
            }
            Self::Data(bytes) => format!("data {bytes}").into_bytes(),
            Self::Denied(word, why) => {
                format!("denied {word} {}", why.replace('\0', " ")).into_bytes()
            }
        };
        line.push(END);
        line
    }

    /// Parses an item, without its end. An unknown kind gives `None`.
    pub(crate) fn parse(line: &[u8]) -> Result<Option<Self>, ()> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let sort = match words.next().unwrap_or_default() {
            b"f" => EntryType::File,
            b"d" => EntryType::Directory,
            b"l" => EntryType::Link,
            b"o" => EntryType::Other,
            b"more" => return Ok(Some(Self::More)),
            b"room" => return Ok(Some(Self::Room(number(words.next()).ok_or(())?))),
            b"done" => return Ok(Some(Self::Done(number(words.next()).ok_or(())?))),
            b"data" => return Ok(Some(Self::Data(number(words.next()).ok_or(())?))),
            b"key" => {
                let key = words.next().and_then(of_digits).ok_or(())?;
                return Ok(Some(Self::Key(StaticKey::from_bytes(key))));
            }
            b"moved" => {
                let mut words = line.split(|byte| *byte == b' ').skip(1);
                let mut counts = [0; 6];
                for count in &mut counts {
                    *count = number(words.next()).ok_or(())?;
                }
                return Ok(Some(Self::Moved(counts)));
            }
            b"denied" => {
                let (word, why) = line
                    .get(7..)
                    .and_then(|rest| {
                        let at = rest.iter().position(|byte| *byte == b' ')?;
                        Some((rest.get(..at)?, rest.get(at + 1..)?))
                    })
                    .ok_or(())?;
                let text = |bytes| str::from_utf8(bytes).map(str::to_owned).map_err(|_| ());
                return Ok(Some(Self::Denied(text(word)?, text(why)?)));
            }
            b"put" => {
                let rest = line.get(4..).unwrap_or_default();
                let at = rest.iter().position(|byte| *byte == b' ').ok_or(())?;
                let (count, name) = rest.split_at(at);
                let name = name.get(1..).unwrap_or_default();
                let name = if name.is_empty() { Some(Vec::new()) } else { one_part(name) };
                let number = number(Some(count)).ok_or(())?;
                return Ok(Some(Self::Put(number, name.ok_or(())?)));
            }
            _ => return Ok(None),
        };
        let entry = (|| {
            let length = number(words.next())?;
            let modified = (number(words.next())?, number(words.next())?);
            let mode = number(words.next())?;
            let name = words.next()?;
            let name = if name.is_empty() { Vec::new() } else { one_part(name)? };
            Some(Entry { name, sort, length, data: length, modified, mode })
        })();
        entry.map(|entry| Some(Self::Entry(entry))).ok_or(())
    }
}

/// 32 bytes of 64 hexadecimal digits.
fn of_digits(text: &[u8]) -> Option<[u8; 32]> {
    let text = str::from_utf8(text).ok()?;
    let digits = text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate().filter(|_| digits) {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    digits.then_some(bytes)
}

fn number<T: std::str::FromStr>(text: Option<&[u8]>) -> Option<T> {
    str::from_utf8(text?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
