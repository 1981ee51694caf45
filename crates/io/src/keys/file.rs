//! A private key in a file that only its owner can read, and the public key beside it.
//!
//! ```text
//! # the private key of me@laptop; keep it secret
//! netblt-x25519-private <43 characters of base64url>
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use netblt_proto::api::printable;
use netblt_proto::config::StaticKey;
use zeroize::Zeroizing;

use super::line::PublicLine;
use crate::error::Error;
use crate::fsync;
use crate::home;
use crate::ticket::{decode, encode};

/// The word before a private key.
const KIND: &str = "netblt-x25519-private";
/// A longer file is no key.
const MAX_BYTES: u64 = 4096;

/// A new key, of the system's random numbers.
pub fn generate() -> Result<StaticKey, Error> {
    let mut private = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *private).map_err(|error| Error::Socket {
        what: "the system gives no random numbers".to_owned(),
        source: io::Error::other(error.to_string()),
    })?;
    Ok(StaticKey::from_bytes(*private))
}

/// The place of a user's keys: `name` in `$XDG_CONFIG_HOME/netblt` or `~/.config/netblt`. `None`
/// without a home.
pub fn place(name: &str) -> Option<PathBuf> {
    home::config(name)
}

/// The file with the public half of the key in `path`.
pub fn public_path(path: &Path) -> PathBuf {
    let mut public = path.as_os_str().to_owned();
    public.push(".pub");
    public.into()
}

/// Keeps a key in `path`, for this user alone, and its public line in `path.pub`; answers that.
/// Neither may exist. The directory is made if it is not there, also for this user alone.
pub fn write(path: &Path, key: &StaticKey, comment: &str) -> Result<PublicLine, Error> {
    let public = PublicLine { key: key.public(), comment: printable(comment) };
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|source| failed(directory, "cannot make the directory", source))?;
    }
    let beside = public_path(path);
    if beside.symlink_metadata().is_ok() {
        return Err(Error::Exists(beside));
    }
    let text = Zeroizing::new(format!(
        "# the private key of {}; keep it secret\n{KIND} {}\n",
        if public.comment.is_empty() { "this user" } else { &public.comment },
        &*Zeroizing::new(encode(key.private()))
    ));
    create(path, 0o600, text.as_bytes())?;
    create(&beside, 0o644, format!("{public}\n").as_bytes())?;
    Ok(public)
}

fn create(path: &Path, mode: u32, text: &[u8]) -> Result<(), Error> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = opened.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists(path.to_owned()),
        _ => failed(path, "cannot write the key", source),
    })?;
    let written = file.write_all(text).and_then(|()| fsync::sync(&file).map(|_| ()));
    written.map_err(|source| failed(path, "cannot write the key", source))
}

/// Reads a key. A file that others can read or change is refused, for it is theirs too.
pub fn read(path: &Path) -> Result<StaticKey, Error> {
    let odd = |what: &str| {
        let source = io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        failed(path, "this is no key that can be used", source)
    };
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (about, file) = opened.map_err(|source| failed(path, "cannot read the key", source))?;
    if !about.is_file() {
        return Err(odd("not a file"));
    }
    if about.permissions().mode() & 0o077 != 0 {
        return Err(odd("others can read or change it: chmod 600 it, or make a new one"));
    }
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize));
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .map_err(|source| failed(path, "cannot read the key", source))?;
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = lines.next().ok_or_else(|| odd("it holds nothing"))?;
    let private = line.strip_prefix(KIND).and_then(|rest| decode(rest.trim()));
    let private = private.map(Zeroizing::new);
    match private {
        Some(private) if lines.next().is_none() => Ok(StaticKey::from_bytes(*private)),
        Some(_) => Err(odd("there is more in it than one key")),
        None if line.parse::<PublicLine>().is_ok() => {
            Err(odd("it is the public half; the private one is in the file without .pub"))
        }
        None => Err(odd("it does not begin as a private key does")),
    }
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> Error {
    Error::File { path: path.to_owned(), what, source }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_key_is_read_as_written_and_only_its_owner_can_read_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("netblt").join("key");
        let key = generate().unwrap();
        let public = write(&path, &key, "me@laptop").unwrap();
        assert_eq!((public.key, public.comment.as_str()), (key.public(), "me@laptop"));
        assert_eq!(read(&path).unwrap(), key);
        assert_eq!(read(&path).unwrap().private(), key.private());
        let beside = public_path(&path);
        assert_eq!(fs::read_to_string(&beside).unwrap().parse(), Ok(public));
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_ne!(generate().unwrap(), key);
    }

    #[test]
    fn an_existing_key_file_is_not_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        let first = generate().unwrap();
        write(&path, &first, "").unwrap();
        assert!(matches!(write(&path, &generate().unwrap(), ""), Err(Error::Exists(_))));
        fs::remove_file(&path).unwrap();
        // Nor its public half, and then the other is not made either.
        let written = write(&path, &generate().unwrap(), "");
        assert!(matches!(written, Err(Error::Exists(path)) if path.ends_with("key.pub")));
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_private_key_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("key");
        write(&path, &generate().unwrap(), "").unwrap();
        let error = |path: &Path| read(path).unwrap_err().to_string();
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(error(&path).contains("chmod 600"), "{mode:o}");
        }
        assert!(error(place.path()).contains("not a file"));
        assert!(error(&place.path().join("none")).contains("cannot read the key"));
        let text = fs::read_to_string(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for (text, wrong) in [
            ("", "it holds nothing"),
            ("# nothing\n\n", "it holds nothing"),
            ("netblt-x25519-private abc\n", "does not begin"),
            (&format!("{text}{text}"), "more in it than one"),
            (&fs::read_to_string(public_path(&path)).unwrap(), "public half"),
        ] {
            fs::write(&path, text).unwrap();
            assert!(error(&path).contains(wrong), "{text}: {}", error(&path));
        }
    }
}
