//! The list of what was transferred, a line a file, as `b3sum` writes and checks it.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, file_error, shown_path};

/// A list being written.
#[derive(Debug)]
pub(crate) struct Manifest {
    path: PathBuf,
    out: BufWriter<File>,
    /// Names in it that are no text.
    odd: u64,
}

impl Manifest {
    /// Creates the file, or empties it.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|e| failed(path, e))?;
        Ok(Self { path: path.to_owned(), out: BufWriter::new(file), odd: 0 })
    }

    /// A file of this name and BLAKE3 was transferred.
    pub(crate) fn add(&mut self, name: &[u8], digest: &[u8; 32]) -> Result<(), Error> {
        self.odd += u64::from(str::from_utf8(name).is_err());
        let written = self.out.write_all(&line(name, digest));
        written.map_err(|e| failed(&self.path, e))
    }

    /// All are in it.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.out.flush().map_err(|e| failed(&self.path, e))
    }

    /// What the user should know of it.
    pub(crate) fn note(&self) -> Option<String> {
        let (path, count) = (shown_path(&self.path), self.odd);
        (count > 0).then(|| {
            format!("{path}: b3sum --check refuses this list: {count} of its names are no UTF-8")
        })
    }

    /// The transfer starts over.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        self.odd = 0;
        let emptied = self.out.flush().and_then(|()| {
            self.out.get_ref().set_len(0)?;
            self.out.rewind()
        });
        emptied.map_err(|e| failed(&self.path, e))
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    file_error(path, "the list of what was transferred cannot be written", error)
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
        manifest.add(b"a", &[1; 32]).expect("added");
        manifest.restart().expect("emptied");
        manifest.add(b"b", &[2; 32]).expect("added");
        manifest.finish().expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("{}  b\n", "02".repeat(32)));
        let nowhere = Manifest::create(&path.join("x")).expect_err("no directory").to_string();
        assert!(nowhere.contains("the list of what was transferred"), "{nowhere}");
    }
}
