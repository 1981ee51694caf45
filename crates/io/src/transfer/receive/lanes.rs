//! A receiver over several lanes (`docs/protocol §4.11, §8.10`): empty buffers go to where the
//! fewest are, and images from any lane to the one disk, by their places.

use std::ops::ControlFlow;
use std::sync::Arc;

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{ImagePosition, ImagePositions};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use super::{Flow, Receiving};
use crate::disk::threads::Writer;
use crate::error::Error;
use crate::transfer::lanes::{LaneEvent, LaneFactory, Lanes, agreed};

/// The state of a receiver's lanes.
#[derive(Debug)]
pub(super) struct LaneMerge {
    lanes: Lanes,
    places: ImagePositions,
    /// Empty buffers with each lane, as far as they are known of.
    with: Vec<usize>,
    with_main: usize,
    complete: Option<End>,
}

/// Lanes, as far as it is known whether there will be any.
#[derive(Debug, Default)]
pub(super) enum ReceiveLanes {
    /// There is only the main connection.
    #[default]
    None,
    /// There may be more, if the sender takes them.
    May(Arc<LaneFactory>),
    /// There are, or will be.
    Some(Box<LaneMerge>),
}

impl<W: Writer> Receiving<'_, W> {
    /// It may go over several lanes.
    pub(crate) fn over_lanes(&mut self, making: Option<Arc<LaneFactory>>) {
        self.lanes = making.map_or(ReceiveLanes::None, ReceiveLanes::May);
    }

    /// A connection is open, to a sender that announced this many lanes, if any.
    pub(super) fn open_lanes(
        &mut self,
        theirs: Option<u64>,
        end: &mut Endpoint,
    ) -> Result<(), Error> {
        let making = match std::mem::take(&mut self.lanes) {
            ReceiveLanes::None => return Ok(()),
            ReceiveLanes::May(making) => making,
            ReceiveLanes::Some(mut before) => {
                self.idle.extend(before.lanes.close().1);
                before.lanes.making()
            }
        };
        let Some(count) = agreed(making.own, theirs) else {
            self.lanes = ReceiveLanes::May(making);
            return Ok(());
        };
        self.lanes = ReceiveLanes::Some(Box::new(LaneMerge {
            lanes: Lanes::begin(making, count, false, end)?,
            places: ImagePositions::default(),
            with: Vec::new(),
            // Those that were offered before any peer connected.
            with_main: if self.have_sent {
                self.pool.made().saturating_sub(self.idle.len())
            } else {
                0
            },
            complete: None,
        }));
        Ok(())
    }

    /// Handles the lanes' events.
    pub(super) fn turn_lanes(&mut self, now: Instant, end: &mut Endpoint) -> Flow {
        let ReceiveLanes::Some(gathering) = &mut self.lanes else {
            return ControlFlow::Continue(());
        };
        gathering.lanes.on_tick(now, end);
        gathering.lanes.steer(self.session.is_paused());
        while let ReceiveLanes::Some(gathering) = &mut self.lanes {
            let Some((at, said)) = gathering.lanes.poll(now) else { break };
            match said {
                LaneEvent::Full(buffer) => {
                    gathering.count_out(at);
                    self.count_back(buffer.filled().len());
                    self.pool.moved_beside(buffer.filled().len());
                    self.gather(now, end, buffer)?;
                }
                LaneEvent::Empty(buffer) => {
                    gathering.count_out(at);
                    self.count_back(0);
                    self.spread(now, end, buffer);
                }
                LaneEvent::Over(_) => {}
                LaneEvent::Open => gathering.with.resize(gathering.with.len().max(at + 1), 0),
                LaneEvent::Wanted | LaneEvent::Accepted(_) | LaneEvent::Unsure(_) => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// An empty buffer goes to where the fewest are.
    pub(super) fn spread(&mut self, now: Instant, end: &mut Endpoint, buffer: Buffer) {
        if !self.may_offer() {
            return self.idle.push(buffer);
        }
        let ReceiveLanes::Some(gathering) = &mut self.lanes else {
            return end.offer(now, buffer);
        };
        let with = |at: &usize| gathering.with.get(*at).copied().unwrap_or(0);
        let least = gathering.lanes.takers().map(|at| (with(&at), at)).min();
        let back = match least.filter(|(count, _)| *count < gathering.with_main) {
            Some((_, at)) => match gathering.lanes.give(at, buffer) {
                Ok(()) => {
                    gathering.with.resize(gathering.with.len().max(at + 1), 0);
                    gathering.with[at] += 1;
                    return;
                }
                Err(buffer) => buffer,
            },
            None => buffer,
        };
        gathering.with_main += 1;
        end.offer(now, back);
    }

    /// Every empty buffer is granted.
    pub(super) fn offer_idle(&mut self, now: Instant, end: &mut Endpoint) {
        for buffer in std::mem::take(&mut self.idle) {
            self.spread(now, end, buffer);
        }
    }

    /// A buffer of the main connection's came back, full or empty.
    pub(super) fn count_main(&mut self) {
        if let ReceiveLanes::Some(gathering) = &mut self.lanes {
            gathering.with_main = gathering.with_main.saturating_sub(1);
        }
    }

    /// Buffer `number` of the main connection, or an image with a place, is full.
    pub(super) fn filled(
        &mut self,
        now: Instant,
        end: &mut Endpoint,
        (number, buffer): (BufferNumber, Buffer),
    ) -> Flow {
        self.count_main();
        self.count_back(buffer.filled().len());
        match &self.lanes {
            ReceiveLanes::Some(_) => self.gather(now, end, buffer),
            ReceiveLanes::None | ReceiveLanes::May(_) => {
                if let Some(disk) = &mut self.disk {
                    disk.store(number, buffer);
                }
                ControlFlow::Continue(())
            }
        }
    }

    /// An image is here, over whichever lane.
    fn gather(&mut self, now: Instant, end: &mut Endpoint, mut buffer: Buffer) -> Flow {
        let ReceiveLanes::Some(gathering) = &mut self.lanes else {
            return ControlFlow::Continue(());
        };
        let place = ImagePosition::take(&mut buffer);
        match place.map(|place| gathering.places.add(place)) {
            Some(Ok(true)) => {
                if let (Some(disk), Some(place)) = (&mut self.disk, place) {
                    disk.store(place.number, buffer);
                }
            }
            Some(Ok(false)) => self.spread(now, end, buffer),
            Some(Err(_)) | None => return self.session.fail(now, end, Error::Content(NO_PLACE)),
        }
        self.finish_gathered();
        ControlFlow::Continue(())
    }

    /// The main connection is complete: so is the transfer, if every place is here.
    pub(super) fn complete(&mut self, end: Option<End>) {
        match &mut self.lanes {
            ReceiveLanes::Some(gathering) => {
                gathering.complete = end;
                self.finish_gathered();
            }
            ReceiveLanes::None | ReceiveLanes::May(_) => {
                if let Some(disk) = &mut self.disk {
                    disk.finish(end);
                    self.finishing = true;
                }
            }
        }
    }

    fn finish_gathered(&mut self) {
        let ReceiveLanes::Some(gathering) = &mut self.lanes else { return };
        let Some(count) = gathering.places.count().filter(|_| gathering.places.is_whole()) else {
            return;
        };
        if let (Some(end), Some(disk)) = (gathering.complete.take(), &mut self.disk) {
            disk.finish(Some(End { buffers: count, ..end }));
            self.finishing = true;
        }
    }

    /// Bytes that came over other lanes than the main connection.
    pub(crate) fn moved_beside(&self) -> u64 {
        match &self.lanes {
            ReceiveLanes::Some(gathering) => gathering.lanes.moved(),
            ReceiveLanes::None | ReceiveLanes::May(_) => 0,
        }
    }

    /// Whether the main connection is silent.
    pub(super) fn be_silent(&mut self, silent: bool) {
        self.session.observer.silent(silent);
        if let ReceiveLanes::Some(gathering) = &self.lanes {
            gathering.lanes.be_silent(silent);
        }
    }

    /// The transfer has ended: the counts of each lane.
    pub(super) fn close_lanes(&mut self) -> Vec<netblt_proto::stats::Stats> {
        match &mut self.lanes {
            ReceiveLanes::Some(gathering) => gathering.lanes.close().0,
            ReceiveLanes::None | ReceiveLanes::May(_) => Vec::new(),
        }
    }
}

impl LaneMerge {
    /// A buffer has left the lane at `at`.
    fn count_out(&mut self, at: usize) {
        if let Some(with) = self.with.get_mut(at) {
            *with = with.saturating_sub(1);
        }
    }
}

const NO_PLACE: &str = "an image has no place, or one that it cannot have";
