//! Frames over ssh's two pipes: messages of the ends, and datagrams where UDP does not pass.
//!
//! A frame is a type (one byte), a length (four, big-endian) and its content.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

const MESSAGE: u8 = 1;
const DATAGRAM: u8 = 2;
/// Longest message: a list of names. A longer one is refused before memory is allocated for it.
const MAX_MESSAGE: usize = 1 << 20;
/// Longest possible datagram.
pub(crate) const MAX_DATAGRAM: usize = 65_535;
/// Bytes of a frame's head.
pub(crate) const HEAD: usize = 5;
/// Limit on the login shell's output before the agent starts.
const MAX_LOGIN_OUTPUT: usize = 1 << 20;
/// Bytes of that output shown if the agent never starts.
const LOGIN_OUTPUT_SHOWN: usize = 2_000;

/// A frame.
#[derive(Debug)]
pub(crate) enum Frame<T> {
    Message(T),
    /// The bytes are in the reader's [`FrameReader::datagram`].
    Datagram,
}

/// The writing end, for several threads.
#[derive(Clone)]
pub(crate) struct FrameWriter(Arc<Mutex<Box<dyn Write + Send>>>);

impl FrameWriter {
    pub(crate) fn new(out: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(out))))
    }

    /// Sends bytes outside any frame.
    pub(crate) fn raw(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(bytes)?;
        out.flush()
    }

    /// Closes the pipe, also for other holders of this writer.
    pub(crate) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(io::sink());
    }

    pub(crate) fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        let text = Zeroizing::new(serde_json::to_vec(message).map_err(io::Error::other)?);
        if text.len() > MAX_MESSAGE {
            return Err(io::Error::new(ErrorKind::InvalidInput, "too many or too long names"));
        }
        let mut frame = Zeroizing::new(Vec::with_capacity(HEAD + text.len()));
        frame.extend_from_slice(&head(MESSAGE, text.len()));
        frame.extend_from_slice(&text);
        self.raw(&frame)
    }
}

/// The head of a datagram's frame.
pub(crate) fn datagram_head(len: usize) -> [u8; HEAD] {
    head(DATAGRAM, len)
}

fn head(kind: u8, len: usize) -> [u8; HEAD] {
    let [a, b, c, d] = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
    [kind, a, b, c, d]
}

/// The reading end.
pub(crate) struct FrameReader<R> {
    input: R,
    datagram: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, datagram: Vec::new() }
    }

    /// Skips bytes before `mark`. If it never comes, fails with the last of them.
    pub(crate) fn find(&mut self, mark: &[u8]) -> Result<(), Vec<u8>> {
        // The mark begins with a line's end, which may be that of a line before.
        let mut seen = vec![b'\n'];
        let mut byte = [0];
        while seen.len() < MAX_LOGIN_OUTPUT && matches!(self.input.read(&mut byte), Ok(1)) {
            seen.push(byte[0]);
            if seen.ends_with(mark) {
                return Ok(());
            }
        }
        let kept = seen.len().saturating_sub(LOGIN_OUTPUT_SHOWN).max(1);
        Err(seen.split_off(kept.min(seen.len())))
    }

    /// The next frame; nothing at the end of input.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<Frame<T>>> {
        let mut head = [0; HEAD];
        match self.input.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let [kind, len @ ..] = head;
        let len = u32::from_be_bytes(len) as usize;
        let broken = |what| io::Error::new(ErrorKind::InvalidData, what);
        match kind {
            MESSAGE if len <= MAX_MESSAGE => {
                let mut text = Zeroizing::new(vec![0; len]);
                self.input.read_exact(&mut text)?;
                let message = serde_json::from_slice(&text);
                message
                    .map(|message| Some(Frame::Message(message)))
                    .map_err(|_| broken("an unknown message"))
            }
            DATAGRAM if len <= MAX_DATAGRAM => {
                self.datagram.resize(len, 0);
                self.input.read_exact(&mut self.datagram)?;
                Ok(Some(Frame::Datagram))
            }
            _ => Err(broken("an unknown type of frame")),
        }
    }

    /// The datagram that came last.
    pub(crate) fn datagram(&self) -> &[u8] {
        &self.datagram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("whole").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn frames_arrive_after_any_login_output() {
        let out = Shared::default();
        let writer = FrameWriter::new(out.clone());
        writer.raw(b"Welcome!\nno new mail\n\nmark\n").expect("written");
        writer.send(&vec!["a", "b"]).expect("written");
        writer.raw(&[&datagram_head(3)[..], b"xyz"].concat()).expect("written");
        let bytes = out.0.lock().expect("whole").clone();
        let mut reader = FrameReader::new(&bytes[..]);
        reader.find(b"\nmark\n").expect("found");
        let Ok(Some(Frame::Message(message))) = reader.next::<Vec<String>>() else {
            panic!("no message")
        };
        assert_eq!(message, ["a", "b"]);
        assert!(matches!(reader.next::<Vec<String>>(), Ok(Some(Frame::Datagram))));
        assert_eq!(reader.datagram(), b"xyz");
        assert!(matches!(reader.next::<Vec<String>>(), Ok(None)));
    }

    #[test]
    fn a_mark_at_the_very_start_is_one() {
        let mut reader = FrameReader::new(&b"mark\n"[..]);
        assert!(reader.find(b"\nmark\n").is_ok());
        let mut reader = FrameReader::new(&b"command not found\n"[..]);
        assert_eq!(reader.find(b"\nmark\n"), Err(b"command not found\n".to_vec()));
    }

    #[test]
    fn damaged_frames_neither_take_memory_nor_are_accepted() {
        for bytes in [
            &[MESSAGE, 0xff, 0xff, 0xff, 0xff][..],
            &[DATAGRAM, 0, 1, 0, 0],
            &[7, 0, 0, 0, 0],
            &[MESSAGE, 0, 0, 0, 2, b'{', b'}'],
            &[MESSAGE, 0, 0, 0, 9, b'"'],
        ] {
            assert!(FrameReader::new(bytes).next::<Vec<u8>>().is_err(), "{bytes:?}");
        }
    }
}
