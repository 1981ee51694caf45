//! The list of a sender's files, before anything is received. A receiver asks for it in its client
//! string (`docs/protocol §8.6`), and the sender answers with a stream of text in place of its
//! files.

use std::io::{self, ErrorKind, Write};
use std::sync::mpsc::{Receiver, Sender, channel};

use netblt_proto::content::check_name;
use netblt_proto::limits::MAX_FILES;

/// The client string that asks.
pub(super) const REQUEST: &str = "netblt list";
/// The answer's first line.
pub(super) const TITLE: &[u8] = b"netblt list 1";
/// With what lines end: no name has it.
pub(super) const END: u8 = 0;
/// Longest line: kind, length and name.
const LONGEST_LINE: usize = 5000;
/// Under which name the answer goes.
pub(super) const NAME: &str = "list";

/// A file or directory that would be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offered {
    /// Under which name it would arrive, `/` between its parts.
    pub name: Vec<u8>,
    /// Whether it is a directory.
    pub directory: bool,
    /// Bytes in it now.
    pub length: u64,
}

/// Decodes the answer as it arrives.
pub(super) struct ListDecoder {
    line: Vec<u8>,
    header_read: bool,
    count: u64,
    found: Sender<Offered>,
}

impl ListDecoder {
    /// The entries come out of the channel.
    pub(super) fn new() -> (Self, Receiver<Offered>) {
        let (found, offered) = channel();
        (Self { line: Vec::new(), header_read: false, count: 0, found }, offered)
    }

    fn take(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.header_read, true) {
            return if line == TITLE { Ok(()) } else { Err(odd()) };
        }
        self.count += 1;
        let offered = parse(&line).filter(|_| self.count <= MAX_FILES).ok_or_else(odd)?;
        self.found.send(offered).map_err(io::Error::other)
    }
}

fn odd() -> io::Error {
    let text = "the sender does not say what it offers; it may be another version of netblt";
    io::Error::new(ErrorKind::InvalidData, text)
}

fn parse(line: &[u8]) -> Option<Offered> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let (kind, length, name) = (words.next()?, words.next()?, words.next()?);
    let length = std::str::from_utf8(length).ok()?.parse().ok()?;
    check_name(name).ok()?;
    let known = matches!(kind, [b'a'..=b'z']);
    known.then(|| Offered { name: name.to_vec(), directory: kind == b"d", length })
}

impl Write for ListDecoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == END) {
            let (end, text) =
                piece.split_last().map_or((None, piece), |(end, text)| (Some(*end), text));
            let is_end = end == Some(END);
            self.line.extend_from_slice(if is_end { text } else { piece });
            if self.line.len() > LONGEST_LINE {
                return Err(odd());
            }
            if is_end {
                self.take()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> (io::Result<()>, Vec<Offered>) {
        let (mut lines, offered) = ListDecoder::new();
        let written = pieces.iter().try_for_each(|piece| lines.write_all(piece));
        (written, offered.try_iter().collect())
    }

    #[test]
    fn an_answer_is_read_however_it_is_cut() {
        let whole = b"netblt list 1\0d 0 t\0f 12 t/a\nb\0s 0 stdin\0";
        for at in 0..whole.len() {
            let (written, offered) = lines(&[&whole[..at], &whole[at..]]);
            written.expect("written");
            let of =
                |name: &str, directory, length| Offered { name: name.into(), directory, length };
            assert_eq!(offered, [of("t", true, 0), of("t/a\nb", false, 12), of("stdin", false, 0)]);
        }
    }

    #[test]
    fn an_invalid_answer_is_refused() {
        let long = [b"netblt list 1\0f 1 ", &b"x".repeat(6000)[..], b"\0"].concat();
        for odd in [
            &b"#!/bin/sh\0"[..],
            b"netblt list 1\0f x y\0",
            b"netblt list 1\0f 1\0",
            b"netblt list 1\0f 1 ../x\0",
            b"netblt list 1\0F 1 a\0",
            &long,
            &b"#".repeat(10_000),
        ] {
            assert!(lines(&[odd]).0.is_err(), "{}", String::from_utf8_lossy(odd));
        }
    }
}
