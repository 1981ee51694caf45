//! The manifest: a line for each transferred file, as `b3sum` writes and checks it.
//!
//! An error of the manifest ends no transfer: the files are stored and verified without it.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Warning, file_error, shown_path, system_message};

/// A list being written.
#[derive(Debug)]
pub(crate) struct Manifest {
    path: PathBuf,
    out: BufWriter<File>,
    /// Names in it that are no text.
    odd: u64,
    /// The first write that failed; nothing is written after it.
    failed: Option<io::Error>,
}

impl Manifest {
    /// Creates the file, or empties it.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let what = "the list of what was transferred cannot be written";
        let file = File::create(path).map_err(|error| file_error(path, what, error))?;
        Ok(Self { path: path.to_owned(), out: BufWriter::new(file), odd: 0, failed: None })
    }

    /// A file of this name and BLAKE3 was transferred.
    pub(crate) fn add(&mut self, name: &[u8], digest: &[u8; 32]) {
        self.odd += u64::from(str::from_utf8(name).is_err());
        self.unless_failed(|out| out.write_all(&line(name, digest)));
    }

    /// All are in it; a warning if it could not be written.
    pub(crate) fn finish(&mut self) -> Option<Warning> {
        self.unless_failed(BufWriter::flush);
        self.failed.as_ref().map(|error| Warning::Unwritten {
            path: shown_path(&self.path),
            what: "list of what was transferred",
            why: system_message(error),
        })
    }

    /// The warning for the user, if there is one.
    pub(crate) fn note(&self) -> Option<String> {
        let (path, count) = (shown_path(&self.path), self.odd);
        (count > 0).then(|| {
            format!("{path}: b3sum refuses to check this list: {count} of its names are no UTF-8")
        })
    }

    /// The transfer starts over.
    pub(crate) fn restart(&mut self) {
        self.odd = 0;
        self.unless_failed(|out| {
            out.flush()?;
            out.get_ref().set_len(0)?;
            out.rewind()
        });
    }

    fn unless_failed(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if self.failed.is_none() {
            self.failed = write(&mut self.out).err();
        }
    }
}

/// A line of such a list, its end included. `b3sum` begins one with a backslash if it has escaped
/// something in the name.
pub fn line(name: &[u8], digest: &[u8; 32]) -> Vec<u8> {
    let mut line = blake3::Hash::from(*digest).to_hex().as_bytes().to_vec();
    line.extend_from_slice(b"  ");
    if name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r')) {
        line.insert(0, b'\\');
    }
    for byte in name {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_b3sum() {
        // `printf '' | b3sum`, and files of the other names.
        let digest = *blake3::hash(b"").as_bytes();
        let hex = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(line(b"a b", &digest), format!("{hex}  a b\n").into_bytes());
        assert_eq!(line(b"a\\b", &digest), format!("\\{hex}  a\\\\b\n").into_bytes());
        assert_eq!(line(b"a\nb\r", &digest), format!("\\{hex}  a\\nb\\r\n").into_bytes());
    }

    #[test]
    fn a_list_starts_over_empty() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("list");
        let mut manifest = Manifest::create(&path).expect("created");
        manifest.add(b"a", &[1; 32]);
        manifest.restart();
        manifest.add(b"b", &[2; 32]);
        assert_eq!(manifest.finish(), None);
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("{}  b\n", "02".repeat(32)));
        let nowhere = Manifest::create(&path.join("x")).expect_err("no directory").to_string();
        assert!(nowhere.contains("the list of what was transferred"), "{nowhere}");
    }

    #[test]
    fn a_full_disk_is_named_when_all_are_in_it() {
        let mut manifest = Manifest::create(Path::new("/dev/full")).expect("opened");
        manifest.add(b"a", &[1; 32]);
        let warning = manifest.finish().expect("a warning").to_string();
        assert!(warning.starts_with("/dev/full: cannot write the list"), "{warning}");
        assert!(warning.contains("No space left"), "{warning}");
        assert!(!warning.contains("os error"), "{warning}");
    }
}
