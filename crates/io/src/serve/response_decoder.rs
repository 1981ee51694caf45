//! Decodes a response item by item as it arrives (`docs/protocol §8.8`).

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};

use netblt_proto::api::CloseReason;

use super::requests::response_item::{self, ResponseItem};
use crate::error::Error;
use crate::request_error::RequestError;

/// The error for a server's refusal. Any other error stays as it is.
pub(super) fn server_error(error: Error) -> Error {
    match &error {
        Error::Ended(CloseReason::PeerQuit(words)) => match RequestError::parse(words) {
            Some(RequestError { what, why }) => Error::Denied { what, why },
            None => error,
        },
        _ => error,
    }
}

/// Decodes a response as it arrives.
pub(super) struct ResponseDecoder {
    line: Vec<u8>,
    /// Bytes that follow the last line, and how many are still to come.
    data: Option<(ResponseItem, Vec<u8>)>,
    left: u64,
    /// How many may come in all.
    most: u64,
    header_read: bool,
    found: Sender<(ResponseItem, Vec<u8>)>,
}

impl ResponseDecoder {
    pub(super) fn new(most: u64) -> (Self, Receiver<(ResponseItem, Vec<u8>)>) {
        let (found, lines) = channel();
        (Self { line: Vec::new(), data: None, left: 0, most, header_read: false, found }, lines)
    }

    fn take(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.line);
        let no_answer = || io::Error::new(io::ErrorKind::InvalidData, "it is no server's answer");
        if !std::mem::replace(&mut self.header_read, true) {
            return if text == response_item::TITLE { Ok(()) } else { Err(no_answer()) };
        }
        match ResponseItem::parse(&text).map_err(|()| no_answer())? {
            Some(ResponseItem::Data(bytes)) => {
                self.most = self.most.checked_sub(bytes).ok_or_else(no_answer)?;
                (self.left, self.data) = (bytes, Some((ResponseItem::Data(bytes), Vec::new())));
                self.pass_on()
            }
            Some(line) => self.found.send((line, Vec::new())).map_err(io::Error::other),
            None => Ok(()),
        }
    }

    /// Bytes behind a line: how many of these.
    fn data(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        let bytes = bytes.get(..most).unwrap_or_default();
        if let Some((_, data)) = &mut self.data {
            let room = || io::Error::from(io::ErrorKind::OutOfMemory);
            data.try_reserve(bytes.len()).map_err(|_| room())?;
            data.extend_from_slice(bytes);
        }
        self.left -= most as u64;
        self.pass_on().map(|()| most)
    }

    fn pass_on(&mut self) -> io::Result<()> {
        match self.data.take_if(|_| self.left == 0) {
            Some(whole) => self.found.send(whole).map_err(io::Error::other),
            None => Ok(()),
        }
    }
}

impl Write for ResponseDecoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.left > 0 {
                let taken = self.data(rest)?;
                rest = rest.get(taken..).unwrap_or_default();
                continue;
            }
            let end = rest.iter().position(|byte| *byte == response_item::END);
            let (text, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.line.extend_from_slice(text);
            if self.line.len() > response_item::LONGEST_LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            if end.is_some() {
                self.take()?;
            }
            rest = after.get(1..).unwrap_or_default();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
