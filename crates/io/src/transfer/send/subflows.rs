//! A sender over several subflows (`docs/protocol §4.11, §8.10`): the subflow that was first
//! granted a buffer gets the next image. The buffers of a lost subflow go over the others.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{ImagePosition, POSITION_BYTES};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use super::{BufferedBytes, Flow, Sending};
use crate::disk::layout::Layout;
use crate::disk::threads::Reader;
use crate::error::Error;
use crate::transfer::subflows::{SubflowEvent, SubflowFactory, Subflows, agreed};

/// The subflow that was granted a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granted {
    /// The main connection, under this number.
    Main(BufferNumber),
    Subflow(usize),
}

/// The state of a sender's subflows.
#[derive(Debug)]
pub(super) struct SubflowDistribution {
    subflows: Subflows,
    wants: VecDeque<Granted>,
    /// Images that may have arrived over a lost subflow or not.
    unsure: VecDeque<Buffer>,
    /// How many images are on subflows.
    over: usize,
    /// Images that were read, and that the main connection got.
    read: u64,
    by_main: u64,
    ended: bool,
}

/// Subflows, as far as it is known whether there will be any.
#[derive(Debug, Default)]
pub(super) enum SendSubflows {
    /// There is only the main connection.
    #[default]
    None,
    /// There may be more, if the receiver takes them.
    May(Arc<SubflowFactory>),
    /// There are, or will be.
    Some(Box<SubflowDistribution>),
}

impl SendSubflows {
    /// There may be more, if there is what they are made with.
    pub(super) fn may(making: Option<Arc<SubflowFactory>>) -> Self {
        making.map_or(Self::None, Self::May)
    }
}

impl<R: Reader> Sending<'_, R> {
    /// A connection is open, to a receiver that takes so many subflows, if it announced that.
    /// Returns whether images have a place.
    fn open_subflows(&mut self, theirs: Option<u64>, end: &mut Endpoint) -> Result<bool, Error> {
        let making = match std::mem::take(&mut self.subflows) {
            SendSubflows::None => return Ok(false),
            SendSubflows::May(making) => making,
            SendSubflows::Some(mut before) => {
                let (_, buffers) = before.subflows.close();
                let buffers = buffers.into_iter().chain(before.unsure.drain(..));
                let disk = &mut self.disk;
                buffers.for_each(|buffer| {
                    if let Some(disk) = disk {
                        disk.release(buffer)
                    }
                });
                before.subflows.making()
            }
        };
        let Some(count) = agreed(making.own, theirs) else {
            self.subflows = SendSubflows::May(making);
            return Ok(false);
        };
        self.subflows = SendSubflows::Some(Box::new(SubflowDistribution {
            subflows: Subflows::begin(making, count, true, end)?,
            wants: VecDeque::new(),
            unsure: VecDeque::new(),
            over: 0,
            read: 0,
            by_main: 0,
            ended: false,
        }));
        Ok(true)
    }

    /// Handles the subflows' events, and distributes the images that were read.
    pub(super) fn turn_subflows(&mut self, now: Instant, end: &mut Endpoint) -> Flow {
        let SendSubflows::Some(dealing) = &mut self.subflows else {
            return ControlFlow::Continue(());
        };
        dealing.subflows.on_tick(now, end);
        dealing.subflows.steer(self.session.is_paused());
        let mut accepted = Vec::new();
        while let Some((at, said)) = dealing.subflows.poll(now) {
            match said {
                SubflowEvent::Wanted => dealing.wants.push_back(Granted::Subflow(at)),
                SubflowEvent::Accepted(buffer) => {
                    dealing.over -= 1;
                    accepted.push(buffer);
                }
                SubflowEvent::Unsure(buffer) => {
                    dealing.over -= 1;
                    dealing.unsure.push_back(buffer);
                }
                SubflowEvent::Over(_) => {
                    dealing.wants.retain(|granted| *granted != Granted::Subflow(at))
                }
                SubflowEvent::Full(_) | SubflowEvent::Empty(_) | SubflowEvent::Open => {}
            }
        }
        accepted.into_iter().for_each(|buffer| self.released(BufferNumber(0), buffer));
        if let Some(disk) = &mut self.disk {
            self.pool.make(now, end).into_iter().for_each(|buffer| disk.release(buffer));
        }
        self.deal(now, end)
    }

    /// The main connection was granted a buffer. Whether subflows decide what goes into it.
    pub(super) fn want_dealt(&mut self, number: BufferNumber) -> bool {
        let SendSubflows::Some(dealing) = &mut self.subflows else { return false };
        dealing.wants.push_back(Granted::Main(number));
        true
    }

    /// Bytes that were sent over other subflows than the main connection.
    pub(crate) fn moved_beside(&self) -> u64 {
        match &self.subflows {
            SendSubflows::Some(dealing) => dealing.subflows.moved(),
            SendSubflows::None | SendSubflows::May(_) => 0,
        }
    }

    /// Whether images go to the subflow that was first granted a buffer.
    pub(super) fn distribution(&self) -> bool {
        matches!(self.subflows, SendSubflows::Some(_))
    }

    /// The main connection has no use any more for its buffer `number`.
    pub(super) fn released(&mut self, number: BufferNumber, buffer: Buffer) {
        let place = ImagePosition::of(&buffer).filter(|_| self.distribution());
        self.release(place.map_or(number, |place| place.number), buffer);
    }

    /// The room for images of buffers of this size, to a receiver that takes so many subflows, if
    /// it announced that.
    pub(super) fn with_subflows(
        &mut self,
        layout: Layout,
        theirs: Option<u64>,
        end: &mut Endpoint,
    ) -> Result<Layout, Error> {
        match self.open_subflows(theirs, end)? {
            true => layout.less(POSITION_BYTES),
            false => Ok(layout),
        }
    }

    /// A receiver has announced its subflows with its request, after it had granted buffers.
    pub(super) fn with_subflows_late(
        &mut self,
        theirs: u64,
        end: &mut Endpoint,
    ) -> Result<(), Error> {
        let Some(layout) = self.layout else { return Ok(()) };
        self.layout = Some(self.with_subflows(layout, Some(theirs), end)?);
        if let (SendSubflows::Some(dealing), Some(BufferNumber(newest))) =
            (&mut self.subflows, self.wanted)
        {
            dealing.wants.extend((1..=newest).map(|number| Granted::Main(BufferNumber(number))));
        }
        Ok(())
    }

    /// Every image goes to a subflow that waits for one.
    pub(super) fn deal(&mut self, now: Instant, end: &mut Endpoint) -> Flow {
        loop {
            let (SendSubflows::Some(dealing), Some(disk)) = (&mut self.subflows, &mut self.disk)
            else {
                return ControlFlow::Continue(());
            };
            let Some(granted) = dealing.wants.front().copied() else { break };
            disk.want(BufferNumber(dealing.read + dealing.wants.len() as u64));
            let image = match dealing.unsure.pop_front() {
                Some(image) => image,
                None => match disk.poll() {
                    Ok(Some(supply)) => {
                        dealing.read += 1;
                        let last = supply.end.is_some();
                        self.kept += supply.kept;
                        (self.at, self.end) = (supply.at, supply.end);
                        self.held.push_back(Some(BufferedBytes {
                            bytes: supply.bytes,
                            kept: supply.kept,
                        }));
                        let mut image = supply.buffer;
                        if !(ImagePosition { number: supply.number, last }).put(&mut image) {
                            return self.session.fail(now, end, Error::Content(NO_ROOM));
                        }
                        image
                    }
                    Ok(None) => break,
                    Err(error) => return self.session.fail(now, end, error),
                },
            };
            dealing.wants.pop_front();
            match granted {
                Granted::Main(number) => {
                    dealing.by_main += 1;
                    end.supply(now, number, image, false);
                }
                Granted::Subflow(at) => match dealing.subflows.give(at, image) {
                    Ok(()) => dealing.over += 1,
                    Err(image) => dealing.unsure.push_front(image),
                },
            }
        }
        self.end_dealt(now, end);
        ControlFlow::Continue(())
    }

    /// The main connection sends END, when no image can come back to it any more.
    fn end_dealt(&mut self, now: Instant, end: &mut Endpoint) {
        let (SendSubflows::Some(dealing), Some(last)) = (&mut self.subflows, self.end) else {
            return;
        };
        let all = dealing.over == 0 && dealing.unsure.is_empty();
        if all && !std::mem::replace(&mut dealing.ended, true) {
            end.end(now, End { buffers: dealing.by_main, ..last });
        }
    }

    /// Whether the main connection is silent.
    pub(super) fn be_silent(&mut self, silent: bool) {
        self.session.observer.silent(silent);
        if let SendSubflows::Some(dealing) = &self.subflows {
            dealing.subflows.be_silent(silent);
        }
    }

    /// The transfer has ended: the counts of each subflow.
    pub(super) fn close_subflows(&mut self) -> Vec<netblt_proto::stats::Stats> {
        match &mut self.subflows {
            SendSubflows::Some(dealing) => dealing.subflows.close().0,
            SendSubflows::None | SendSubflows::May(_) => Vec::new(),
        }
    }
}

const NO_ROOM: &str = "an image leaves no room for its place";
