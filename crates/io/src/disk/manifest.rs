//! The manifest: a line for each transferred file, as `b3sum`, `sha256sum` and `md5sum` write and
//! check it, as a bag has it (RFC 8493), or as JSON.
//!
//! An error of the manifest ends no transfer: the files are stored and verified without it.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};

use crate::checksums::algorithm::{Digests, HashAlgorithm, HashAlgorithms, hex};
use crate::checksums::bag::{self, BagPlace};
use crate::checksums::options::{ChecksumOptions, ManifestFormat};
use crate::error::{Error, Warning, file_error, shown_path, system_message};

/// A list being written.
#[derive(Debug)]
pub(crate) struct Manifest {
    format: ManifestFormat,
    /// One file, or one for each algorithm of a bag.
    files: Vec<ManifestFile>,
    /// The algorithms whose digests are in it.
    algorithms: HashAlgorithms,
    place: BagPlace,
    /// Names in it that are no text.
    odd: u64,
    /// Files outside of a bag's `data`, which are not in it.
    outside: u64,
}

#[derive(Debug)]
struct ManifestFile {
    path: PathBuf,
    out: BufWriter<File>,
    /// The algorithm of its lines, unless they have all.
    algorithm: Option<HashAlgorithm>,
    /// The first write that failed; nothing is written after it.
    failed: Option<io::Error>,
}

const WHAT: &str = "the list of what was transferred cannot be written";
/// The declaration of a bag (RFC 8493 §2.1.1).
const DECLARATION: &str = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n";

impl Manifest {
    /// Creates its files, or empties them. `destination`: the directory where the files arrive, if
    /// that is at this end.
    pub(crate) fn create(
        path: &Path,
        options: &ChecksumOptions,
        destination: Option<&Path>,
    ) -> Result<Self, Error> {
        let format = options.manifest_format;
        let algorithms = format.algorithms(options.algorithms);
        let one = |algorithm| ManifestFile::create(path.to_owned(), algorithm);
        let files = match format {
            ManifestFormat::Json => vec![one(None)?],
            ManifestFormat::Bagit => {
                declare(path).map_err(|error| file_error(path, WHAT, error))?;
                let file = |own| ManifestFile::create(path.join(bag::manifest_of(own)), Some(own));
                algorithms.iter().map(file).collect::<Result<_, _>>()?
            }
            _ => algorithms.iter().map(|own| one(Some(own))).collect::<Result<_, _>>()?,
        };
        let place = match format {
            ManifestFormat::Bagit => BagPlace::of(path, destination),
            _ => BagPlace::default(),
        };
        Ok(Self { format, files, algorithms, place, odd: 0, outside: 0 })
    }

    /// A file of this name, length and content was transferred.
    pub(crate) fn add(&mut self, name: &[u8], bytes: u64, digests: &Digests) {
        let path;
        let name = match self.format {
            ManifestFormat::Bagit => {
                path = self.place.path(name);
                &path
            }
            _ => name,
        };
        if self.format == ManifestFormat::Bagit && !bag::is_payload(name) {
            self.outside += 1;
            return;
        }
        self.odd += u64::from(str::from_utf8(name).is_err());
        for file in &mut self.files {
            let line = match file.algorithm {
                None => json_line(name, bytes, digests, self.algorithms),
                Some(algorithm) => {
                    let Some(hex) = digests.hex(algorithm) else { continue };
                    match self.format {
                        ManifestFormat::Bagit => bag_line(name, &hex),
                        _ => escaped_line(name, &hex),
                    }
                }
            };
            file.unless_failed(|out| out.write_all(&line));
        }
    }

    /// All are in it; a warning if it could not be written.
    pub(crate) fn finish(&mut self) -> Option<Warning> {
        self.files.iter_mut().for_each(|file| file.unless_failed(BufWriter::flush));
        self.files.iter().find_map(ManifestFile::warning)
    }

    /// The warning for the user, if there is one.
    pub(crate) fn note(&self) -> Option<String> {
        let path = shown_path(&self.files.first()?.path);
        if self.outside > 0 {
            let count = self.outside;
            return Some(format!(
                "{path}: {count} files are outside of the bag's directory data, and not in its \
                 manifest"
            ));
        }
        let checker = match self.format {
            ManifestFormat::B3sum => "b3sum refuses to check this list",
            ManifestFormat::Bagit => "a bag's manifest is in UTF-8",
            // The others take any bytes, and JSON has those in `name_hex`.
            _ => return None,
        };
        (self.odd > 0).then(|| format!("{path}: {checker}: {} of its names are no UTF-8", self.odd))
    }

    /// The transfer starts over.
    pub(crate) fn restart(&mut self) {
        (self.odd, self.outside) = (0, 0);
        for file in &mut self.files {
            file.unless_failed(|out| {
                out.flush()?;
                out.get_ref().set_len(0)?;
                out.rewind()
            });
        }
    }
}

impl ManifestFile {
    fn create(path: PathBuf, algorithm: Option<HashAlgorithm>) -> Result<Self, Error> {
        let file = File::create(&path).map_err(|error| file_error(&path, WHAT, error))?;
        Ok(Self { path, out: BufWriter::new(file), algorithm, failed: None })
    }

    fn warning(&self) -> Option<Warning> {
        self.failed.as_ref().map(|error| Warning::Unwritten {
            path: shown_path(&self.path),
            what: "list of what was transferred",
            why: system_message(error),
        })
    }

    fn unless_failed(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if self.failed.is_none() {
            self.failed = write(&mut self.out).err();
        }
    }
}

/// Makes a directory a bag, unless it is one.
fn declare(bag: &Path) -> io::Result<()> {
    match File::create_new(bag.join("bagit.txt")) {
        Ok(mut file) => file.write_all(DECLARATION.as_bytes()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// A line of such a list, its end included. `b3sum` begins one with a backslash if it has escaped
/// something in the name.
pub fn line(name: &[u8], digest: &[u8; 32]) -> Vec<u8> {
    escaped_line(name, &hex(digest))
}

/// The same with the digits of any digest: `sha256sum` and `md5sum` have the same lines.
fn escaped_line(name: &[u8], hex: &str) -> Vec<u8> {
    let mut line = [hex.as_bytes(), b"  "].concat();
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

/// A line of a bag's manifest.
fn bag_line(path: &[u8], hex: &str) -> Vec<u8> {
    [hex.as_bytes(), b"  ", &bag::encoded(path), b"\n"].concat()
}

/// A line of JSON. A name that is no text is also there in hexadecimal digits.
fn json_line(name: &[u8], bytes: u64, digests: &Digests, algorithms: HashAlgorithms) -> Vec<u8> {
    let mut line = format!("{{\"name\":{}", json_string(&String::from_utf8_lossy(name)));
    if str::from_utf8(name).is_err() {
        line += &format!(",\"name_hex\":\"{}\"", hex(name));
    }
    let digest = |algorithm: HashAlgorithm| {
        digests.hex(algorithm).map(|hex| format!("\"{algorithm}\":\"{hex}\""))
    };
    let digests: Vec<String> = algorithms.iter().filter_map(digest).collect();
    line += &format!(",\"bytes\":{bytes},\"digests\":{{{}}}}}\n", digests.join(","));
    line.into_bytes()
}

/// A string of JSON.
fn json_string(text: &str) -> String {
    let mut string = String::with_capacity(text.len() + 2);
    string.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => string.extend(['\\', c]),
            '\0'..='\u{1f}' => string += &format!("\\u{:04x}", u32::from(c)),
            c => string.push(c),
        }
    }
    string.push('"');
    string
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn digests(byte: u8) -> Digests {
        let digest = |algorithm: HashAlgorithm| (algorithm, vec![byte; algorithm.digest_bytes()]);
        HashAlgorithm::ALL.into_iter().map(digest).collect()
    }

    fn options(manifest_format: ManifestFormat, algorithms: &str) -> ChecksumOptions {
        let algorithms = match algorithms {
            "" => HashAlgorithms::default(),
            names => names.parse().expect("algorithms"),
        };
        ChecksumOptions { manifest_format, algorithms, ..ChecksumOptions::default() }
    }

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
    fn each_format_has_its_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("list");
        let (d16, d32) = ("01".repeat(16), "01".repeat(32));
        for (format, algorithms, expected) in [
            (ManifestFormat::B3sum, "md5", format!("\\{d32}  a\\nb\n{d32}  \"\n")),
            (ManifestFormat::Sha256sum, "", format!("\\{d32}  a\\nb\n{d32}  \"\n")),
            (ManifestFormat::Md5sum, "sha512", format!("\\{d16}  a\\nb\n{d16}  \"\n")),
            (
                ManifestFormat::Json,
                "md5",
                format!(
                    "{{\"name\":\"a\\u000ab\",\"bytes\":7,\"digests\":\
                     {{\"blake3\":\"{d32}\",\"md5\":\"{d16}\"}}}}\n\
                     {{\"name\":\"\\\"\",\"bytes\":8,\"digests\":\
                     {{\"blake3\":\"{d32}\",\"md5\":\"{d16}\"}}}}\n"
                ),
            ),
        ] {
            let mut manifest =
                Manifest::create(&path, &options(format, algorithms), None).expect("created");
            manifest.add(b"a\nb", 7, &digests(1));
            manifest.add(b"\"", 8, &digests(1));
            assert_eq!((manifest.finish(), manifest.note()), (None, None));
            assert_eq!(fs::read_to_string(&path).expect("read"), expected, "{format:?}");
        }
        let mut manifest =
            Manifest::create(&path, &options(ManifestFormat::Json, ""), None).expect("created");
        manifest.add(b"\xff", 0, &digests(1));
        assert_eq!((manifest.finish(), manifest.note()), (None, None));
        let text = fs::read_to_string(&path).expect("read");
        assert!(
            text.starts_with("{\"name\":\"\u{fffd}\",\"name_hex\":\"ff\",\"bytes\":0"),
            "{text}"
        );
    }

    #[test]
    fn a_bag_has_a_manifest_for_each_algorithm() {
        let bag = tempfile::tempdir().expect("a directory");
        let read = |name: &str| fs::read_to_string(bag.path().join(name)).expect(name);
        let data = bag.path().join("data");
        fs::create_dir(&data).expect("made");
        for (algorithms, destination, paths) in [
            ("", &*data, ["data/x%0A", "data/data/y"].as_slice()),
            ("md5,sha256", bag.path(), &["data/y"]),
        ] {
            let options = options(ManifestFormat::Bagit, algorithms);
            let mut manifest =
                Manifest::create(bag.path(), &options, Some(destination)).expect("created");
            manifest.add(b"x\n", 1, &digests(1));
            manifest.add(b"data/y", 2, &digests(1));
            assert_eq!(manifest.finish(), None);
            let outside = manifest.note().is_some_and(|note| note.contains("1 files are outside"));
            assert_eq!(outside, paths.len() == 1);
            for algorithm in ManifestFormat::Bagit.algorithms(options.algorithms).iter() {
                let hex = "01".repeat(algorithm.digest_bytes());
                let lines = paths.iter().map(|path| format!("{hex}  {path}\n"));
                assert_eq!(read(&bag::manifest_of(algorithm)), lines.collect::<String>());
            }
        }
        assert_eq!(read("bagit.txt"), DECLARATION);
        let nowhere = bag.path().join("nowhere");
        let error = Manifest::create(&nowhere, &options(ManifestFormat::Bagit, ""), None);
        assert!(error.expect_err("no directory").to_string().contains(WHAT));
    }

    #[test]
    fn a_list_starts_over_empty() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("list");
        let options = ChecksumOptions::default();
        let mut manifest = Manifest::create(&path, &options, None).expect("created");
        manifest.add(b"a", 1, &digests(1));
        manifest.restart();
        manifest.add(b"b", 1, &digests(2));
        assert_eq!(manifest.finish(), None);
        let text = fs::read_to_string(&path).expect("read");
        assert_eq!(text, format!("{}  b\n", "02".repeat(32)));
        let nowhere = Manifest::create(&path.join("x"), &options, None);
        let nowhere = nowhere.expect_err("no directory").to_string();
        assert!(nowhere.contains("the list of what was transferred"), "{nowhere}");
    }

    #[test]
    fn a_full_disk_is_named_when_all_are_in_it() {
        let options = ChecksumOptions::default();
        let full = Path::new("/dev/full");
        let mut manifest = Manifest::create(full, &options, None).expect("opened");
        manifest.add(b"a", 1, &digests(1));
        let warning = manifest.finish().expect("a warning").to_string();
        assert!(warning.starts_with("/dev/full: cannot write the list"), "{warning}");
        assert!(warning.contains("No space left"), "{warning}");
        assert!(!warning.contains("os error"), "{warning}");
    }
}
