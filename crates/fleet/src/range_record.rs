//! Which ranges of a file are on the other side: `ranges/K.json`.

use std::fs;

use crate::error::{Error, at};
use crate::record::Brought;
use crate::run::{self, Chunk, DONE, RANGES, Run};

/// The record of a range that is on the other side, if its list is unchanged.
pub(crate) fn brought(run: &Run, chunk: &Chunk) -> Result<Option<(Brought, [u8; 32])>, Error> {
    let record = run::read::<Brought>(&run.record(RANGES, chunk.number))?;
    let id = blake3::Hash::from_bytes(chunk.id).to_hex();
    let Some(record) = record.filter(|record| record.id == id.as_str()) else { return Ok(None) };
    let value = blake3::Hash::from_hex(&record.value);
    Ok(value.ok().map(|value| (record, *value.as_bytes())))
}

/// The chaining values of all ranges of a file, if they are on the other side.
pub(crate) fn values(run: &Run, chunk: &Chunk) -> Result<Option<Vec<[u8; 32]>>, Error> {
    // Most often one of them is not there, and no index need be read.
    if !chunk.siblings().all(|number| run.record(RANGES, number).exists()) {
        return Ok(None);
    }
    let siblings = chunk.siblings();
    let mut values = Vec::new();
    for chunk in run.chunks()?.iter().filter(|chunk| siblings.contains(&chunk.number)) {
        match brought(run, chunk)? {
            Some((_, value)) => values.push(value),
            None => return Ok(None),
        }
    }
    Ok(Some(values))
}

/// Removes the records of a file's ranges: they start over.
pub(crate) fn forget(run: &Run, chunk: &Chunk) -> Result<(), Error> {
    for number in chunk.siblings() {
        for path in [run.record(DONE, number), run.record(RANGES, number), run.sums(number)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(at(&path, "cannot be removed")(error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}
