//! The checksums of files, computed while their data pass: a thread for each algorithm.
//!
//! The data of a file are handed over in their order, and are copied for the threads. What waits
//! for them is bounded, so the data wait when the slowest algorithm does not keep up, and for
//! nothing else. A part that did not come in order is read back from the file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use super::algorithm::{Digests, HashAlgorithm, HashAlgorithms};
use super::hasher::Hasher;
use crate::error::Error;

/// Bytes that are handed over at once: they stay in a processor's cache until all threads have had
/// them.
const CHUNK_BYTES: usize = 256 << 10;
/// Most chunks that wait for a thread: 4 MiB, which the threads share.
const MAX_WAITING: usize = 16;
/// A file of at most so many bytes is hashed at once: waking the threads would take longer.
const SMALL_BYTES: usize = 16 << 10;
/// Memory of a file that is being hashed, in all threads.
pub(crate) const FILE_HASH_BYTES: u64 = 1024;

/// The threads, and their files.
#[derive(Debug)]
pub(crate) struct ContentHashes {
    algorithms: HashAlgorithms,
    workers: Vec<Worker>,
    /// Files that were begun.
    begun: u64,
    /// For parts that are read back.
    space: Vec<u8>,
}

/// A file of which a beginning is hashed.
#[derive(Debug)]
pub(crate) struct FileHash {
    number: u64,
    /// Bytes of it that are hashed.
    at: u64,
    /// BLAKE3 of the same bytes, if it is to be compared with that of the transfer: parts are read
    /// from a file that others may change.
    check: Option<Box<blake3::Hasher>>,
}

/// The thread of one algorithm.
#[derive(Debug)]
struct Worker {
    algorithm: HashAlgorithm,
    commands: SyncSender<Command>,
    digests: Receiver<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Command {
    Add(u64, Arc<[u8]>),
    Finish(u64),
    Forget(u64),
}

impl ContentHashes {
    /// Starts the threads for these algorithms; `None` if there are none, or BLAKE3 alone.
    pub(crate) fn start(algorithms: HashAlgorithms) -> Result<Option<Self>, Error> {
        let algorithms = algorithms.without(HashAlgorithm::Blake3);
        if algorithms.is_empty() {
            return Ok(None);
        }
        let workers = algorithms.iter().map(Worker::start).collect::<Result<_, _>>()?;
        Ok(Some(Self { algorithms, workers, begun: 0, space: Vec::new() }))
    }

    /// Begins a file. `checked`: [`Self::finish`] compares BLAKE3 of its bytes.
    pub(crate) fn begin(&mut self, checked: bool) -> FileHash {
        self.begun += 1;
        let check = checked.then(Box::default);
        FileHash { number: self.begun, at: 0, check }
    }

    /// Adds bytes that follow those before.
    pub(crate) fn add(&self, file: &mut FileHash, data: &[u8]) -> Result<(), Error> {
        for chunk in data.chunks(CHUNK_BYTES) {
            file.check.iter_mut().for_each(|check| _ = check.update(chunk));
            self.tell(&Command::Add(file.number, chunk.into()))?;
            file.at += chunk.len() as u64;
        }
        Ok(())
    }

    /// Adds the bytes up to `to` from the file itself.
    pub(crate) fn add_from(
        &mut self,
        file: &mut FileHash,
        from: &File,
        to: u64,
    ) -> Result<io::Result<()>, Error> {
        let mut space = std::mem::take(&mut self.space);
        space.resize(CHUNK_BYTES, 0);
        while file.at < to {
            let most = usize::try_from(to - file.at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let Some(part) = space.get_mut(..most) else { break };
            if let Err(error) = from.read_exact_at(part, file.at) {
                return Ok(Err(error));
            }
            self.add(file, part)?;
        }
        self.space = space;
        Ok(Ok(()))
    }

    /// The digests of a file that is all here, with its BLAKE3; `None` if what was read back is not
    /// what has that.
    pub(crate) fn finish(
        &self,
        file: FileHash,
        blake3: &[u8; 32],
    ) -> Result<Option<Digests>, Error> {
        self.tell(&Command::Finish(file.number))?;
        let mut digests = vec![(HashAlgorithm::Blake3, blake3.to_vec())];
        for worker in &self.workers {
            digests.push((worker.algorithm, worker.digests.recv().map_err(|_| ended())?));
        }
        let differs = file.check.is_some_and(|check| check.finalize().as_bytes() != blake3);
        Ok((!differs).then(|| digests.into_iter().collect()))
    }

    /// A file will not be finished.
    pub(crate) fn forget(&self, file: &FileHash) -> Result<(), Error> {
        self.tell(&Command::Forget(file.number))
    }

    /// The digests of a file that is here as a whole: it consists of the parts that `each` hands
    /// over, `length` bytes in all.
    pub(crate) fn whole(
        &mut self,
        length: usize,
        blake3: &[u8; 32],
        each: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<Digests, Error> {
        if length > SMALL_BYTES {
            let mut file = self.begin(false);
            each(&mut |part| self.add(&mut file, part))?;
            let digests = self.finish(file, blake3)?;
            return digests.ok_or(Error::Fault("a digest without a check differs"));
        }
        let mut small = Vec::with_capacity(length);
        each(&mut |part| {
            small.extend_from_slice(part);
            Ok(())
        })?;
        let one = |algorithm| {
            let mut hasher = Hasher::new(algorithm)?;
            hasher.update(&small);
            Some((algorithm, hasher.finish()))
        };
        let digests = self.algorithms.iter().filter_map(one);
        Ok(digests.chain([(HashAlgorithm::Blake3, blake3.to_vec())]).collect())
    }

    fn tell(&self, command: &Command) -> Result<(), Error> {
        let told = |worker: &Worker| worker.commands.send(command.clone()).map_err(|_| ended());
        self.workers.iter().try_for_each(told)
    }
}

impl FileHash {
    /// Bytes of the file that are hashed: those before this offset.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }
}

impl Worker {
    fn start(algorithm: HashAlgorithm) -> Result<Self, Error> {
        let (commands, inbox) = sync_channel(MAX_WAITING);
        let (outbox, digests) = channel();
        let run = move || {
            let mut files: HashMap<u64, Hasher> = HashMap::new();
            while let Ok(command) = inbox.recv() {
                let (Command::Add(number, _) | Command::Finish(number) | Command::Forget(number)) =
                    command;
                let Some(mut hasher) = files.remove(&number).or_else(|| Hasher::new(algorithm))
                else {
                    return;
                };
                match command {
                    Command::Add(_, data) => {
                        hasher.update(&data);
                        files.insert(number, hasher);
                    }
                    Command::Finish(_) if outbox.send(hasher.finish()).is_err() => return,
                    Command::Finish(_) | Command::Forget(_) => {}
                }
            }
        };
        let name = format!("netblt-{algorithm}");
        match thread::Builder::new().name(name).spawn(run) {
            Ok(_) => Ok(Self { algorithm, commands, digests }),
            Err(source) => Err(Error::Thread { purpose: "for a checksum", source }),
        }
    }
}

fn ended() -> Error {
    Error::Fault("a thread that computes a checksum has ended")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn all() -> ContentHashes {
        let started = ContentHashes::start(HashAlgorithm::ALL.into_iter().collect());
        started.expect("threads").expect("some algorithms")
    }

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    /// Each algorithm by itself, at once.
    fn expected(content: &[u8]) -> Digests {
        let one = |algorithm| {
            let mut hasher = Hasher::new(algorithm)?;
            hasher.update(content);
            Some((algorithm, hasher.finish()))
        };
        let blake3 = (HashAlgorithm::Blake3, blake3::hash(content).as_bytes().to_vec());
        HashAlgorithm::ALL.into_iter().filter_map(one).chain([blake3]).collect()
    }

    #[test]
    fn files_are_hashed_side_by_side_and_parts_are_read_back() {
        let mut hashes = all();
        let (one, other) = (content(700_000), content(1_500_001));
        let mut back = tempfile::tempfile().expect("a file");
        back.write_all(&other).expect("written");
        let (mut first, mut second) = (hashes.begin(false), hashes.begin(true));
        let left = hashes.begin(false);
        hashes.add(&mut first, &one[..300_000]).expect("taken");
        hashes.add(&mut second, &other[..100]).expect("taken");
        let read = hashes.add_from(&mut second, &back, 1_400_000).expect("taken");
        read.expect("read");
        hashes.forget(&left).expect("taken");
        hashes.add(&mut first, &one[300_000..]).expect("taken");
        assert_eq!((first.at(), second.at()), (700_000, 1_400_000));
        hashes.add(&mut second, &other[1_400_000..]).expect("taken");
        for (file, content) in [(second, &other), (first, &one)] {
            let blake3 = *blake3::hash(content).as_bytes();
            let digests = hashes.finish(file, &blake3).expect("finished");
            assert_eq!(digests, Some(expected(content)));
        }
        // A file that is shorter than it was.
        let mut third = hashes.begin(false);
        assert!(hashes.add_from(&mut third, &back, 1_500_002).expect("taken").is_err());
    }

    #[test]
    fn bytes_that_are_not_those_of_the_transfer_have_no_digest() {
        let mut hashes = all();
        let mut file = hashes.begin(true);
        hashes.add(&mut file, b"another").expect("taken");
        let blake3 = *blake3::hash(b"content").as_bytes();
        assert_eq!(hashes.finish(file, &blake3).expect("finished"), None);
    }

    #[test]
    fn a_whole_file_is_hashed_the_same_whether_it_is_small_or_not() {
        let mut hashes = all();
        for len in [0, 1, SMALL_BYTES, SMALL_BYTES + 1, 3 * CHUNK_BYTES + 7] {
            let content = content(len);
            let blake3 = *blake3::hash(&content).as_bytes();
            let digests =
                hashes.whole(len, &blake3, |take| content.chunks(1000).try_for_each(take));
            assert_eq!(digests.expect("hashed"), expected(&content), "{len}");
        }
    }

    #[test]
    fn blake3_alone_needs_no_thread() {
        let alone = ContentHashes::start([HashAlgorithm::Blake3].into_iter().collect());
        assert!(alone.expect("nothing to start").is_none());
    }
}
