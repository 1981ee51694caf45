//! A preview of a transfer: the entries that it would send.

use std::io::{self, Read};

use netblt_proto::content::Kind;

use crate::cancel::Cancel;
use crate::disk::file_list::{Cursor, FileList};
use crate::error::{Error, Warning};
use crate::options::{Input, Selection, Source};
use crate::transfer::list::{END, NAME, Offered, TITLE};

/// The sum of a selection.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Preview {
    /// In the order in which it would be sent.
    pub offered: Vec<Offered>,
    /// The entries that are left out, and why.
    pub warnings: Vec<Warning>,
    /// Entries that cannot be read.
    pub skipped: u64,
}

/// Walks what [`send`](crate::send) would send. Errors are those of such a walk.
pub fn preview(selection: Selection, cancel: &Cancel) -> Result<Preview, Error> {
    let list = FileList::new(Source::Selection(selection), true, cancel)?;
    let (mut cursor, mut offered) = (list.begin(), Vec::new());
    while let Some(entry) = cursor.next(&list)? {
        if entry.kind == Kind::Withdrawn {
            continue;
        }
        let directory = entry.kind == Kind::Directory;
        let length = entry.bytes();
        offered.push(Offered { name: entry.name.into_vec(), directory, length });
    }
    let late = list.take_late();
    let warnings = list.warnings().iter().cloned().chain(late.warnings).collect();
    Ok(Preview { offered, warnings, skipped: list.skipped() + late.skipped })
}

/// The answer to a receiver that asks for the list, written as it is read.
struct ListText {
    list: FileList,
    next: Cursor,
    line: io::Cursor<Vec<u8>>,
}

/// The list that is sent in place of the files.
pub(super) fn answer(list: &FileList) -> Result<FileList, Error> {
    let line = io::Cursor::new([TITLE, &[END]].concat());
    let reader = Box::new(ListText { list: list.clone(), next: Cursor::default(), line });
    FileList::stream(Input { name: NAME.into(), label: "the list of files", reader })
}

impl Read for ListText {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.line.read(space)?;
            if read > 0 || space.is_empty() {
                return Ok(read);
            }
            let next = self.next.next(&self.list).map_err(io::Error::other)?;
            let Some(entry) = next else { return Ok(0) };
            let kind = match entry.kind {
                Kind::Withdrawn => continue,
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
