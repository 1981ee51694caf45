//! Sparse files: finding their holes where they are read, hashing the zeros, and making the holes
//! again where they are written (`docs/protocol §8.2`).

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;

use blake3::hazmat::HasherExt as _;
use netblt_proto::content::{DataRun, Extent, FileRange};

/// Zeros, to hash and to write.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Most pieces of one extent. In an extent with more of them, all counts as data.
const MAX_PIECES: usize = 4096;
/// Bytes that they take in a table.
pub(crate) const MAX_PIECES_BYTES: usize = 2 + 8 * MAX_PIECES;

/// The pieces of data in `len` bytes of a file from `offset` on; `None` if there are no holes among
/// them, or the file system does not report any.
pub(crate) fn pieces(file: &File, offset: u64, len: usize) -> Option<Vec<DataRun>> {
    let end = offset.saturating_add(len as u64);
    let (mut pieces, mut at) = (Vec::new(), offset);
    while at < end {
        let data = match next_data(file, at) {
            Ok(Some(data)) if data < end => data,
            Ok(_) => break,
            Err(_) => return None,
        };
        let hole = next_hole(file, data).ok()?.min(end);
        let piece = (u32::try_from(data - offset), u32::try_from(hole.checked_sub(data)?));
        let (Ok(from), Ok(bytes @ 1..)) = piece else { return None };
        pieces.push(DataRun { from, bytes });
        at = hole;
    }
    let all: usize = pieces.iter().map(|piece| piece.bytes as usize).sum();
    // The list of pieces must be shorter than the zeros that it saves.
    (all + 2 + 8 * pieces.len() <= len && pieces.len() <= MAX_PIECES).then_some(pieces)
}

/// The next part of a file with data from `at` on, and its end; `None` if there is none before
/// `length`. Where the file system does not report holes, all is data.
pub(crate) fn next_part(file: &File, at: u64, length: u64) -> Option<(u64, u64)> {
    let (data, hole) = match next_data(file, at) {
        Ok(Some(data)) => (data, next_hole(file, data).unwrap_or(length)),
        Ok(None) => return None,
        Err(_) => (at, length),
    };
    (data < length).then(|| (data, hole.clamp(data, length))).filter(|(data, hole)| data < hole)
}

/// The offset of the next data; `None` if only a hole follows.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    use rustix::io::Errno;
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn next_hole(file: &File, at: u64) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(at))?)
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn next_data(_: &File, _: u64) -> io::Result<Option<u64>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn next_hole(_: &File, _: u64) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Adds an extent of `length` bytes to a hash: `data`, or the pieces that it is and zeros between.
pub(crate) fn hash(
    hasher: &mut blake3::Hasher,
    length: usize,
    pieces: Option<&[DataRun]>,
    data: &[u8],
) {
    let done: Result<(), Infallible> = parts(length, pieces, data, |part| {
        hasher.update(part);
        Ok(())
    });
    let Ok(()) = done;
}

/// Hands over an extent in its order, zeros among it.
pub(crate) fn parts<E>(
    length: usize,
    pieces: Option<&[DataRun]>,
    data: &[u8],
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let Some(pieces) = pieces else { return take(data) };
    let zeros = |bytes: usize, take: &mut dyn FnMut(&[u8]) -> Result<(), E>| {
        let mut left = bytes;
        while let Some(some) = ZEROS.get(..left.min(ZEROS.len())).filter(|some| !some.is_empty()) {
            take(some)?;
            left -= some.len();
        }
        Ok(())
    };
    let (mut at, mut rest) = (0, data);
    for piece in pieces {
        zeros((piece.from as usize).saturating_sub(at), &mut take)?;
        let (own, left) = rest.split_at_checked(piece.bytes as usize).unwrap_or((rest, &[]));
        take(own)?;
        (at, rest) = (piece.from as usize + piece.bytes as usize, left);
    }
    zeros(length.saturating_sub(at), &mut take)
}

/// BLAKE3 of an extent that is all of its file, or all of a range.
pub(crate) fn digest(extent: &Extent, data: &[u8], range: Option<FileRange>) -> [u8; 32] {
    let mut hasher = hasher(range);
    hash(&mut hasher, extent.length as usize, extent.pieces.as_deref(), data);
    finish(&hasher, range)
}

/// BLAKE3 of a file, or of a range of it, which is there as a whole.
pub(crate) fn digest_of(mut file: &File, range: Option<FileRange>) -> io::Result<[u8; 32]> {
    let mut hasher = hasher(range);
    let (from, length) = range.map_or((0, u64::MAX), |range| (range.offset, range.length));
    file.seek(SeekFrom::Start(from))?;
    hasher.update_reader(file.take(length))?;
    match range {
        Some(_) if hasher.count() < length => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(finish(&hasher, range)),
    }
}

/// The hasher of a file, or of a range of one.
pub(crate) fn hasher(range: Option<FileRange>) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    range.into_iter().for_each(|range| _ = hasher.set_input_offset(range.offset));
    hasher
}

/// The digest. For a range, which has a byte at least, it is the chaining value of its subtree.
pub(crate) fn finish(hasher: &blake3::Hasher, range: Option<FileRange>) -> [u8; 32] {
    match range {
        Some(_) => hasher.finalize_non_root(),
        None => *hasher.finalize().as_bytes(),
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    /// Bytes before it.
    pub(crate) offset: u64,
    /// Bytes in it, holes included.
    pub(crate) length: u32,
    /// The pieces with data, if there are holes.
    pub(crate) pieces: Option<&'a [DataRun]>,
}

impl<'a> From<&'a Extent> for Span<'a> {
    fn from(extent: &'a Extent) -> Self {
        let Extent { offset, length, .. } = *extent;
        Self { offset, length, pieces: extent.pieces.as_deref() }
    }
}

/// Writes a part of a file. Holes stay holes, and old data there are cleared.
pub(crate) fn write(file: &File, span: Span<'_>, data: &[u8]) -> io::Result<()> {
    let Span { offset, length, pieces } = span;
    let Some(pieces) = pieces else { return file.write_all_at(data, offset) };
    let there = file.metadata()?.len();
    let (mut at, mut rest) = (offset, data);
    for piece in pieces {
        let from = offset + u64::from(piece.from);
        clear(file, at, from.min(there))?;
        let (own, left) = rest.split_at_checked(piece.bytes as usize).unwrap_or((rest, &[]));
        file.write_all_at(own, from)?;
        (at, rest) = (from + u64::from(piece.bytes), left);
    }
    let end = offset + u64::from(length);
    clear(file, at, end.min(there))?;
    // It may have grown by a piece, and never beyond the end.
    if there < end && at < end {
        file.set_len(end)?;
    }
    Ok(())
}

/// Writes zeros between two offsets of a file.
fn clear(file: &File, from: u64, to: u64) -> io::Result<()> {
    if from >= to {
        return Ok(());
    }
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(file, flags, from, to - from) {
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => {}
            done => return Ok(done?),
        }
    }
    let mut at = from;
    while at < to {
        let some = usize::try_from(to - at).unwrap_or(ZEROS.len()).min(ZEROS.len());
        file.write_all_at(ZEROS.get(..some).unwrap_or_default(), at)?;
        at += some as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use netblt_proto::content::Kind;
    use std::os::unix::fs::MetadataExt as _;

    fn extent(offset: u64, length: u32, pieces: &[(u32, u32)]) -> Extent {
        let piece = |(from, bytes): &(u32, u32)| DataRun { from: *from, bytes: *bytes };
        let pieces = Some(pieces.iter().map(piece).collect());
        let (kind, attributes) = (Kind::File, None);
        Extent { file: 0, offset, length, kind, pieces, attributes, digest: None }
    }

    #[test]
    fn zeros_between_pieces_replace_old_data() {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&[7; 100], 0).expect("written");
        let holed = extent(10, 200, &[(0, 5), (50, 3)]);
        write(&file, (&holed).into(), b"abcdefgh").expect("written");
        let mut expected = [0; 210];
        expected[..10].fill(7);
        expected[10..15].copy_from_slice(b"abcde");
        expected[60..63].copy_from_slice(b"fgh");
        let mut found = vec![1; 210];
        file.read_exact_at(&mut found, 0).expect("read");
        assert_eq!((&found[..], file.metadata().expect("known").len()), (&expected[..], 210));
        assert_eq!(digest(&holed, b"abcdefgh", None), *blake3::hash(&expected[10..]).as_bytes());
        let empty = extent(0, 1 << 20, &[]);
        assert_eq!(digest(&empty, &[], None), *blake3::hash(&vec![0; 1 << 20]).as_bytes());
    }

    #[test]
    fn holes_are_found_and_take_no_room_again() {
        let (from, to) = (tempfile::tempfile().expect("a"), tempfile::tempfile().expect("b"));
        from.set_len(8 << 20).expect("set");
        from.write_all_at(&[1; 4096], 3 << 20).expect("written");
        let Some(found) = pieces(&from, 2 << 20, 4 << 20) else {
            // A file system that does not report holes.
            return;
        };
        let data: u32 = found.iter().map(|piece| piece.bytes).sum();
        assert!(data < 1 << 20, "{found:?}");
        assert_eq!(pieces(&from, 4 << 20, 1 << 20), Some(Vec::new()));
        assert_eq!(pieces(&from, 3 << 20, 4096), None);
        let holed = Extent { pieces: Some(found), ..extent(0, 4 << 20, &[]) };
        write(&to, (&holed).into(), &vec![1; data as usize]).expect("written");
        let metadata = to.metadata().expect("known");
        assert_eq!(metadata.len(), 4 << 20);
        assert!(metadata.blocks() * 512 < 2 << 20, "{}", metadata.blocks());
    }
}
