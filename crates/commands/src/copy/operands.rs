//! The operands on their machine: sources are found, destinations interpreted.
//!
//! The rules are scp's. Several sources need a directory as destination. A destination that is no
//! directory is the new name of a single source, and directories above it are not created. `dir/.`
//! means the contents of `dir`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use netblt::{Leftovers, Pattern};
use netblt_proto::api::printable_bytes;

use crate::copy::files_from::FilesFrom;

/// The destination.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// A directory that exists.
    pub(crate) directory: PathBuf,
    /// The name that a single source gets there, if it is not to keep its own.
    pub(crate) name: Option<OsString>,
    /// If that is a directory: the sources that it is made of.
    made_of: Option<Vec<OsString>>,
}

/// The sources.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    /// How many operands there were.
    pub(crate) asked: usize,
    pub(crate) sources: Vec<Item>,
    /// The sources that are left out, and why.
    pub(crate) skipped: Vec<String>,
}

/// A source that exists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) path: PathBuf,
    pub(crate) directory: bool,
    /// Only its contents are meant.
    contents: bool,
    /// Only these of its contents.
    listed: Option<Vec<OsString>>,
}

/// The items to send.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Items {
    /// Paths, each with its new name if it has one.
    pub(crate) named: Vec<(PathBuf, Option<OsString>)>,
    /// Directories whose contents alone are meant, with their names.
    pub(crate) contents: Vec<(PathBuf, Vec<OsString>)>,
}

impl Target {
    /// Understands a destination operand. `several`: more than one source goes there; `directory`:
    /// the one source is a directory. A directory that a broken copy of the same `sources` has made
    /// counts as not there: the copy is resumed in it, and does not go into it.
    pub(crate) fn of(
        target: &OsStr,
        several: bool,
        directory: bool,
        sources: &[OsString],
    ) -> Result<Self, String> {
        let path = home(target)?;
        let said = |why: &str| Err(format!("{}: {why}", path.display()));
        let ends_with_slash = target.as_bytes().ends_with(b"/");
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                let begun = (directory && !several).then(|| Self::made_in(&path, Some(sources)));
                let begun = begun.flatten().filter(Self::is_broken_off);
                return Ok(begun.unwrap_or(Self { directory: path, name: None, made_of: None }));
            }
            Ok(_) if several || ends_with_slash => return said("is not a directory"),
            Ok(_) if directory => return said("is a file, and cannot become a directory"),
            Ok(_) => {}
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return said(&error.to_string());
            }
            Err(_) if several => return said("no such directory"),
            Err(_) if ends_with_slash && !directory => return said("no such directory"),
            Err(_) => {}
        }
        let Some(made) = Self::made_in(&path, directory.then_some(sources)) else {
            return said("is no name for a file");
        };
        if !made.directory.is_dir() {
            return Err(format!("{}: no such directory", made.directory.display()));
        }
        Ok(made)
    }

    /// The destination of a copy that makes `path`, a directory if `sources` are given.
    fn made_in(path: &Path, sources: Option<&[OsString]>) -> Option<Self> {
        let (parent, name) = (path.parent()?, path.file_name()?);
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let made_of = sources.map(<[OsString]>::to_vec);
        Some(Self { directory: parent.to_owned(), name: Some(name.to_owned()), made_of })
    }

    fn is_broken_off(&self) -> bool {
        let (Some(name), Some(sources)) = (&self.name, &self.made_of) else { return false };
        Leftovers::has_parts_of_copy(&self.directory, name, sources)
    }

    /// The label under which the parts of a copy to a new directory are kept. By it the same
    /// command finds them again although the directory is there by then.
    pub(crate) fn label(&self) -> Option<[u8; 32]> {
        Leftovers::label_of_copy(self.name.as_ref()?, self.made_of.as_ref()?)
    }
}

impl Sources {
    /// Looks for the sources. `patterns`: no shell has expanded them.
    pub(crate) fn look(
        sources: &[OsString],
        directories: bool,
        patterns: bool,
    ) -> Result<Self, String> {
        let mut found = Self { asked: sources.len(), ..Self::default() };
        for source in sources {
            let path = home(source)?;
            let exists = fs::symlink_metadata(&path).is_ok();
            if exists || !patterns || !is_pattern(source) {
                found.add(path, source, directories);
                continue;
            }
            let matches = matching(&path);
            if !matches.as_ref().is_ok_and(|paths| !paths.is_empty()) {
                let why = matches.as_ref().err().map_or("nothing matches", |why| why);
                let shown = printable_bytes(path.as_os_str().as_bytes());
                found.skipped.push(format!("{shown}: {why}"));
            }
            for path in matches.into_iter().flatten() {
                let source = path.as_os_str().to_owned();
                found.add(path, &source, directories);
            }
        }
        Ok(found)
    }

    /// Looks for the listed names in the one source, which is a directory. Missing ones are removed
    /// from the list.
    pub(crate) fn listed(source: &OsStr, listed: &mut FilesFrom) -> Result<Self, String> {
        let base = home(source)?;
        let base = if base.as_os_str().is_empty() { PathBuf::from(".") } else { base };
        let said = |error| format!("{}: {error}", base.display());
        if !fs::metadata(&base).map_err(said)?.is_dir() {
            return Err(format!("{}: is not a directory", base.display()));
        }
        // Listed files go into a directory.
        let mut found = Self { asked: usize::MAX, ..Self::default() };
        listed.retain(|name| {
            let path = base.join(name);
            let there = fs::symlink_metadata(&path);
            let missing = there.err().map(|error| format!("{}: {error}", path.display()));
            let is_there = missing.is_none();
            found.skipped.extend(missing);
            is_there
        });
        let parts = listed.first_parts(&base).map_err(said)?;
        // Missing names were reported above.
        let parts = parts.into_iter().filter(|part| base.join(part).symlink_metadata().is_ok());
        let listed: Vec<OsString> = parts.collect();
        if !listed.is_empty() {
            let listed = Some(listed);
            found.sources.push(Item { path: base, directory: true, contents: true, listed });
        }
        Ok(found)
    }

    fn add(&mut self, path: PathBuf, source: &OsStr, directories: bool) {
        match fs::metadata(&path) {
            Err(error) => self.skipped.push(format!("{}: {error}", path.display())),
            Ok(metadata) if metadata.is_dir() && !directories => {
                self.skipped.push(format!(
                    "{}: not a regular file (-r copies directories)",
                    path.display()
                ));
            }
            Ok(metadata) if !metadata.is_dir() && !metadata.is_file() => {
                let why = "it is neither a file nor a directory";
                self.skipped.push(format!("{}: {why}", path.display()));
            }
            // It would end all; what cannot be read further in is left out by the library.
            Ok(metadata) if metadata.is_file() && fs::File::open(&path).is_err() => {
                self.skipped.push(format!("{}: cannot be read", path.display()));
            }
            Ok(metadata) => {
                let directory = metadata.is_dir();
                let contents = directory && means_contents(source);
                self.sources.push(Item { path, directory, contents, listed: None });
            }
        }
    }

    /// The items to send, once it is known whether the one source gets a name. Contents of a
    /// directory then become that name's.
    pub(crate) fn items(&self, name: Option<OsString>) -> Result<Items, String> {
        if let Some(name) = name {
            return match self.sources.as_slice() {
                [source] if source.listed.is_none() => Ok(Items {
                    named: vec![(source.path.clone(), Some(name))],
                    contents: Vec::new(),
                }),
                _ => Err(format!("{} is not a directory", Path::new(&name).display())),
            };
        }
        let mut items = Items::default();
        for source in &self.sources {
            if !source.contents {
                items.named.push((source.path.clone(), None));
                continue;
            }
            let said = |error| format!("{}: {error}", source.path.display());
            let children = match &source.listed {
                Some(listed) => listed.clone(),
                None => {
                    let children = fs::read_dir(&source.path).map_err(said)?;
                    let names = children.map(|child| child.map(|child| child.file_name()));
                    names.collect::<Result<_, _>>().map_err(said)?
                }
            };
            items.contents.push((source.path.clone(), children));
        }
        Ok(items)
    }

    /// The sources themselves, also where only their contents are meant.
    pub(crate) fn whole(&self) -> Items {
        let named = self.sources.iter().map(|source| (source.path.clone(), None));
        Items { named: named.collect(), contents: Vec::new() }
    }

    /// Whether it is one directory whose contents are meant.
    pub(crate) fn is_contents(&self) -> bool {
        matches!(self.sources.as_slice(), [source] if source.contents)
    }
}

/// The names under which items arrive.
pub(crate) fn names(items: &Items) -> Vec<OsString> {
    let name = |(path, name): &(PathBuf, Option<OsString>)| match name {
        Some(name) => Some(name.clone()),
        None => match path.file_name() {
            Some(name) => Some(name.to_owned()),
            None => path.canonicalize().ok()?.file_name().map(OsStr::to_owned),
        },
    };
    let contents = items.contents.iter().flat_map(|(_, names)| names.iter().cloned());
    items.named.iter().filter_map(name).chain(contents).collect()
}

/// Whether an agent's announced `name` is one of these operands.
pub(crate) fn was_asked_for(name: &OsStr, sources: &[OsString]) -> bool {
    sources.iter().any(|source| {
        // Such a name is known to the agent only, and whatever it has there was asked for.
        let last = match Path::new(source).components().next_back() {
            _ if means_contents(source) => return true,
            Some(Component::Normal(last)) => last,
            _ => return true,
        };
        if last == name || (source.as_bytes() == b"~" || source.as_bytes() == b"~/") {
            return true;
        }
        is_pattern(source)
            && Pattern::new(last.as_bytes())
                .is_ok_and(|pattern| pattern.matches(name.as_bytes(), false))
    })
}

/// Whether a directory's content is meant: `.`, or something that ends with `/.`.
fn means_contents(source: &OsStr) -> bool {
    source.as_bytes() == b"." || source.as_bytes().ends_with(b"/.")
}

fn is_pattern(source: &OsStr) -> bool {
    source.as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// The paths that match a pattern, sorted, as shells expand it: a wildcard does not match hidden
/// files. Unreadable directories match nothing.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, &'static str> {
    let mut found = vec![Vec::new()];
    let mut parts = pattern.as_os_str().as_bytes().split(|byte| *byte == b'/').peekable();
    while let Some(part) = parts.next() {
        let wild = match part {
            b"**" => Some(None),
            part if is_pattern(OsStr::from_bytes(part)) => Some(Some(Pattern::new(part)?)),
            _ => None,
        };
        let mut next: Vec<Vec<u8>> = Vec::new();
        for at in found {
            match &wild {
                None => next.push([&at[..], part].concat()),
                Some(None) => directories(at, &mut next),
                Some(Some(pattern)) => {
                    let matches = |name: &OsString| pattern.matches(name.as_bytes(), false);
                    let names = children(&at).into_iter().filter(matches);
                    next.extend(names.map(|name| [&at[..], name.as_bytes()].concat()));
                }
            }
        }
        let slash = |path: &mut Vec<u8>| path.push(b'/');
        if parts.peek().is_some() && part != b"**" {
            next.iter_mut().for_each(slash);
        }
        found = next;
    }
    let paths = found.into_iter().map(|path| PathBuf::from(OsString::from_vec(path)));
    Ok(paths.filter(|path| fs::symlink_metadata(path).is_ok()).collect())
}

/// The contents of a directory whose path ends with a slash, or of the present one, by name.
fn children(directory: &[u8]) -> Vec<OsString> {
    let path = if directory.is_empty() { b"." } else { directory };
    let children = fs::read_dir(OsStr::from_bytes(path)).into_iter().flatten().flatten();
    let mut names: Vec<OsString> = children.map(|child| child.file_name()).collect();
    names.sort_unstable();
    names
}

/// A directory whose path ends with a slash, and all directories in it that are not hidden.
fn directories(directory: Vec<u8>, found: &mut Vec<Vec<u8>>) {
    let mut todo = vec![directory];
    while let Some(directory) = todo.pop() {
        let names = children(&directory).into_iter().rev();
        let names = names.filter(|name| !name.as_bytes().starts_with(b"."));
        let paths = names.map(|name| [&directory[..], name.as_bytes()].concat());
        let is_directory = |path: &Vec<u8>| {
            fs::symlink_metadata(OsStr::from_bytes(path)).is_ok_and(|metadata| metadata.is_dir())
        };
        todo.extend(paths.filter(is_directory).map(|path| [&path[..], b"/"].concat()));
        found.push(directory);
    }
}

/// `~` and `~/...` as shells have them; a path without a slash before it is the login's own.
pub(crate) fn home(path: &OsStr) -> Result<PathBuf, String> {
    let bytes = path.as_bytes();
    let Some(rest) = bytes.strip_prefix(b"~") else { return Ok(PathBuf::from(path)) };
    let home = || std::env::var_os("HOME").map(PathBuf::from).ok_or("there is no HOME".to_owned());
    match rest {
        b"" => home(),
        [b'/', rest @ ..] => Ok(home()?.join(OsStr::from_bytes(rest))),
        _ if fs::symlink_metadata(path).is_ok() => Ok(PathBuf::from(path)),
        _ => Err(format!(
            "{}: other users' homes are not looked up; write the whole path",
            path.to_string_lossy()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().expect("a directory");
        for name in ["a.txt", "b.txt", ".hidden.txt"] {
            fs::write(tree.path().join(name), name).expect("written");
        }
        fs::create_dir(tree.path().join("d")).expect("made");
        fs::write(tree.path().join("d/x"), "x").expect("written");
        tree
    }

    #[test]
    fn a_destination_is_a_directory_or_a_new_name() {
        let tree = tree();
        let at = |name: &str| tree.path().join(name).into_os_string();
        let target_dir = |name: &str, several, directory| {
            Target::of(&at(name), several, directory, &[])
                .map(|target_dir| (target_dir.directory, target_dir.name))
        };
        let root = tree.path().to_path_buf();
        assert_eq!(target_dir("d", true, false), Ok((root.join("d"), None)));
        assert_eq!(target_dir("d/", false, true), Ok((root.join("d/"), None)));
        let new = Ok((root.clone(), Some("new".into())));
        assert_eq!(target_dir("new", false, false), new);
        assert_eq!(target_dir("new", false, true), new);
        assert_eq!(target_dir("new/", false, true), new);
        assert_eq!(target_dir("a.txt", false, false), Ok((root, Some("a.txt".into()))));
        for (name, several, directory, says) in [
            ("new", true, false, "no such directory"),
            ("new/", false, false, "no such directory"),
            ("a.txt", true, false, "is not a directory"),
            ("a.txt/", false, false, "directory"),
            ("a.txt", false, true, "is a file"),
            ("none/new", false, false, "none: no such directory"),
        ] {
            let error = target_dir(name, several, directory).expect_err(name);
            assert!(error.contains(says), "{name}: {error}");
        }
    }

    #[test]
    fn sources_are_found_as_shells_and_scp_find_them() {
        let tree = tree();
        let at = |name: &str| tree.path().join(name).into_os_string();
        let named = |sources: &[&str], directories| {
            let sources: Vec<_> = sources.iter().map(|name| at(name)).collect();
            let found = Sources::look(&sources, directories, true).expect("found");
            let mut names = names(&found.items(None).expect("listed"));
            names.sort();
            (names, found.skipped.len())
        };
        let of = |names: &[&str]| names.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(named(&["*.txt"], false), (of(&["a.txt", "b.txt"]), 0));
        assert_eq!(named(&["[ab].txt", "nothing*"], false), (of(&["a.txt", "b.txt"]), 1));
        assert_eq!(named(&["d", "missing"], false), (of(&[]), 2));
        assert_eq!(named(&["d"], true), (of(&["d"]), 0));
        assert_eq!(named(&["d/."], true), (of(&["x"]), 0));
        assert_eq!(named(&["."], true).0.len(), 4);
        let found = Sources::look(&[at("d/.")], true, true).expect("found");
        let renamed = found.items(Some("new".into())).map(|items| items.named);
        assert_eq!(renamed, Ok(vec![(at("d/.").into(), Some("new".into()))]));
        let two = Sources::look(&[at("a.txt"), at("b.txt")], true, true).expect("found");
        assert!(two.items(Some("new".into())).expect_err("two").contains("not a directory"));
    }

    #[test]
    fn names_that_are_no_text_are_matched() {
        let tree = tree();
        let odd = OsStr::from_bytes(b"z\xff");
        for name in ["g", "g/.h", "g/sub"] {
            fs::create_dir(tree.path().join(name)).expect("made");
        }
        for path in [Path::new("g/a1"), &Path::new("g").join(odd), Path::new("g/sub/a2")] {
            fs::write(tree.path().join(path), "x").expect("written");
        }
        let at = |pattern: &[u8]| tree.path().join(OsStr::from_bytes(pattern));
        for (pattern, paths) in [
            (&b"g/a*"[..], &[&b"g/a1"[..]][..]),
            (b"g/*", &[b"g/a1", b"g/sub", b"g/z\xff"]),
            (b"g/z?", &[b"g/z\xff"]),
            (b"?/z\xff", &[b"g/z\xff"]),
            (b"g/**/a*", &[b"g/a1", b"g/sub/a2"]),
            (b"g/*/.", &[b"g/sub/."]),
            (b"g/*/", &[b"g/sub/"]),
            (b"[g]//a*", &[b"g//a1"]),
        ] {
            let found = matching(&at(pattern)).expect("a pattern");
            let expected: Vec<_> = paths.iter().map(|path| at(path)).collect();
            assert_eq!(found, expected, "{}", pattern.escape_ascii());
        }
        assert!(matching(&at(b"g/[")).is_err());
        assert!(was_asked_for(odd, &[OsStr::from_bytes(b"g/z*").to_owned()]));
    }

    #[test]
    fn only_requested_names_are_accepted() {
        let sources = ["dir/a.txt", "*.c", "~/x/", "sub/[ab]*"].map(OsString::from);
        for (name, asked) in [
            ("a.txt", true),
            ("main.c", true),
            ("x", true),
            ("bcd", true),
            (".x.c", false),
            ("main.h", false),
            ("dir", false),
            (".bashrc", false),
            ("cde", false),
        ] {
            assert_eq!(was_asked_for(OsStr::new(name), &sources), asked, "{name}");
        }
        assert!(was_asked_for(OsStr::new("any"), &["dir/.".into()]));
        assert!(was_asked_for(OsStr::new("home"), &["..".into()]));
    }
}
