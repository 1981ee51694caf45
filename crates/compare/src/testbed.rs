//! The testbed of one run: two hosts, the path between them, and a directory for files.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use netblt_emu::netns::Hosts;
use netblt_emu::tun::{Tun, TunReport};
use netblt_path::scenario::Scenario;
use netblt_proto::units::Rate;
use tempfile::TempDir;

/// The MTU of a device if the link has none, in bytes.
const DEVICE_MTU: u16 = 1500;

/// The directory of a comparison: the source, the destination and the logs. Removed when dropped.
#[derive(Debug)]
pub struct Room {
    directory: TempDir,
}

impl Room {
    /// An empty one, in the directory for temporary files.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("netblt-compare.").tempdir()?;
        let room = Self { directory };
        fs::create_dir(room.path("home"))?;
        Ok(room)
    }

    /// A place in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The source.
    pub fn source(&self) -> PathBuf {
        self.path("data")
    }

    /// The destination; empty at the start of each run.
    pub fn destination(&self) -> PathBuf {
        self.path("to")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub(crate) fn clear(&self) -> io::Result<()> {
        let to = self.destination();
        match fs::remove_dir_all(&to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir(&to),
        }
    }
}

/// The script of a guard. When its standard input ends without a word, the program has died, and
/// the guard removes what it made. Signals to the program do not reach its guard.
const GUARD: &str = "trap '' INT TERM HUP; read word && exit; for host in \"$1\" \"$2\"; do \
                     ip netns pids \"$host\" | xargs -r kill -KILL; ip netns delete \"$host\"; \
                     done; rm -rf \"$3\"";

/// A process that outlives this one, if that is killed, by as long as it takes to clean up.
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn of(hosts: &Hosts, room: &Room) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "guard", &hosts.a.name, &hosts.b.name]);
        command.arg(room.directory.path()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut word) = self.0.stdin.take() {
            // It has ended before if this fails.
            let _ = word.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}

/// The hosts and the path, alive.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) hosts: Hosts,
    /// Behind the hosts: until they are gone it has to be there.
    _guard: Guard,
    tun: Option<Tun>,
    pub(crate) room: &'a Room,
    /// The rate of the link to host b.
    pub(crate) rate: Option<Rate>,
    queue: Queue,
}

/// The queue for the link to host b, as sampled.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    sum: Duration,
    looks: u32,
    most: Duration,
}

/// The path's counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// IP bytes that entered the path, in both directions.
    pub(crate) wire_bytes: u64,
    /// Packets that entered the path to host b.
    pub(crate) packets: u64,
    /// Packets lost to the full queue.
    pub(crate) lost_to_queue: u64,
    /// Packets lost at random.
    pub(crate) lost_at_random: u64,
    /// The queue for the link to host b: mean and maximum.
    pub(crate) queue_mean: Duration,
    pub(crate) queue_most: Duration,
    /// Packets of both directions that this machine delivered too late.
    pub(crate) late: u64,
    pub(crate) all: u64,
}

impl<'a> Ground<'a> {
    pub(crate) fn new(path: &Scenario, seed: u64, room: &'a Room) -> io::Result<Self> {
        room.clear()?;
        let hosts = Hosts::create()?;
        let guard = Guard::of(&hosts, room)?;
        let (up, down) = (path.up.clone(), path.down.clone());
        let mtu = |own: Option<u16>| own.unwrap_or(DEVICE_MTU);
        let devices = hosts.open(mtu(up.mtu), mtu(down.mtu))?;
        let rate = up.rate;
        let tun = Tun::start(devices, (up, down), seed, None)?;
        Ok(Self { hosts, _guard: guard, tun: Some(tun), room, rate, queue: Queue::default() })
    }

    /// The path's books.
    pub(crate) fn report(&self) -> TunReport {
        self.tun.as_ref().map(Tun::report).unwrap_or_default()
    }

    /// Samples the queue.
    pub(crate) fn look(&mut self) {
        let waits = self.report().up.queue_time;
        self.queue.sum += waits;
        self.queue.looks += 1;
        self.queue.most = self.queue.most.max(waits);
    }

    /// The counts since `before`.
    pub(crate) fn seen(&self, before: &TunReport) -> Seen {
        let now = self.report();
        let ways = [(&now.up, &before.up), (&now.down, &before.down)];
        let entered = ways.map(|(now, before)| {
            let (now, before) = (now.counters.entered, before.counters.entered);
            (now.packets - before.packets, now.bytes - before.bytes)
        });
        let (up, was) = (&now.up.counters, &before.up.counters);
        Seen {
            wire_bytes: entered.iter().map(|(_, bytes)| bytes).sum(),
            packets: entered[0].0,
            lost_to_queue: up.lost_queue.packets - was.lost_queue.packets,
            lost_at_random: up.lost_random.packets - was.lost_random.packets,
            queue_mean: self.queue.sum / self.queue.looks.max(1),
            queue_most: self.queue.most,
            late: ways.iter().map(|(now, before)| now.late - before.late).sum(),
            all: entered.iter().map(|(packets, _)| packets).sum(),
        }
    }
}

impl Drop for Ground<'_> {
    fn drop(&mut self) {
        self.hosts.end_programs();
        if let Some(tun) = self.tun.take() {
            // Its devices may be gone before it.
            let _ = tun.stop();
        }
    }
}

/// Whether both files are the same.
pub(crate) fn same(one: &Path, other: &Path) -> bool {
    use std::io::Read as _;
    let open = |path| fs::File::open(path).map(|file| io::BufReader::with_capacity(1 << 16, file));
    let (Ok(mut one), Ok(mut other)) = (open(one), open(other)) else { return false };
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let Ok(got) = one.read(&mut a) else { return false };
        if got == 0 {
            return matches!(other.read(&mut b), Ok(0));
        }
        if other.read_exact(&mut b[..got]).is_err() || a[..got] != b[..got] {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_compared_to_their_ends() {
        let room = Room::new().expect("a directory");
        let write = |name: &str, bytes: &[u8]| {
            fs::write(room.path(name), bytes).expect("written");
            room.path(name)
        };
        let long = vec![7; 200_000];
        let (a, b) = (write("a", &long), write("b", &long));
        let mut changed = long.clone();
        changed[199_999] = 8;
        assert!(same(&a, &b));
        let longer = [&long[..], b"x"].concat();
        for (name, bytes) in [("c", &changed[..]), ("d", &long[1..]), ("e", &longer)] {
            let other = write(name, bytes);
            assert!(!same(&a, &other) && !same(&other, &a), "{name}");
        }
        assert!(!same(&a, &room.path("nothing")));
        room.clear().expect("made");
        write("to/x", b"");
        room.clear().expect("made again");
        assert_eq!(fs::read_dir(room.destination()).expect("there").count(), 0);
    }
}
