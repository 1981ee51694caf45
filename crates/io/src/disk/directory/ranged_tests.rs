//! Ranges of one file that come in any order, break off anywhere, and meet senders that lie.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{FileRange, digest_of_ranges};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;
use tempfile::TempDir;

use super::super::*;
use crate::cancel::Cancel;
use crate::disk::commit_latch::CommitLatch;
use crate::disk::file_list::FileList;
use crate::disk::have_list::HaveList;
use crate::disk::ranges::{self, WHOLE};
use crate::disk::source::SourceReader;
use crate::disk::staging::ranges_name;
use crate::disk::threads::{Reader as _, Writer as _};
use crate::disk::trials::layout;
use crate::options::{Selection, Source};
use crate::settings::{Overwrite, Resume};

const LABEL: [u8; 32] = [5; 32];
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

/// A source file, and a directory in which it comes together.
struct Place {
    from: TempDir,
    to: TempDir,
    content: Vec<u8>,
}

impl Place {
    fn new(total: usize, dice: &mut Dice) -> Self {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let mut content: Vec<u8> = (0..total).map(|_| dice.below(256) as u8).collect();
        // Somewhere there is a hole.
        if let Some(zeros) = content.get_mut(total / 3..total / 2) {
            zeros.fill(0);
        }
        let file = File::create(from.path().join("f")).expect("made");
        file.write_all_at(&content[..total / 3], 0).expect("written");
        file.write_all_at(&content[total / 2..], total as u64 / 2).expect("written");
        Self { from, to, content }
    }

    fn writer(&self, range: FileRange, resume: Resume) -> DirectoryWriter {
        let parent = OwnedFd::from(File::open(self.to.path()).expect("opened"));
        ranges::open(&parent, &LABEL, range.total).expect("made");
        let own = self.directory();
        let writer = DirectoryWriter::new(&own, Overwrite::Always, layout()).expect("usable");
        let label = [(range.offset >> 10) as u8; 32];
        let writer = writer.atomic(false).reading_back(resume == Resume::Verify);
        let writer = writer.labelled(Some(label)).of_range(Some(range));
        writer.resuming(resume, WEEK).expect("nothing is in the way")
    }

    fn directory(&self) -> PathBuf {
        self.to.path().join(ranges_name(&LABEL))
    }

    fn whole(&self) -> Vec<u8> {
        fs::read(self.directory().join(WHOLE)).expect("the file")
    }

    /// The images of a range for a receiver that has these parts of it, their end, the digest of
    /// the file, and the bytes that need not be sent.
    fn sent(&self, range: FileRange, had: &[u8]) -> (Vec<Buffer>, End, [u8; 32], u64) {
        images(&self.from.path().join("f"), Some(range), &ranges::leaf(range), had)
    }
}

fn images(
    path: &Path,
    range: Option<FileRange>,
    name: &str,
    had: &[u8],
) -> (Vec<Buffer>, End, [u8; 32], u64) {
    let items = vec![(path.to_path_buf(), Some(name.into()))];
    let selection = Selection { items, range, ..Selection::default() };
    let list = FileList::new(Source::Selection(selection), false, &Cancel::default());
    let list = list.expect("a list");
    let reader = SourceReader::sealed(list.clone(), layout()).expect("it fits");
    let mut reader = reader.listing(None, true);
    let had = Arc::new(HaveList::parse(had).expect("a receiver's list"));
    reader.restart(layout(), &had).expect("begun");
    let (mut images, mut kept) = (Vec::new(), 0);
    loop {
        let mut buffer = Buffer::new(layout().image_bytes());
        let number = BufferNumber(images.len() as u64 + 1);
        let fill = reader.fill(number, &mut buffer).expect("readable");
        kept += fill.kept;
        images.push(buffer);
        if let Some(end) = reader.end() {
            let mut digest = [0; 32];
            let read = list.take_late().readings;
            read.each(|reading| digest = reading.digests.blake3()).expect("read");
            return (images, end, digest, kept);
        }
    }
}

#[test]
fn a_file_of_ranges_is_complete_after_any_interruption() {
    let (mut broken, mut spared) = (0, 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let bytes = 1024 << dice.below(4);
        let total = bytes + 1 + dice.below(4 * bytes);
        let place = Place::new(total as usize, &mut dice);
        let all: Vec<FileRange> = FileRange::all(total, bytes).collect();
        let mut digests = vec![None; all.len()];
        while let Some(at) = {
            let open: Vec<usize> = (0..all.len()).filter(|at| digests[*at].is_none()).collect();
            (!open.is_empty()).then(|| open[dice.below(open.len() as u64) as usize])
        } {
            let range = all[at];
            let resume = if dice.below(4) == 0 { Resume::Verify } else { Resume::Auto };
            let mut writer = place.writer(range, resume);
            let before = place.whole();
            let (images, end, digest, kept) = place.sent(range, &writer.had());
            spared += kept;
            let mut images: Vec<_> = images.into_iter().enumerate().collect();
            let stop =
                if dice.below(2) == 0 { dice.below(images.len() as u64 + 1) } else { u64::MAX };
            let (mut free, mut taken) = (Vec::new(), 0);
            while !images.is_empty() && taken < stop {
                let one = dice.below(images.len() as u64) as usize;
                let (number, image) = images.swap_remove(one);
                let number = BufferNumber(number as u64 + 1);
                writer.accept(number, image, &mut free).expect("taken");
                taken += 1;
            }
            if images.is_empty() && taken < stop {
                let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("stored");
                assert!(outcome.verified, "seed {seed}: {}", outcome.reason);
                digests[at] = Some(digest);
            } else {
                broken += 1;
                match dice.below(2) {
                    0 => drop(writer),
                    _ => writer.die(),
                }
            }
            // Nothing but its own bytes was touched.
            let (now, own) =
                (place.whole(), range.offset as usize..(range.offset + range.length) as usize);
            assert!(now.len() as u64 == total && now[..own.start] == before[..own.start]);
            assert_eq!(now[own.end..], before[own.end..], "seed {seed}");
        }
        assert_eq!(place.whole(), place.content, "seed {seed}");
        let digests: Vec<[u8; 32]> = digests.into_iter().flatten().collect();
        assert_eq!(digest_of_ranges(&digests), Some(*blake3::hash(&place.content).as_bytes()));
        let parent = OwnedFd::from(File::open(place.to.path()).expect("opened"));
        assert!(ranges::whole(&parent, &LABEL, total, bytes).expect("looked at").is_ok());
        // Beside the file and its names nothing is left.
        let left = fs::read_dir(place.directory()).expect("listed").count();
        assert_eq!(left, 1 + all.len(), "seed {seed}");
    }
    assert!(broken > 60 && spared > 10_000, "{broken} {spared}");
}

#[test]
fn parts_of_a_range_do_not_count_for_another_file() {
    let mut dice = Dice(1);
    let place = Place::new(9000, &mut dice);
    let range = FileRange { offset: 4096, length: 4096, total: 9000 };
    let mut writer = place.writer(range, Resume::Auto);
    let (images, ..) = place.sent(range, &writer.had());
    let mut free = Vec::new();
    for (at, image) in images.into_iter().take(3).enumerate() {
        writer.accept(BufferNumber(at as u64 + 1), image, &mut free).expect("taken");
    }
    drop(writer);
    let mut again = place.writer(range, Resume::Auto);
    assert_eq!(place.sent(range, &again.had()).3, 3 * 1024);
    drop(again);
    // Another transfer has started over: where those bytes were, there is nothing now.
    fs::remove_file(place.directory().join(WHOLE)).expect("removed");
    let mut restarted = place.writer(range, Resume::Auto);
    assert_eq!(place.sent(range, &restarted.had()).3, 0);
    let (images, end, ..) = place.sent(range, &[]);
    for (at, image) in images.into_iter().enumerate() {
        restarted.accept(BufferNumber(at as u64 + 1), image, &mut free).expect("taken");
    }
    assert!(restarted.finish(Some(&end), &CommitLatch::default()).expect("stored").verified);
    drop(restarted);
    assert_eq!(place.whole()[4096..8192], place.content[4096..8192]);
}

#[test]
fn data_outside_of_the_range_are_refused() {
    let mut dice = Dice(2);
    let place = Place::new(9000, &mut dice);
    let range = FileRange { offset: 4096, length: 2048, total: 9000 };
    let lies: [(&str, Vec<u8>); 4] = [
        ("longer", vec![1; 2049]),
        ("much longer", vec![1; 8000]),
        ("shorter", vec![1; 2047]),
        ("empty", Vec::new()),
    ];
    for (what, content) in lies {
        let lie = place.from.path().join(what);
        fs::write(&lie, content).expect("written");
        let mut writer = place.writer(range, Resume::Auto);
        let before = place.whole();
        let (images, end, ..) = images(&lie, None, &ranges::leaf(range), &[]);
        let mut free = Vec::new();
        let mut stored = Ok(0);
        for (at, image) in images.into_iter().enumerate() {
            stored =
                stored.and_then(|_| writer.accept(BufferNumber(at as u64 + 1), image, &mut free));
        }
        let verified = stored.is_ok()
            && writer
                .finish(Some(&end), &CommitLatch::default())
                .is_ok_and(|outcome| outcome.verified);
        drop(writer);
        let now = place.whole();
        assert!(!verified && !place.directory().join(ranges::leaf(range)).exists(), "{what}");
        assert_eq!((&now[..4096], &now[6144..]), (&before[..4096], &before[6144..]), "{what}");
    }
    // The bytes of the range, hashed as those of a file.
    let own = place.from.path().join("own");
    fs::write(&own, &place.content[4096..6144]).expect("written");
    let mut writer = place.writer(range, Resume::Auto);
    let (images, end, ..) = images(&own, None, &ranges::leaf(range), &[]);
    let mut free = Vec::new();
    for (at, image) in images.into_iter().enumerate() {
        writer.accept(BufferNumber(at as u64 + 1), image, &mut free).expect("it may be right");
    }
    assert!(!writer.finish(Some(&end), &CommitLatch::default()).expect("looked at").verified);
    drop(writer);
    assert!(!place.directory().join(ranges::leaf(range)).exists());
}
