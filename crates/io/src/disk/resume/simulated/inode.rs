//! A file on a simulated disk: its content, and what of it survives a power loss.

/// A stream of draws.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

/// The content of one file: as read, as certainly on the disk, and the writes between the two.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) seen: Vec<u8>,
    pub(super) safe: Vec<u8>,
    pub(super) unsynced: Vec<(usize, Vec<u8>)>,
    /// The number of writes, by its time of change, and the certain ones.
    pub(super) writes: u32,
    pub(super) safe_writes: u32,
    /// For an empty file that was made under its own name: whether it has its attributes, as seen
    /// and for certain.
    pub(super) dressed: Option<(bool, bool)>,
}

impl Inode {
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.seen, at, bytes);
        self.writes += 1;
        self.unsynced.push((at, bytes.to_vec()));
    }

    pub(super) fn sync(&mut self) {
        (self.safe, self.safe_writes) = (self.seen.clone(), self.writes);
        self.unsynced.clear();
    }

    /// Some of the writes were on their way, each of them perhaps torn.
    pub(super) fn lose(&mut self, dice: &mut Dice) {
        let mut content = self.safe.clone();
        // Its time of change may show more writes than came to the disk, or fewer.
        self.writes = [self.safe_writes, self.writes][dice.below(2) as usize];
        self.safe_writes = self.writes;
        let mut writes = std::mem::take(&mut self.unsynced);
        for i in (1..writes.len()).rev() {
            writes.swap(i, dice.below(i as u64 + 1) as usize);
        }
        for (at, bytes) in writes {
            match dice.below(3) {
                0 => {}
                1 => put(&mut content, at, &bytes),
                _ => put(&mut content, at, &bytes[..dice.below(bytes.len() as u64 + 1) as usize]),
            }
        }
        (self.seen, self.safe) = (content.clone(), content);
        if let Some((seen, safe)) = &mut self.dressed {
            *safe |= *seen && dice.below(2) == 0;
            *seen = *safe;
        }
    }

    pub(super) fn is_half_made(&self) -> bool {
        self.dressed.is_some_and(|(seen, _)| !seen)
    }
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}
