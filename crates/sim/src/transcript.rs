//! The transcript of a world: one hash over everything that left a machine, in order. Two worlds
//! with the same transcript were the same world.

use std::fmt;
use std::io::Write;

use netblt_proto::api::{CloseReason, Event, Stall, StallKind};
use netblt_proto::time::Instant;

use crate::side::Side;

/// Bytes gathered before they are hashed: hashing in large pieces is several times faster.
const STAGE_BYTES: usize = 1 << 17;

/// A running hash over datagrams and events.
#[derive(Debug)]
pub(crate) struct Transcript {
    stage: Vec<u8>,
    hasher: blake3::Hasher,
    /// Whether anybody will compare it.
    wanted: bool,
}

/// The hash of a whole transcript.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TranscriptHash(pub [u8; 32]);

impl fmt::Display for TranscriptHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(16).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TranscriptHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TranscriptHash({self})")
    }
}

impl Transcript {
    /// A hash of everything, or of nothing.
    pub(crate) fn new(wanted: bool) -> Self {
        Self { stage: Vec::new(), hasher: blake3::Hasher::new(), wanted }
    }

    /// Datagrams left together: `bytes` cut into pieces of `segment` bytes.
    pub(crate) fn sent(&mut self, now: Instant, side: Side, segment: usize, bytes: &[u8]) {
        if !self.wanted {
            return;
        }
        self.head(b's', now, side);
        self.stage.extend_from_slice(&(segment as u64).to_le_bytes());
        self.stage.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.stage.extend_from_slice(bytes);
        self.flush(STAGE_BYTES);
    }

    /// Records an event.
    pub(crate) fn event(&mut self, now: Instant, side: Side, event: &Event) {
        if !self.wanted {
            return;
        }
        self.head(b'e', now, side);
        // Buffers print as lengths: their contents were compared, and left as datagrams before.
        // Writing to a vector cannot fail.
        let _ = self.write_event(event);
        self.flush(STAGE_BYTES);
    }

    /// Writes an event. The words are the transcript's own where the core's names have changed, so
    /// that a rename moves no hash.
    fn write_event(&mut self, event: &Event) -> std::io::Result<()> {
        match event {
            Event::PeerHas { place, bytes, last } => {
                write!(self.stage, "Had {{ place: {place:?}, bytes: {bytes:?}, last: {last:?} }}")
            }
            Event::Closed(CloseReason::Stalled(stall)) => {
                let Stall { what, lasted, received, attempts } = stall;
                let what = match what {
                    StallKind::Data => "Sent",
                    StallKind::Missing => "Missing",
                    StallKind::Control => "Said",
                };
                write!(
                    self.stage,
                    "Closed(Stalled(Stalled {{ what: {what}, lasted: {lasted:?}, \
                     heard: {received:?}, tried: {attempts:?} }}))"
                )
            }
            other => write!(self.stage, "{other:?}"),
        }
    }

    /// The world did something to a host.
    pub(crate) fn happening(&mut self, now: Instant, side: Side, what: &str) {
        if !self.wanted {
            return;
        }
        self.head(b'h', now, side);
        self.stage.extend_from_slice(what.as_bytes());
    }

    fn head(&mut self, tag: u8, now: Instant, side: Side) {
        self.stage.extend_from_slice(&[tag, side as u8]);
        self.stage.extend_from_slice(&now.as_nanos().to_le_bytes());
    }

    fn flush(&mut self, above: usize) {
        if self.stage.len() >= above {
            self.hasher.update(&self.stage);
            self.stage.clear();
        }
    }

    /// The hash, of nothing where nothing was noted.
    pub(crate) fn finish(mut self) -> TranscriptHash {
        self.flush(0);
        TranscriptHash(*self.hasher.finalize().as_bytes())
    }
}
