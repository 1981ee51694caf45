//! Answers to requests, as data that are sent.

use std::io;

use crate::disk::file_list::FileList;
use crate::disk::layout::Layout;
use crate::disk::source::SourceReader;
use crate::options::Input;
use crate::request_error::RequestError;
use crate::serve::requests::response_item::{END, NAME, ResponseItem, TITLE};
use crate::serve::response::{Done, HeldReader, OutgoingData, denied};

/// The answer of a request that made, removed, renamed or copied `count` entries.
pub(super) fn done(count: u64, layout: Layout) -> Result<Done, RequestError> {
    answer([ResponseItem::Done(count)], layout)
}

/// An answer of these lines.
pub(super) fn answer(
    lines: impl IntoIterator<Item = ResponseItem>,
    layout: Layout,
) -> Result<Done, RequestError> {
    outgoing(lines, layout).map(|outgoing| Done::Send(Box::new(outgoing)))
}

/// The data of an answer of these lines, to be sent.
pub(in crate::serve) fn outgoing(
    lines: impl IntoIterator<Item = ResponseItem>,
    layout: Layout,
) -> Result<OutgoingData, RequestError> {
    let mut text = [TITLE, &[END]].concat();
    lines.into_iter().for_each(|line| text.extend(line.encode()));
    let bytes = text.len() as u64;
    streamed(Box::new(io::Cursor::new(text)), bytes, layout)
}

/// An answer of about `bytes` bytes, which is read while it is sent.
pub(super) fn streamed(
    reader: Box<dyn io::Read + Send>,
    bytes: u64,
    layout: Layout,
) -> Result<OutgoingData, RequestError> {
    let input = Input { name: NAME.into(), label: "the answer", reader };
    let list = FileList::stream(input).map_err(denied)?;
    let reader = SourceReader::sealed(list, layout).map_err(denied)?;
    let reader = HeldReader::new(reader, None);
    Ok(OutgoingData { reader, total: None, files: None, bytes, fails: None })
}
