//! What a transfer would send, without sending it.

use netblt_proto::content::Kind;

use crate::disk::file_list::FileList;
use crate::error::{Error, Warning};
use crate::options::{Cancel, Selection, Source};

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

/// Walks what [`send`](crate::send) would send. Errors are those of such a walk.
pub fn preview(selection: Selection, cancel: &Cancel) -> Result<Preview, Error> {
    let list = FileList::new(Source::Selection(selection), true, cancel)?;
    let offered = list.inner.entries.iter().map(|entry| Offered {
        name: entry.name.to_vec(),
        directory: entry.kind == Kind::Directory,
        length: entry.length,
    });
    Ok(Preview {
        offered: offered.collect(),
        warnings: list.warnings().to_vec(),
        skipped: list.skipped(),
    })
}
