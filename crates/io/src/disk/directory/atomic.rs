//! All or nothing: everything gets its name at the end and at once, or nothing does
//! (`crate::disk::publish_all`). Until then nothing shows but the place where temporaries are.

use netblt_proto::content::Kind;

use super::file_table::FileTable;
use super::incoming::Incoming;
use crate::disk::publish_journal::{Placed, PublishItem};
use crate::disk::store::Store;

fn is_file(file: &Incoming) -> bool {
    file.kind != Kind::Directory
}

/// How many files and links there are.
pub(super) fn count_files(table: &FileTable) -> u64 {
    table.files.values().filter(|file| is_file(file)).count() as u64
}

/// The files with content that are to get their names: numbers, and those of their temporaries.
pub(super) fn content_to_place(table: &FileTable) -> Vec<(u64, u64)> {
    let coming = table.files.iter().filter(|(_, file)| is_file(file) && !file.placed);
    let content = coming.filter(|(_, file)| file.kind.has_content());
    content.map(|(at, file)| (*at, file.slot)).collect()
}

/// Everything that is to get its name.
pub(super) fn items_to_place(table: &FileTable) -> Vec<PublishItem> {
    let items = table.files.values().filter(|file| !file.placed).filter_map(|file| {
        let (name, times) = file.attributes?;
        let placed = match is_file(file) {
            true => Placed::File { number: file.slot, inode: 0 },
            false => Placed::Directory(times),
        };
        Some(PublishItem { name, placed })
    });
    items.collect()
}

/// Reads these files again. Returns the name of the first that is not what was written.
pub(super) fn first_spoiled(
    content: &[(u64, u64)],
    table: &FileTable,
    store: &Store,
) -> Option<Vec<u8>> {
    content.iter().find_map(|(number, slot)| {
        let file = table.files.get(number)?;
        let ((name, _), (_, digest)) = (file.attributes?, file.complete?);
        let read = store.open_slot(*slot).ok().and_then(|file| store.digest(&file));
        (read != Some(digest)).then(|| table.names.path(name))
    })
}

#[cfg(test)]
#[path = "atomic_tests.rs"]
mod tests;
