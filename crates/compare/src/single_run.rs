//! One run of one rival, in this order:
//!
//! 1. two hosts, and the path between them;
//! 2. the far side, until it can be called;
//! 3. the near side; the clock begins;
//! 4. look at the queue until the transfer is over; the clock stops;
//! 5. what the far side took of a processor, and whether everything came;
//! 6. what the path saw.
//!
//! Whichever way this is left, both sides have ended and the hosts are gone.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netblt_path::scenario::Scenario;

use crate::process::{Ended, LOOK_ROUND, Side};
use crate::rival::{Over, Ready, Rival};
use crate::testbed::{Ground, Room, Seen};

/// How long the far side may take until it can be called.
const UNTIL_READY: Duration = Duration::from_secs(15);
/// How long the far side may take to end by itself, besides four round trips.
const FAREWELL: Duration = Duration::from_secs(5);

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) path: &'a Scenario,
    pub(crate) room: &'a Room,
    /// The program `netblt`.
    pub(crate) netblt: &'a Path,
    pub(crate) seed: u64,
    /// Of the file.
    pub(crate) bytes: u64,
    /// A longer run is ended.
    pub(crate) longest: Duration,
    /// Whether everything is to end now.
    pub(crate) stop: &'a AtomicBool,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Run {
    /// From the start of the near side to the end.
    pub(crate) time: Duration,
    /// Bytes that arrived.
    pub(crate) bytes: u64,
    /// Processor time of each side: near, far.
    pub(crate) cpu: [Option<Duration>; 2],
    pub(crate) seen: Seen,
    /// Why it does not count.
    pub(crate) problem: Option<String>,
}

/// Why there is no run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Abort {
    /// It was to end.
    Stopped,
    /// There is no network.
    Network(String),
}

impl Task<'_> {
    pub(crate) fn run(&self, rival: &Rival) -> Result<Run, Abort> {
        let network = |error: std::io::Error| Abort::Network(error.to_string());
        let mut ground = Ground::new(self.path, self.seed, self.room).map_err(network)?;
        match self.contest(rival, &mut ground) {
            Ok(run) => Ok(run),
            // A fault of the program: the run does not count, and the others go on.
            Err(problem) if !self.stops() => Ok(Run { problem: Some(problem), ..Run::default() }),
            Err(_) => Err(Abort::Stopped),
        }
    }

    fn contest(&self, rival: &Rival, ground: &mut Ground<'_>) -> Result<Run, String> {
        rival.prepare(ground)?;
        let log = |name: &str| self.room.path(name);
        let words = rival.far(ground, self.netblt);
        let mut far = Side::start(&ground.hosts.b, &words, log("far.log"), &self.room.home())?;
        self.until_ready(&mut far, rival.ready())?;

        let words = rival.near(ground, self.netblt, &far.output(), self.bytes);
        let before = ground.report();
        let began = Instant::now();
        let mut near = Side::start(&ground.hosts.a, &words, log("near.log"), &self.room.home())?;
        let over = rival.over();
        let mut ends = [None, None];
        while !is_over(&ends, over) && !self.stops() && began.elapsed() < self.longest {
            ground.look();
            thread::sleep(LOOK_ROUND);
            for (end, side) in ends.iter_mut().zip([&mut near, &mut far]) {
                *end = end.take().or_else(|| side.ended());
            }
        }
        let time = began.elapsed();
        let seen = ground.seen(&before);
        if self.stops() {
            return Err("stopped".to_owned());
        }
        let mut run = Run { time, seen, ..Run::default() };
        match &ends[0] {
            None => run.problem = Some(format!("not over after {} s", time.as_secs())),
            Some(end) if !end.good => run.problem = Some(near.complaint()),
            Some(_) if over == Over::Both && ends[1].as_ref().is_none_or(|end| !end.good) => {
                run.problem = Some(far.complaint());
            }
            Some(_) => {}
        }
        run.cpu[0] = ends[0].as_ref().map(|end| end.cpu);
        if run.problem.is_none() {
            run.cpu[1] = self.leave(far, ends[1].take(), over).map(|end| end.cpu);
            match rival.came(self.room, &near.output(), self.bytes) {
                Ok(bytes) => run.bytes = bytes,
                Err(problem) => run.problem = Some(problem),
            }
        }
        Ok(run)
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn until_ready(&self, far: &mut Side, ready: Ready) -> Result<(), String> {
        let deadline = Instant::now() + UNTIL_READY;
        while !is_ready(far, ready) {
            if far.ended().is_some() || Instant::now() >= deadline {
                return Err(format!("the far side cannot be called: {}", far.complaint()));
            }
            if self.stops() {
                return Err("stopped".to_owned());
            }
            thread::sleep(LOOK_ROUND);
        }
        Ok(())
    }

    /// The far side's end: by itself, if that is its way.
    fn leave(&self, mut far: Side, ended: Option<Ended>, over: Over) -> Option<Ended> {
        if ended.is_some() {
            return ended;
        }
        let deadline = Instant::now() + FAREWELL + self.path.rtt() * 4;
        // A daemon has its children's processor time once it has waited for them.
        while over == Over::NearOfDaemon && far.has_children() && Instant::now() < deadline {
            thread::sleep(LOOK_ROUND);
        }
        let ended = if over == Over::NearOfDaemon { None } else { far.wait(deadline) };
        ended.or_else(|| far.end())
    }
}

/// Whether the transfer is, be it by failing.
fn is_over(ends: &[Option<Ended>; 2], over: Over) -> bool {
    match &ends[0] {
        None => false,
        Some(near) => !near.good || over != Over::Both || ends[1].is_some(),
    }
}

fn is_ready(far: &Side, ready: Ready) -> bool {
    match ready {
        // The line is whole.
        Ready::Ticket => far
            .output()
            .split_inclusive(char::is_whitespace)
            .any(|word| word.starts_with("netblt1:") && word.ends_with(char::is_whitespace)),
        Ready::Tcp(port) => has_port(far.id(), "tcp", port),
        Ready::Udp(port) => has_port(far.id(), "udp", port),
    }
}

/// Whether someone listens at this port in the network namespace of this process, which is not
/// that of this program any more.
fn has_port(pid: u32, protocol: &str, port: u16) -> bool {
    let own = fs::read_link("/proc/self/ns/net").ok();
    let its = fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    its.is_some()
        && own != its
        && [protocol.to_owned(), format!("{protocol}6")].iter().any(|table| {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
            listens(&text, port)
        })
}

/// Whether a table as `/proc/net/tcp` or `/proc/net/udp` has a socket there that waits for calls:
/// in state 0A or, of UDP, 07.
fn listens(table: &str, port: u16) -> bool {
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let local = fields.get(1).and_then(|local| local.rsplit_once(':'));
        let port_here = local.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
        port_here == Some(port) && fields.get(3).is_some_and(|state| ["0A", "07"].contains(state))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_its_number_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     0: 00000000:1451 00000000:0000 0A 00000000:00000000\n\
                     1: 00000000:0016 0200000A:BEEF 01 00000000:00000000\n\
                     2: 00000000:2328 00000000:0000 07 00000000:00000000\n";
        assert!(listens(table, 5201) && listens(table, 9000));
        assert!(!listens(table, 22), "a connection is no listener");
        assert!(!listens(table, 5202) && !listens("", 5201));
        // This process is where it began.
        assert!(!has_port(std::process::id(), "tcp", 5201));
    }
}
