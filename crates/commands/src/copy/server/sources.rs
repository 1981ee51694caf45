//! The sources of a copy from a server: patterns are expanded, and `DIR/.` is replaced by its
//! contents, from the server's lists. Names are bytes.

use netblt::serve::client::Client;
use netblt::serve::{Entry, EntryType};
use netblt::{Error, OptionsError, Pattern, RequestErrorKind};

use crate::exit::{Code, Failure};
use crate::server_client::address::ServerPath;
use crate::server_client::client::WarningsOnly;

/// Expands a source, as a shell on the server would: the file of that very name, or else the
/// matching ones, by name. With `apart`, the contents of a directory replace `DIR/.`.
pub(crate) fn expand(
    server: &Client<'_>,
    source: &ServerPath,
    apart: bool,
) -> Result<Vec<ServerPath>, Error> {
    let found = match &source.pattern {
        Some(pattern) if look(server, &source.path)?.is_none() => matching(server, pattern)?,
        _ => vec![source.path.clone()],
    };
    let mut paths = Vec::new();
    for path in found {
        if apart && means_contents(&source.path) {
            let children = children(server, &path)?;
            paths.extend(children.iter().map(|child| below(&path, &child.name)));
        } else {
            paths.push(path);
        }
    }
    let host = &source.host;
    let served = |path| ServerPath { host: host.clone(), path, pattern: None };
    Ok(paths.into_iter().map(served).collect())
}

/// The sources that a copy leaves out, and why: missing ones, and directories unless `trees` are
/// copied. All others exist.
pub(crate) fn wanted(
    server: &Client<'_>,
    path: &[u8],
    trees: bool,
) -> Result<Result<Entry, &'static str>, Error> {
    Ok(match look(server, path)? {
        None => Err("no such file or directory"),
        Some(entry) if entry.sort == EntryType::Directory && !trees => {
            Err("not a regular file (-r copies directories)")
        }
        Some(entry) => Ok(entry),
    })
}

/// No source is left.
pub(crate) fn nothing() -> Failure {
    Failure::new(Code::Partial, "there is nothing to copy")
}

/// Whether the contents of a directory are meant, and not the directory.
pub(crate) fn means_contents(path: &[u8]) -> bool {
    path == b"." || path.ends_with(b"/.")
}

/// The paths that match, by name. A wildcard leaves hidden names alone.
fn matching(server: &Client<'_>, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let parts = pattern.split(|byte| *byte == b'/');
    let parts: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
    let mut found = vec![Vec::new()];
    for (at, part) in parts.iter().enumerate() {
        let last = at + 1 == parts.len();
        let mut next = Vec::new();
        for path in found {
            match *part {
                b"**" => directories(server, path, &mut next)?,
                part if is_wild(part) => {
                    let name = String::from_utf8_lossy(part).into_owned();
                    let pattern = Pattern::new(part);
                    let pattern = pattern.map_err(|why| OptionsError::FileName { name, why })?;
                    let fits = |entry: &Entry| {
                        let leads = last || entry.sort == EntryType::Directory;
                        leads && pattern.matches(&entry.name, false)
                    };
                    let entries = children(server, &path)?.into_iter().filter(fits);
                    next.extend(entries.map(|entry| below(&path, &entry.name)));
                }
                part => next.push(below(&path, part)),
            }
        }
        found = next;
    }
    if !parts.last().is_some_and(|part| is_wild(part)) {
        let mut there = Vec::new();
        for path in found {
            if look(server, &path)?.is_some() {
                there.push(path);
            }
        }
        found = there;
    }
    Ok(found)
}

/// A directory, and all directories in it that are not hidden.
fn directories(
    server: &Client<'_>,
    directory: Vec<u8>,
    found: &mut Vec<Vec<u8>>,
) -> Result<(), Error> {
    let mut todo = vec![directory];
    while let Some(directory) = todo.pop() {
        let entries = children(server, &directory)?.into_iter().rev();
        let entries = entries
            .filter(|entry| entry.sort == EntryType::Directory && !entry.name.starts_with(b"."));
        todo.extend(entries.map(|entry| below(&directory, &entry.name)));
        found.push(directory);
    }
    Ok(())
}

/// The contents of a directory, by name; empty if it is none or does not exist.
fn children(server: &Client<'_>, path: &[u8]) -> Result<Vec<Entry>, Error> {
    if look(server, path)?.is_none_or(|entry| entry.sort != EntryType::Directory) {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    let add = |entry| {
        entries.push(entry);
        Ok(())
    };
    server.list(path, &mut WarningsOnly, add)?;
    Ok(entries)
}

/// The status of a path, if it exists.
fn look(server: &Client<'_>, path: &[u8]) -> Result<Option<Entry>, Error> {
    match server.stat(path, &mut WarningsOnly) {
        Ok(entry) => Ok(Some(entry)),
        Err(Error::Denied {
            what: RequestErrorKind::NotFound | RequestErrorKind::NotADirectory,
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_wild(part: &[u8]) -> bool {
    part.iter().any(|byte| b"*?[".contains(byte))
}

fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory.is_empty() {
        true => name.to_vec(),
        false => [directory, b"/", name].concat(),
    }
}
