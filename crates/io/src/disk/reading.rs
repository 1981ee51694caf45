//! The files that a sender has read, until the receiver's verdict says which of them it has: names
//! and digests of a million files are in a file without a name, and not in memory.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _};

use crate::checksums::algorithm::{Digests, HashAlgorithms};

/// Bytes that are kept in memory before they go to a file.
const IN_MEMORY: usize = 1 << 20;

/// Files that were read, in their order.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    /// The newest ones.
    recent: Vec<u8>,
    /// All before them.
    spooled: Option<File>,
    /// There is no place for a file: all stay in memory.
    placeless: bool,
}

/// A file that was read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Its number in the transfer.
    pub(crate) number: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) bytes: u64,
    pub(crate) digests: Digests,
}

impl Readings {
    /// Adds one.
    pub(crate) fn add(&mut self, reading: &Reading) {
        let Reading { number, name, bytes, digests } = reading;
        let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
        let (number, bytes, length) =
            (number.to_be_bytes(), bytes.to_be_bytes(), length.to_be_bytes());
        let algorithms = [digests.algorithms().bits()];
        for part in [&number[..], &bytes, &length, &algorithms, digests.bytes(), name] {
            self.recent.extend_from_slice(part);
        }
        if self.recent.len() >= IN_MEMORY && !self.placeless && self.spool().is_err() {
            self.placeless = true;
        }
    }

    /// Moves them from memory to the file.
    fn spool(&mut self) -> io::Result<()> {
        let file = match &mut self.spooled {
            Some(file) => file,
            none => none.insert(nameless()?),
        };
        let before = file.stream_position()?;
        if let Err(error) = file.write_all(&self.recent) {
            // A part of it would be read as a whole.
            file.set_len(before)?;
            return Err(error);
        }
        self.recent.clear();
        Ok(())
    }

    /// Hands over all of them.
    pub(crate) fn each(self, mut take: impl FnMut(Reading)) -> io::Result<()> {
        if let Some(mut file) = self.spooled {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(0))?;
            all(&mut BufReader::new(file.take(length)), &mut take)?;
        }
        all(&mut &self.recent[..], &mut take)
    }
}

fn all(from: &mut impl Read, take: &mut impl FnMut(Reading)) -> io::Result<()> {
    let mut head = [0; 21];
    loop {
        match from.read(&mut head[..1])? {
            0 => return Ok(()),
            _ => from.read_exact(&mut head[1..])?,
        }
        let number = |at: usize| {
            let digits = head.iter().skip(at).take(8);
            digits.fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let mut length = [0; 4];
        length.copy_from_slice(&head[16..20]);
        let algorithms = HashAlgorithms::from_bits(head[20]);
        let mut digests = vec![0; algorithms.digest_bytes()];
        from.read_exact(&mut digests)?;
        let digests = Digests::from_bytes(algorithms, digests.into()).unwrap_or_default();
        let mut name = vec![0; u32::from_be_bytes(length) as usize];
        from.read_exact(&mut name)?;
        take(Reading { number: number(0), bytes: number(8), digests, name });
    }
}

/// A file that is gone when it is closed.
#[cfg(target_os = "linux")]
fn nameless() -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?;
    Ok(file.into())
}

#[cfg(not(target_os = "linux"))]
fn nameless() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_files_come_back_in_order_from_memory_or_file() {
        for count in [0u64, 3, 40_000] {
            let one = |number: u64| Reading {
                number,
                name: format!("d/{number}\n\u{0}").into_bytes(),
                bytes: number * 7,
                digests: Digests::of_blake3(&[number as u8; 32]),
            };
            let mut readings = Readings::default();
            (0..count).for_each(|number| readings.add(&one(number)));
            assert!(readings.placeless || readings.recent.len() < IN_MEMORY);
            let mut found = Vec::new();
            readings.each(|reading| found.push(reading)).expect("read");
            assert_eq!(found, (0..count).map(one).collect::<Vec<_>>());
        }
    }
}
