//! A sender over several lanes (`docs/protocol §4.11, §8.10`): the lane that was first granted a
//! buffer gets the next image. The buffers of a lost lane go over the others.

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
use crate::transfer::lanes::{LaneEvent, LaneFactory, Lanes, agreed};

/// The lane that was granted a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granted {
    /// The main connection, under this number.
    Main(BufferNumber),
    Lane(usize),
}

/// The state of a sender's lanes.
#[derive(Debug)]
pub(super) struct LaneDistribution {
    lanes: Lanes,
    wants: VecDeque<Granted>,
    /// Images that may have arrived over a lost lane or not.
    unsure: VecDeque<Buffer>,
    /// How many images are on lanes.
    over: usize,
    /// Images that were read, and that the main connection got.
    read: u64,
    by_main: u64,
    ended: bool,
}

/// Lanes, as far as it is known whether there will be any.
#[derive(Debug, Default)]
pub(super) enum SendLanes {
    /// There is only the main connection.
    #[default]
    None,
    /// There may be more, if the receiver takes them.
    May(Arc<LaneFactory>),
    /// There are, or will be.
    Some(Box<LaneDistribution>),
}

impl SendLanes {
    /// There may be more, if there is what they are made with.
    pub(super) fn may(making: Option<Arc<LaneFactory>>) -> Self {
        making.map_or(Self::None, Self::May)
    }
}

impl<R: Reader> Sending<'_, R> {
    /// A connection is open, to a receiver that takes so many lanes, if it announced that. Returns
    /// whether images have a place.
    fn open_lanes(&mut self, theirs: Option<u64>, end: &mut Endpoint) -> Result<bool, Error> {
        let making = match std::mem::take(&mut self.lanes) {
            SendLanes::None => return Ok(false),
            SendLanes::May(making) => making,
            SendLanes::Some(mut before) => {
                let (_, buffers) = before.lanes.close();
                let buffers = buffers.into_iter().chain(before.unsure.drain(..));
                let disk = &mut self.disk;
                buffers.for_each(|buffer| {
                    if let Some(disk) = disk {
                        disk.release(buffer)
                    }
                });
                before.lanes.making()
            }
        };
        let Some(count) = agreed(making.own, theirs) else {
            self.lanes = SendLanes::May(making);
            return Ok(false);
        };
        self.lanes = SendLanes::Some(Box::new(LaneDistribution {
            lanes: Lanes::begin(making, count, true, end)?,
            wants: VecDeque::new(),
            unsure: VecDeque::new(),
            over: 0,
            read: 0,
            by_main: 0,
            ended: false,
        }));
        Ok(true)
    }

    /// Handles the lanes' events, and distributes the images that were read.
    pub(super) fn turn_lanes(&mut self, now: Instant, end: &mut Endpoint) -> Flow {
        let SendLanes::Some(dealing) = &mut self.lanes else { return ControlFlow::Continue(()) };
        dealing.lanes.on_tick(now, end);
        dealing.lanes.steer(self.session.is_paused());
        let mut accepted = Vec::new();
        while let Some((at, said)) = dealing.lanes.poll(now) {
            match said {
                LaneEvent::Wanted => dealing.wants.push_back(Granted::Lane(at)),
                LaneEvent::Accepted(buffer) => {
                    dealing.over -= 1;
                    accepted.push(buffer);
                }
                LaneEvent::Unsure(buffer) => {
                    dealing.over -= 1;
                    dealing.unsure.push_back(buffer);
                }
                LaneEvent::Over(_) => dealing.wants.retain(|granted| *granted != Granted::Lane(at)),
                LaneEvent::Full(_) | LaneEvent::Empty(_) | LaneEvent::Open => {}
            }
        }
        accepted.into_iter().for_each(|buffer| self.released(BufferNumber(0), buffer));
        if let Some(disk) = &mut self.disk {
            self.pool.make(now, end).into_iter().for_each(|buffer| disk.release(buffer));
        }
        self.deal(now, end)
    }

    /// The main connection was granted a buffer. Whether lanes decide what goes into it.
    pub(super) fn want_dealt(&mut self, number: BufferNumber) -> bool {
        let SendLanes::Some(dealing) = &mut self.lanes else { return false };
        dealing.wants.push_back(Granted::Main(number));
        true
    }

    /// Bytes that were sent over other lanes than the main connection.
    pub(crate) fn moved_beside(&self) -> u64 {
        match &self.lanes {
            SendLanes::Some(dealing) => dealing.lanes.moved(),
            SendLanes::None | SendLanes::May(_) => 0,
        }
    }

    /// Whether images go to the lane that was first granted a buffer.
    pub(super) fn distribution(&self) -> bool {
        matches!(self.lanes, SendLanes::Some(_))
    }

    /// The main connection has no use any more for its buffer `number`.
    pub(super) fn released(&mut self, number: BufferNumber, buffer: Buffer) {
        let place = ImagePosition::of(&buffer).filter(|_| self.distribution());
        self.release(place.map_or(number, |place| place.number), buffer);
    }

    /// The room for images of buffers of this size, to a receiver that takes so many lanes, if it
    /// announced that.
    pub(super) fn with_lanes(
        &mut self,
        layout: Layout,
        theirs: Option<u64>,
        end: &mut Endpoint,
    ) -> Result<Layout, Error> {
        match self.open_lanes(theirs, end)? {
            true => layout.less(POSITION_BYTES),
            false => Ok(layout),
        }
    }

    /// A receiver has announced its lanes with its request, after it had granted buffers.
    pub(super) fn with_lanes_late(&mut self, theirs: u64, end: &mut Endpoint) -> Result<(), Error> {
        let Some(layout) = self.layout else { return Ok(()) };
        self.layout = Some(self.with_lanes(layout, Some(theirs), end)?);
        if let (SendLanes::Some(dealing), Some(BufferNumber(newest))) =
            (&mut self.lanes, self.wanted)
        {
            dealing.wants.extend((1..=newest).map(|number| Granted::Main(BufferNumber(number))));
        }
        Ok(())
    }

    /// Every image goes to a lane that waits for one.
    pub(super) fn deal(&mut self, now: Instant, end: &mut Endpoint) -> Flow {
        loop {
            let (SendLanes::Some(dealing), Some(disk)) = (&mut self.lanes, &mut self.disk) else {
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
                Granted::Lane(at) => match dealing.lanes.give(at, image) {
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
        let (SendLanes::Some(dealing), Some(last)) = (&mut self.lanes, self.end) else { return };
        let all = dealing.over == 0 && dealing.unsure.is_empty();
        if all && !std::mem::replace(&mut dealing.ended, true) {
            end.end(now, End { buffers: dealing.by_main, ..last });
        }
    }

    /// Whether the main connection is silent.
    pub(super) fn be_silent(&mut self, silent: bool) {
        self.session.observer.silent(silent);
        if let SendLanes::Some(dealing) = &self.lanes {
            dealing.lanes.be_silent(silent);
        }
    }

    /// The transfer has ended: the counts of each lane.
    pub(super) fn close_lanes(&mut self) -> Vec<netblt_proto::stats::Stats> {
        match &mut self.lanes {
            SendLanes::Some(dealing) => dealing.lanes.close().0,
            SendLanes::None | SendLanes::May(_) => Vec::new(),
        }
    }
}

const NO_ROOM: &str = "an image leaves no room for its place";
