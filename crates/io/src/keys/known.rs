//! The public keys of known servers, so that a changed key is noticed.
//!
//! ```text
//! data.example:1998 netblt-x25519 <key>
//! ```
//!
//! A server's key is trusted on first use, unless the user gave it, and is replaced only by the
//! user.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use netblt_proto::api::printable;
use netblt_proto::config::PublicKey;

use super::line::{PublicLine, fingerprint, word};
use crate::error::Error;
use crate::fsync;

/// Servers in a file at most.
const MAX_SERVERS: usize = 65_536;
/// The longest file.
const MAX_BYTES: u64 = 32 << 20;

#[derive(Clone, Debug)]
struct Known {
    server: String,
    key: PublicKey,
    line: usize,
}

/// The file, as it was read.
#[derive(Clone, Debug)]
pub struct KnownServers {
    path: PathBuf,
    all: Vec<Known>,
    lines: usize,
}

impl KnownServers {
    /// Reads the file. A missing file is an empty one. A line that cannot be parsed is an error: it
    /// may hold the key of the server in question.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = match fs::metadata(path).and_then(|about| Ok((about.len(), fs::read(path)?))) {
            Ok((bytes, _)) if bytes > MAX_BYTES => return Err(odd(path, "it is too long")),
            Ok((_, text)) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(failed(path, "cannot read the known servers", source)),
        };
        let text = String::from_utf8(text).map_err(|_| odd(path, "it is no UTF-8"))?;
        let (mut all, mut lines) = (Vec::new(), 0);
        for (line, text) in (1..).zip(text.lines()) {
            lines = line;
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (server, rest) = word(text);
            let public = rest.parse::<PublicLine>();
            let public = public.map_err(|what| odd(path, &format!("line {line}: {what}")))?;
            all.push(Known { server: server.to_ascii_lowercase(), key: public.key, line });
        }
        if all.len() > MAX_SERVERS {
            return Err(odd(path, "there are more than 65,536 servers in it"));
        }
        Ok(Self { path: path.to_owned(), all, lines })
    }

    /// The key of the server at `host:port`, if it is known. The first line counts.
    pub fn find(&self, server: &str) -> Option<PublicKey> {
        self.known(server).map(|known| known.key)
    }

    fn known(&self, server: &str) -> Option<&Known> {
        let server = server.to_ascii_lowercase();
        self.all.iter().find(|known| known.server == server)
    }

    /// Fails with [`Error::ServerKey`] if the server at `host:port` is known with another key than
    /// `offered`.
    pub fn judge(&self, server: &str, offered: PublicKey) -> Result<(), Error> {
        match self.known(server).filter(|known| known.key != offered) {
            None => Ok(()),
            Some(known) => Err(Error::ServerKey {
                server: printable(server),
                known: fingerprint(&known.key),
                offered: fingerprint(&offered),
                path: self.path.clone(),
                line: known.line,
            }),
        }
    }

    /// From now on the server at `host:port` has this key. False if it was known with it already.
    /// One that is known with another key is never changed here.
    pub fn pin(&mut self, server: &str, key: PublicKey) -> Result<bool, Error> {
        self.judge(server, key)?;
        if self.find(server).is_some() {
            return Ok(false);
        }
        if server.is_empty() || server.contains(char::is_whitespace) || server.starts_with('#') {
            return Err(odd(&self.path, "a server's name has no spaces"));
        }
        if self.all.len() >= MAX_SERVERS {
            return Err(odd(&self.path, "there are 65,536 servers in it"));
        }
        let cannot = |source| failed(&self.path, "cannot keep the server's key", source);
        if let Some(directory) = self.path.parent().filter(|path| !path.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(cannot)?;
        }
        let server = server.to_ascii_lowercase();
        let public = PublicLine { key, comment: String::new() };
        // One write at the end of the file: another process that appends at the same time loses
        // nothing.
        let whole =
            fs::read(&self.path).is_ok_and(|text| !text.is_empty() && !text.ends_with(b"\n"));
        let text = format!("{}{server} {public}\n", if whole { "\n" } else { "" });
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path);
        let mut file = opened.map_err(cannot)?;
        file.write_all(text.as_bytes())
            .and_then(|()| fsync::sync(&file).map(|_| ()))
            .map_err(cannot)?;
        self.lines += 1;
        self.all.push(Known { server, key, line: self.lines });
        Ok(true)
    }
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> Error {
    Error::File { path: path.to_owned(), what, source }
}

fn odd(path: &Path, what: &str) -> Error {
    let source = io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    failed(path, "the known servers cannot be used", source)
}

#[cfg(test)]
mod tests {
    use netblt_proto::config::StaticKey;

    use super::*;

    fn key(byte: u8) -> PublicKey {
        StaticKey::from_bytes([byte; 32]).public()
    }

    #[test]
    fn a_server_is_known_from_the_first_time_on() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("netblt").join("known_servers");
        let mut known = KnownServers::read(&path).unwrap();
        assert_eq!(known.find("host:1"), None);
        assert!(known.pin("Host:1", key(1)).unwrap());
        assert!(known.pin("[2001:db8::7]:1", key(2)).unwrap());
        assert!(!known.pin("host:1", key(1)).unwrap(), "once");
        let again = KnownServers::read(&path).unwrap();
        for known in [known, again] {
            assert_eq!(known.find("host:1"), Some(key(1)));
            assert_eq!(known.find("[2001:db8::7]:1"), Some(key(2)));
            assert_eq!(known.find("host:2"), None);
            assert!(known.judge("HOST:1", key(1)).is_ok());
            assert!(known.judge("other:1", key(3)).is_ok());
        }
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
    }

    #[test]
    fn a_changed_key_is_refused_with_both_fingerprints_and_what_to_do() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("known");
        fs::write(&path, format!("# mine\nhost:1 {}", public(1))).unwrap();
        let mut known = KnownServers::read(&path).unwrap();
        let error = known.pin("host:1", key(2)).unwrap_err().to_string();
        for part in [
            "THE KEY OF host:1 HAS CHANGED",
            &fingerprint(&key(1)),
            &fingerprint(&key(2)),
            &format!("remove line 2 of {}", path.display()),
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(KnownServers::read(&path).unwrap().find("host:1"), Some(key(1)));
        // A last line without an end is not joined to the new one.
        assert!(known.pin("other:1", key(2)).unwrap());
        let again = KnownServers::read(&path).unwrap();
        assert_eq!((again.find("host:1"), again.find("other:1")), (Some(key(1)), Some(key(2))));
    }

    fn public(byte: u8) -> PublicLine {
        PublicLine { key: key(byte), comment: String::new() }
    }

    #[test]
    fn an_invalid_line_is_an_error_that_names_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("known");
        for text in ["host:1", "host:1 abc", "host:1 netblt-x25519 abc"] {
            fs::write(&path, format!("\n{text}\n")).unwrap();
            let error = KnownServers::read(&path).unwrap_err().to_string();
            assert!(error.contains("line 2: "), "{error}");
        }
        fs::write(&path, b"\xff").unwrap();
        assert!(KnownServers::read(&path).is_err());
        fs::remove_file(&path).unwrap();
        let mut known = KnownServers::read(&path).unwrap();
        for server in ["", "a b", "a\nb", "#a"] {
            assert!(known.pin(server, key(1)).is_err(), "{server:?}");
        }
        assert!(!path.exists());
    }
}
