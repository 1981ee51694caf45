//! A list of the digests that files are to have, as `sha256sum`, `md5sum`, `b3sum` and programs for
//! bags (RFC 8493) write it. Nothing is compared here.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER_PERMISSIVE;

use super::algorithm::{Digests, HashAlgorithm, HashAlgorithms, hex};
use super::bag::{self, BagPlace};
use crate::error::{Error, file_error};

/// Largest list: names of a few hundred bytes for 4 million files.
const MAX_BYTES: u64 = 1 << 30;

/// The digests that files are to have, by name.
#[derive(Debug, Default)]
pub struct ExpectedDigests {
    names: HashMap<Box<[u8]>, usize>,
    /// Of each name all digests, which must all be its own.
    digests: Vec<Vec<ExpectedDigest>>,
    /// The bag whose manifest it is: names are paths in it.
    bag: Option<PathBuf>,
}

/// One digest of a file.
#[derive(Debug)]
struct ExpectedDigest {
    /// The algorithms that may have made it: 64 digits are SHA-256 or BLAKE3.
    algorithms: HashAlgorithms,
    digest: Box<[u8]>,
}

impl ExpectedDigests {
    /// Reads a list. Where a digest may be of several algorithms, and some of them are `chosen`, it
    /// is of one of these.
    pub fn read(path: &Path, chosen: HashAlgorithms) -> Result<Self, Error> {
        let unread = |error| file_error(path, "the list of digests cannot be read", error);
        let mut text = Vec::new();
        let file = File::open(path).map_err(unread)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(unread)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(unread(io::Error::other("it has more than 1 GiB")));
        }
        let algorithm = bag::algorithm_of(path);
        let bag = algorithm.map(|_| path.parent().unwrap_or(Path::new("")).to_owned());
        let mut list = Self { bag, ..Self::default() };
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let added = list.add_line(line, algorithm, chosen);
            added.map_err(|why| unread(io::Error::other(format!("line {number}: {why}"))))?;
        }
        Ok(list)
    }

    /// The algorithms that its digests are of.
    pub fn algorithms(&self) -> HashAlgorithms {
        let all = self.digests.iter().flatten().map(|one| one.algorithms);
        all.fold(HashAlgorithms::default(), HashAlgorithms::and)
    }

    /// How many names it has.
    pub(crate) fn len(&self) -> usize {
        self.digests.len()
    }

    /// Where the files of a transfer are in the bag, if it is the manifest of one.
    pub(crate) fn place(&self, destination: Option<&Path>) -> Option<BagPlace> {
        let bag = self.bag.as_deref()?;
        let bag = if bag.as_os_str().is_empty() { Path::new(".") } else { bag };
        Some(BagPlace::of(bag, destination))
    }

    /// The number of a name in it.
    pub(crate) fn number(&self, name: &[u8]) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Each name, with its number.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.names.iter().map(|(name, number)| (&**name, *number))
    }

    /// Why these digests are not those of the name with this number, if they are not.
    pub(crate) fn difference(&self, number: usize, digests: &Digests) -> Option<String> {
        let all = self.digests.get(number).into_iter().flatten();
        let mut differing = all.filter(|one| {
            let is_it = |algorithm| digests.get(algorithm) == Some(&*one.digest);
            !one.algorithms.iter().any(is_it)
        });
        let one = differing.next()?;
        let found = one.algorithms.iter().filter_map(|algorithm| {
            digests.hex(algorithm).map(|hex| format!("its {algorithm} is {hex}"))
        });
        let found: Vec<String> = found.collect();
        Some(format!("{}, and {} is expected", found.join(" and "), hex(&one.digest)))
    }

    fn add_line(
        &mut self,
        line: &[u8],
        algorithm: Option<HashAlgorithm>,
        chosen: HashAlgorithms,
    ) -> Result<(), String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(());
        }
        let (line, escaped) = match line.strip_prefix(b"\\").filter(|_| algorithm.is_none()) {
            Some(line) => (line, true),
            None => (line, false),
        };
        let (algorithm, digits, name) = match tagged(line) {
            Some((tag, digits, name)) if algorithm.is_none() => (Some(of_tag(tag)?), digits, name),
            _ => {
                let (digits, name) = plain(line, algorithm.is_some())?;
                (algorithm, digits, name)
            }
        };
        let digest = HEXLOWER_PERMISSIVE.decode(digits);
        let digest = digest.map_err(|_| "it does not begin with a digest".to_owned())?;
        let algorithms = candidates(digest.len(), algorithm, chosen)?;
        let name = match (escaped, self.bag.is_some()) {
            (true, _) => unescaped(name)?,
            (false, true) => bag::decoded(name),
            (false, false) => name.to_vec(),
        };
        let mut name = &name[..];
        while let Some(rest) = name.strip_prefix(b"./") {
            name = rest;
        }
        let next = self.digests.len();
        let number = *self.names.entry(name.into()).or_insert(next);
        if number == next {
            self.digests.push(Vec::new());
        }
        let expected = ExpectedDigest { algorithms, digest: digest.into() };
        if let Some(all) = self.digests.get_mut(number) {
            all.push(expected);
            all.shrink_to_fit();
        }
        Ok(())
    }
}

/// The tag, digits and name of a line as BSD has it, and `--tag` of the GNU programs:
/// `SHA256 (name) = digits`.
fn tagged(line: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let open = line.windows(2).position(|two| two == b" (")?;
    let close = line.windows(4).rposition(|four| four == b") = ")?;
    let tag = str::from_utf8(line.get(..open)?).ok()?;
    let is_tag = tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let name = line.get(open + 2..close).filter(|_| is_tag && !tag.is_empty())?;
    Some((tag, line.get(close + 4..)?, name))
}

fn of_tag(tag: &str) -> Result<HashAlgorithm, String> {
    let algorithm = HashAlgorithm::named(&tag.replace('-', ""));
    algorithm.ok_or_else(|| format!("there is no algorithm \"{tag}\" here"))
}

/// The digits and the name of a line without a tag: between them are a space and a space or an
/// asterisk, in a bag any number of spaces and tabs.
fn plain(line: &[u8], bag: bool) -> Result<(&[u8], &[u8]), String> {
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (digits, rest) = end.and_then(|end| line.split_at_checked(end)).unwrap_or((line, b""));
    let name = match (bag, rest) {
        (true, rest) => rest.trim_ascii_start(),
        (false, [_, b' ' | b'*', name @ ..] | [_, name @ ..]) => name,
        (false, []) => b"",
    };
    match name {
        [] => Err("it has no digest and name".to_owned()),
        name => Ok((digits, name)),
    }
}

/// The algorithms that a digest of so many bytes may be of.
fn candidates(
    bytes: usize,
    algorithm: Option<HashAlgorithm>,
    chosen: HashAlgorithms,
) -> Result<HashAlgorithms, String> {
    let all = HashAlgorithm::ALL.into_iter();
    let is_it = |one: &HashAlgorithm| {
        one.digest_bytes() == bytes && algorithm.is_none_or(|algorithm| *one == algorithm)
    };
    let possible: HashAlgorithms = all.filter(is_it).collect();
    let narrow: HashAlgorithms = possible.iter().filter(|one| chosen.contains(*one)).collect();
    match (possible.is_empty(), narrow.is_empty()) {
        (true, _) => Err(match algorithm {
            Some(algorithm) => format!("a digest of {} digits is no {algorithm}", bytes * 2),
            None => {
                let all = HashAlgorithm::ALL.map(HashAlgorithm::name).join(", ");
                format!("a digest of {} digits is none of {all}", bytes * 2)
            }
        }),
        (false, true) => Ok(possible),
        (false, false) => Ok(narrow),
    }
}

/// A name as the GNU programs escape it.
fn unescaped(name: &[u8]) -> Result<Vec<u8>, String> {
    let mut all = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        all.push(match (byte, byte == &b'\\') {
            (_, true) => match bytes.next() {
                Some(b'\\') => b'\\',
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                _ => return Err("a backslash in its name escapes nothing".to_owned()),
            },
            (byte, false) => *byte,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const EMPTY_256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const EMPTY_B3: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    const EMPTY_MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";

    fn read(name: &str, text: impl AsRef<[u8]>, chosen: &str) -> Result<ExpectedDigests, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(name);
        fs::write(&path, text).expect("written");
        let chosen = chosen.parse().unwrap_or_default();
        ExpectedDigests::read(&path, chosen).map_err(|error| error.to_string())
    }

    fn names(list: &ExpectedDigests) -> Vec<&[u8]> {
        let mut names: Vec<_> = list.names().map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    }

    /// The digests of nothing.
    fn nothing() -> Digests {
        let digest = |hex: &str| HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).expect("hex");
        [
            (HashAlgorithm::Sha256, digest(EMPTY_256)),
            (HashAlgorithm::Blake3, digest(EMPTY_B3)),
            (HashAlgorithm::Md5, digest(EMPTY_MD5)),
        ]
        .into_iter()
        .collect()
    }

    #[test]
    fn lines_of_all_programs_are_read() {
        let upper = EMPTY_256.to_uppercase();
        let text = [
            format!("# a remark\n{EMPTY_MD5}  a b\n{EMPTY_MD5} *binary\n").into_bytes(),
            format!("{EMPTY_MD5} reversed\n\n{upper}  ./././dot\r\n").into_bytes(),
            format!("\\{EMPTY_B3}  new\\nline \\\\ \\r\n{EMPTY_B3}  back\\slash\n").into_bytes(),
            format!("SHA256 (in (brackets) = x) = {EMPTY_256}\n").into_bytes(),
            format!("\\MD5 (t\\na) = {EMPTY_MD5}\nBLAKE3 (b) = {EMPTY_B3}").into_bytes(),
            format!("\n{EMPTY_MD5}  a b\n{EMPTY_MD5}   space\n{EMPTY_MD5}  ").into_bytes(),
            b"\xff".to_vec(),
        ]
        .concat();
        let list = read("list", text, "").expect("a list");
        let expected: [&[u8]; 11] = [
            b" space",
            b"a b",
            b"b",
            b"back\\slash",
            b"binary",
            b"dot",
            b"in (brackets) = x",
            b"new\nline \\ \r",
            b"reversed",
            b"t\na",
            b"\xff",
        ];
        assert_eq!(names(&list), expected);
        assert_eq!(list.algorithms().to_string(), "blake3,sha256,md5");
        assert!(list.names().all(|(_, number)| list.difference(number, &nothing()).is_none()));
        assert_eq!(list.place(None), None);
    }

    #[test]
    fn a_manifest_of_a_bag_is_known_by_its_name() {
        let text = format!("{EMPTY_256}\t data/a%0Ab%25\n{EMPTY_256}  data/\\x\n");
        let list = read("manifest-sha256.txt", &text, "").expect("a list");
        assert_eq!(names(&list), [&b"data/\\x"[..], b"data/a\nb%"]);
        assert_eq!(list.algorithms().to_string(), "sha256");
        assert_eq!(list.place(None).expect("a bag").path(b"a"), b"data/a");
        let text = text.replace(EMPTY_256, EMPTY_MD5);
        let said = read("manifest-sha256.txt", text, "").expect_err("refused");
        assert!(said.ends_with("line 1: a digest of 32 digits is no sha256"), "{said}");
    }

    #[test]
    fn a_choice_narrows_the_algorithms() {
        let text = format!("{EMPTY_256}  a\n00000000  b\n");
        for (chosen, algorithms) in [
            ("", "blake3,sha256,crc32c,adler32"),
            ("sha256", "sha256,crc32c,adler32"),
            ("blake3,adler32,md5", "blake3,adler32"),
        ] {
            let list = read("list", &text, chosen).expect("a list");
            assert_eq!(list.algorithms().to_string(), algorithms, "{chosen}");
        }
    }

    #[test]
    fn a_difference_is_named() {
        let other = EMPTY_256.replace('e', "f");
        let text = format!("{EMPTY_256}  a\n{other}  a\n{EMPTY_MD5}  b\n");
        let list = read("list", text, "sha256").expect("a list");
        let (a, b) = (list.number(b"a").expect("there"), list.number(b"b").expect("there"));
        let why = list.difference(a, &nothing()).expect("different");
        assert_eq!(why, format!("its sha256 is {EMPTY_256}, and {other} is expected"));
        assert_eq!(list.difference(b, &nothing()), None);
        assert_eq!((list.number(b"c"), list.len()), (None, 2));
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_line() {
        for (text, why) in [
            ("hello  world\n".to_owned(), "line 1: it does not begin with a digest"),
            (format!("\n{EMPTY_MD5}\n"), "line 2: it has no digest and name"),
            (
                format!("{}  a\n", "ab".repeat(20)),
                "line 1: a digest of 40 digits is none of blake3",
            ),
            (format!("SHA1 (a) = {}\n", "ab".repeat(20)), "line 1: there is no algorithm \"SHA1\""),
            (format!("SHA256 (a) = {EMPTY_MD5}\n"), "line 1: a digest of 32 digits is no sha256"),
            (format!("\\{EMPTY_MD5}  a\\x\n"), "line 1: a backslash in its name escapes nothing"),
        ] {
            let said = read("list", &text, "").expect_err("refused");
            assert!(said.contains(why), "{text:?}: {said}");
        }
        let nowhere = ExpectedDigests::read(Path::new("/nowhere"), HashAlgorithms::default());
        let said = nowhere.expect_err("no file").to_string();
        assert!(said.starts_with("/nowhere: the list of digests cannot be read: "), "{said}");
    }
}
