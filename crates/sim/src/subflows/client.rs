//! The common client of a host's units: a source of images, or a sink of them.

use std::collections::VecDeque;

use netblt_proto::api::{CloseReason, Event};
use netblt_proto::buffer::Buffer;
use netblt_proto::content::{ImagePosition, ImagePositions, POSITION_BYTES};
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::{End, Verdict};

use super::losses::Losses;
use super::unit::Unit;

/// The client of all units of a host in one flow.
#[derive(Debug)]
pub(super) enum SubflowClient {
    Source(ImageSource),
    Sink(ImageSink),
}

/// Images for the subflow that was first granted a buffer.
#[derive(Debug)]
pub(super) struct ImageSource {
    /// How many bytes there are, if there is an end of them.
    bytes: Option<u64>,
    buffer_bytes: u32,
    free: Vec<Buffer>,
    wants: VecDeque<(usize, BufferNumber)>,
    /// Images that went over subflows that were lost.
    lost: VecDeque<Buffer>,
    /// How many are on subflows other than the main connection.
    over: u64,
    next: u64,
    supplied: u64,
    ended: bool,
    pub(super) verified: bool,
}

/// Takes images from any subflow, and checks them.
#[derive(Debug)]
pub(super) struct ImageSink {
    places: ImagePositions,
    bytes: u64,
    idle: Vec<Buffer>,
    complete: Option<End>,
    judged: bool,
    pub(super) again: u64,
}

impl SubflowClient {
    pub(super) fn take(
        &mut self,
        now: Instant,
        units: &mut [Unit],
        at: usize,
        event: Event,
        losses: &mut Losses,
    ) -> Result<(), String> {
        match event {
            Event::Opened { .. } => {
                if let Some(unit) = units.get_mut(at) {
                    unit.open = true;
                }
                Ok(())
            }
            Event::Silent | Event::Answering => {
                if let Some(unit) = units.get_mut(at) {
                    unit.silent = matches!(event, Event::Silent).then_some(now);
                }
                Ok(())
            }
            Event::Closed(reason) => {
                self.closed(now, units, at, reason, losses);
                Ok(())
            }
            event => match self {
                Self::Source(source) => source.take(units, at, event),
                Self::Sink(sink) => sink.take(units, at, event),
            },
        }
    }

    fn closed(
        &self,
        now: Instant,
        units: &mut [Unit],
        at: usize,
        reason: CloseReason,
        losses: &mut Losses,
    ) {
        let done = match self {
            Self::Source(source) => source.verified,
            Self::Sink(sink) => sink.judged,
        };
        let Some(unit) = units.get_mut(at) else { return };
        let lost = !std::mem::replace(&mut unit.gone, true) && !done;
        match (lost, unit.subflow) {
            (false, _) => {}
            (true, 0) => losses.on_main(reason),
            (true, _) => losses.on_subflow(now),
        }
    }

    /// This is the client `own` of `units`.
    pub(super) fn feed(&mut self, now: Instant, units: &mut [Unit], own: usize) {
        match self {
            Self::Source(source) => source.feed(now, units, own),
            Self::Sink(sink) => sink.feed(now, units, own),
        }
    }
}

/// The main connection's end.
fn main_of(units: &mut [Unit], own: usize) -> Option<&mut Unit> {
    units.iter_mut().find(|unit| unit.client == own && unit.subflow == 0)
}

/// Bytes of the image at `place`, of so many in all.
fn image_bytes(bytes: Option<u64>, buffer_bytes: u32, place: u64) -> usize {
    let before = (place - 1) * u64::from(buffer_bytes);
    let left = bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(before));
    left.min(u64::from(buffer_bytes)) as usize
}

impl ImageSource {
    pub(super) fn new(bytes: Option<u64>, buffer_bytes: u32, stock: u32) -> Self {
        let capacity = buffer_bytes as usize + POSITION_BYTES;
        Self {
            bytes,
            buffer_bytes,
            free: (0..stock).map(|_| Buffer::new(capacity)).collect(),
            wants: VecDeque::new(),
            lost: VecDeque::new(),
            over: 0,
            next: 1,
            supplied: 0,
            ended: false,
            verified: false,
        }
    }

    /// Whether it ends.
    pub(super) fn has_end(&self) -> bool {
        self.bytes.is_some()
    }

    fn count(&self) -> u64 {
        self.bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(u64::from(self.buffer_bytes)))
    }

    fn take(&mut self, units: &mut [Unit], at: usize, event: Event) -> Result<(), String> {
        match event {
            Event::Wanted(number) => self.wants.push_back((at, number)),
            Event::Released(_, buffer) => {
                let Some(unit) = units.get(at) else { return Ok(()) };
                self.over -= u64::from(unit.subflow > 0);
                let unsure = unit.end.is_closing() && !self.verified;
                if unsure { self.lost.push_back(buffer) } else { self.free.push(buffer) }
            }
            Event::Finished(verdict) => {
                self.verified = verdict.is_some_and(|verdict| verdict.verified);
            }
            _ => {}
        }
        Ok(())
    }

    fn image(&mut self) -> Option<Buffer> {
        if let Some(lost) = self.lost.pop_front() {
            return Some(lost);
        }
        if self.next > self.count() {
            return None;
        }
        let mut buffer = self.free.pop()?;
        let len = image_bytes(self.bytes, self.buffer_bytes, self.next);
        buffer.space().iter_mut().take(len).for_each(|byte| *byte = self.next as u8);
        buffer.set_len(len);
        let place =
            ImagePosition { number: BufferNumber(self.next), last: self.next == self.count() };
        self.next += 1;
        place.put(&mut buffer).then_some(buffer)
    }

    fn feed(&mut self, now: Instant, units: &mut [Unit], own: usize) {
        while let Some((at, number)) = self.wants.front().copied() {
            let Some(unit) = units.get_mut(at).filter(|unit| !unit.gone) else {
                self.wants.pop_front();
                continue;
            };
            let Some(buffer) = self.image() else { break };
            self.wants.pop_front();
            unit.end.supply(now, number, buffer, false);
            match unit.subflow {
                0 => self.supplied += 1,
                _ => self.over += 1,
            }
        }
        let all = self.next > self.count() && self.lost.is_empty() && self.over == 0;
        if all && !std::mem::replace(&mut self.ended, true) {
            let bytes = self.bytes.unwrap_or(0);
            let end = End { buffers: self.supplied, bytes, digest: [7; 32] };
            main_of(units, own).into_iter().for_each(|main| main.end.end(now, end));
        }
    }
}

impl ImageSink {
    pub(super) fn new(buffer_bytes: u32, stock: u32) -> Self {
        // The most that a source's image may have by the agreed parameters.
        let capacity = buffer_bytes as usize + (1 << 13);
        Self {
            places: ImagePositions::default(),
            bytes: 0,
            idle: (0..stock).map(|_| Buffer::new(capacity)).collect(),
            complete: None,
            judged: false,
            again: 0,
        }
    }

    fn take(&mut self, units: &mut [Unit], at: usize, event: Event) -> Result<(), String> {
        let Some(unit) = units.get_mut(at) else { return Ok(()) };
        match event {
            Event::Filled(_, mut buffer) => {
                unit.outstanding -= 1;
                let place = ImagePosition::take(&mut buffer).ok_or("an image without a place")?;
                let byte = place.number.0 as u8;
                if buffer.filled().iter().any(|found| *found != byte) {
                    return Err(format!("image {} is wrong", place.number.0));
                }
                match self.places.add(place).map_err(|error| error.to_string())? {
                    true => self.bytes += buffer.filled().len() as u64,
                    false => self.again += 1,
                }
                self.idle.push(buffer);
            }
            Event::Returned(buffer) => {
                unit.outstanding -= 1;
                self.idle.push(buffer);
            }
            Event::Complete(end) => self.complete = end,
            _ => {}
        }
        Ok(())
    }

    /// Empty buffers go to where the fewest are.
    fn feed(&mut self, now: Instant, units: &mut [Unit], own: usize) {
        if self.complete.is_some() {
            if self.places.is_whole() && !std::mem::replace(&mut self.judged, true) {
                let (bytes, digest) = (self.bytes, [7; 32]);
                let verdict = Verdict { verified: true, bytes, digest, reason: String::new() };
                main_of(units, own)
                    .into_iter()
                    .for_each(|main| main.end.judge(now, verdict.clone()));
            }
            return;
        }
        while let Some(buffer) = self.idle.pop() {
            let mine =
                units.iter_mut().filter(|unit| unit.client == own && unit.open && !unit.gone);
            let Some(unit) = mine.min_by_key(|unit| unit.outstanding) else {
                self.idle.push(buffer);
                return;
            };
            unit.outstanding += 1;
            unit.end.offer(now, buffer);
        }
    }

    pub(super) fn check(&self, bytes: u64, buffer_bytes: u32) -> Result<(), String> {
        let count = bytes.div_ceil(u64::from(buffer_bytes));
        match self.places.count() == Some(count) && self.places.is_whole() && self.bytes == bytes {
            true => Ok(()),
            false => Err(format!("{} of {bytes} bytes", self.bytes)),
        }
    }
}
