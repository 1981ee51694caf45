//! What a transfer would send, without sending it.

use std::io::{self, Read};

use netblt_proto::content::Kind;

use crate::disk::file_list::FileList;
use crate::error::{Error, Warning};
use crate::options::{Cancel, Input, Selection, Source};
use crate::transfer::list::{END, NAME, Offered, TITLE};

/// What a selection comes to.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Preview {
    /// In the order in which it would be sent.
    pub offered: Vec<Offered>,
    /// What is left out, and why.
    pub warnings: Vec<Warning>,
    /// What was to be sent and cannot be read.
    pub skipped: u64,
}

/// Walks what [`send`](crate::send) would send. Errors are those of such a walk.
pub fn preview(selection: Selection, cancel: &Cancel) -> Result<Preview, Error> {
    let list = FileList::new(Source::Selection(selection), true, cancel)?;
    let offered = list.inner.entries.iter().map(|entry| Offered {
        name: entry.name.to_vec(),
        directory: entry.kind == Kind::Directory,
        length: entry.bytes(),
    });
    Ok(Preview {
        offered: offered.collect(),
        warnings: list.warnings().to_vec(),
        skipped: list.skipped(),
    })
}

/// The answer to who asks what is offered, made as it is read.
struct Text {
    list: FileList,
    next: usize,
    line: io::Cursor<Vec<u8>>,
}

/// What is sent to who asks.
pub(super) fn answer(list: &FileList) -> Result<FileList, Error> {
    let line = io::Cursor::new([TITLE, &[END]].concat());
    let reader = Box::new(Text { list: list.clone(), next: 0, line });
    FileList::stream(Input { name: NAME.to_owned(), label: "the list of files", reader })
}

impl Read for Text {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.line.read(space)?;
            if read > 0 || space.is_empty() {
                return Ok(read);
            }
            let Some(entry) = self.list.inner.entries.get(self.next) else { return Ok(0) };
            self.next += 1;
            let kind = match entry.kind {
                Kind::Directory => "d",
                Kind::Stream => "s",
                _ => "f",
            };
            let mut line = format!("{kind} {} ", entry.bytes()).into_bytes();
            line.extend_from_slice(&entry.name);
            line.push(END);
            self.line = io::Cursor::new(line);
        }
    }
}
