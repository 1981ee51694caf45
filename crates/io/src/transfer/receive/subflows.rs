//! A receiver over several subflows (`docs/protocol §4.11, §8.10`): empty buffers go to where
//! the fewest are, and images from any subflow to the one disk, by their places.

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
use crate::transfer::subflows::{SubflowEvent, SubflowFactory, Subflows, agreed};

/// The state of a receiver's subflows.
#[derive(Debug)]
pub(super) struct SubflowMerge {
    subflows: Subflows,
    places: ImagePositions,
    /// Empty buffers with each subflow, as far as they are known of.
    with: Vec<usize>,
    with_main: usize,
    complete: Option<End>,
}

/// Subflows, as far as it is known whether there will be any.
#[derive(Debug, Default)]
pub(super) enum ReceiveSubflows {
    /// There is only the main connection.
    #[default]
    None,
    /// There may be more, if the sender takes them.
    May(Arc<SubflowFactory>),
    /// There are, or will be.
    Some(Box<SubflowMerge>),
}

impl<W: Writer> Receiving<'_, W> {
    /// It may go over several subflows.
    pub(crate) fn over_subflows(&mut self, making: Option<Arc<SubflowFactory>>) {
        self.subflows = making.map_or(ReceiveSubflows::None, ReceiveSubflows::May);
    }

    /// A connection is open, to a sender that announced this many subflows, if any.
    pub(super) fn open_subflows(
        &mut self,
        theirs: Option<u64>,
        end: &mut Endpoint,
    ) -> Result<(), Error> {
        let making = match std::mem::take(&mut self.subflows) {
            ReceiveSubflows::None => return Ok(()),
            ReceiveSubflows::May(making) => making,
            ReceiveSubflows::Some(mut before) => {
                self.idle.extend(before.subflows.close().1);
                before.subflows.making()
            }
        };
        let Some(count) = agreed(making.own, theirs) else {
            self.subflows = ReceiveSubflows::May(making);
            return Ok(());
        };
        self.subflows = ReceiveSubflows::Some(Box::new(SubflowMerge {
            subflows: Subflows::begin(making, count, false, end)?,
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

    /// Handles the subflows' events.
    pub(super) fn turn_subflows(&mut self, now: Instant, end: &mut Endpoint) -> Flow {
        let ReceiveSubflows::Some(gathering) = &mut self.subflows else {
            return ControlFlow::Continue(());
        };
        gathering.subflows.on_tick(now, end);
        gathering.subflows.steer(self.session.is_paused());
        while let ReceiveSubflows::Some(gathering) = &mut self.subflows {
            let Some((at, said)) = gathering.subflows.poll(now) else { break };
            match said {
                SubflowEvent::Full(buffer) => {
                    gathering.count_out(at);
                    self.count_back(buffer.filled().len());
                    self.pool.moved_beside(buffer.filled().len());
                    self.gather(now, end, buffer)?;
                }
                SubflowEvent::Empty(buffer) => {
                    gathering.count_out(at);
                    self.count_back(0);
                    self.spread(now, end, buffer);
                }
                SubflowEvent::Over(_) => {}
                SubflowEvent::Open => gathering.with.resize(gathering.with.len().max(at + 1), 0),
                SubflowEvent::Wanted | SubflowEvent::Accepted(_) | SubflowEvent::Unsure(_) => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// An empty buffer goes to where the fewest are.
    pub(super) fn spread(&mut self, now: Instant, end: &mut Endpoint, buffer: Buffer) {
        if !self.may_offer() {
            return self.idle.push(buffer);
        }
        let ReceiveSubflows::Some(gathering) = &mut self.subflows else {
            return end.offer(now, buffer);
        };
        let with = |at: &usize| gathering.with.get(*at).copied().unwrap_or(0);
        let least = gathering.subflows.takers().map(|at| (with(&at), at)).min();
        let back = match least.filter(|(count, _)| *count < gathering.with_main) {
            Some((_, at)) => match gathering.subflows.give(at, buffer) {
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
        if let ReceiveSubflows::Some(gathering) = &mut self.subflows {
            gathering.with_main = gathering.with_main.saturating_sub(1);
        }
    }

    /// Buffer `number` of the main connection, or an image with a place, is full.
    pub(super) fn filled(
        &mut self,
        now: Instant,
        end: &mut Endpoint,
        number: BufferNumber,
        buffer: Buffer,
    ) -> Flow {
        self.count_main();
        self.count_back(buffer.filled().len());
        match &self.subflows {
            ReceiveSubflows::Some(_) => self.gather(now, end, buffer),
            ReceiveSubflows::None | ReceiveSubflows::May(_) => {
                if let Some(disk) = &mut self.disk {
                    disk.store(number, buffer);
                }
                ControlFlow::Continue(())
            }
        }
    }

    /// An image is here, over whichever subflow.
    fn gather(&mut self, now: Instant, end: &mut Endpoint, mut buffer: Buffer) -> Flow {
        let ReceiveSubflows::Some(gathering) = &mut self.subflows else {
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
        match &mut self.subflows {
            ReceiveSubflows::Some(gathering) => {
                gathering.complete = end;
                self.finish_gathered();
            }
            ReceiveSubflows::None | ReceiveSubflows::May(_) => {
                if let Some(disk) = &mut self.disk {
                    disk.finish(end);
                    self.finishing = true;
                }
            }
        }
    }

    fn finish_gathered(&mut self) {
        let ReceiveSubflows::Some(gathering) = &mut self.subflows else { return };
        let Some(count) = gathering.places.count().filter(|_| gathering.places.is_whole()) else {
            return;
        };
        if let (Some(end), Some(disk)) = (gathering.complete.take(), &mut self.disk) {
            disk.finish(Some(End { buffers: count, ..end }));
            self.finishing = true;
        }
    }

    /// Bytes that came over other subflows than the main connection.
    pub(crate) fn moved_beside(&self) -> u64 {
        match &self.subflows {
            ReceiveSubflows::Some(gathering) => gathering.subflows.moved(),
            ReceiveSubflows::None | ReceiveSubflows::May(_) => 0,
        }
    }

    /// Whether the main connection is silent.
    pub(super) fn be_silent(&mut self, silent: bool) {
        self.session.observer.silent(silent);
        if let ReceiveSubflows::Some(gathering) = &self.subflows {
            gathering.subflows.be_silent(silent);
        }
    }

    /// The transfer has ended: the counts of each subflow.
    pub(super) fn close_subflows(&mut self) -> Vec<netblt_proto::stats::Stats> {
        match &mut self.subflows {
            ReceiveSubflows::Some(gathering) => gathering.subflows.close().0,
            ReceiveSubflows::None | ReceiveSubflows::May(_) => Vec::new(),
        }
    }
}

impl SubflowMerge {
    /// A buffer has left the subflow at `at`.
    fn count_out(&mut self, at: usize) {
        if let Some(with) = self.with.get_mut(at) {
            *with = with.saturating_sub(1);
        }
    }
}

const NO_PLACE: &str = "an image has no place, or one that it cannot have";
