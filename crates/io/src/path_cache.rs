//! The cache of paths: a sender's knowledge of the paths to its peers, in a file that only its user
//! can read (RFC 9959). Nothing in it is secret. Only plausible numbers in it are used, and an
//! error in it costs no more than the saved rate.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use netblt_proto::config::Remembered;
use netblt_proto::limits::MAX_REMEMBERED;
use netblt_proto::stats::Learned;
use netblt_proto::units::Rate;

use crate::home;

/// A line is at most two addresses and three numbers; a longer file is not ours.
const MAX_BYTES: u64 = 192 * MAX_REMEMBERED as u64;
/// After a day nothing of it is tried.
const LASTS: u64 = 24 * 3600;
/// The plausible bounds: 100 Tbit/s, and a minute.
const MOST_RATE: u64 = 12_500_000_000_000;
const MOST_MICROS: u64 = 60_000_000;

/// One path, known by its two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PathEntry {
    peer: IpAddr,
    local: IpAddr,
    /// Bytes of IP packets a second.
    rate: u64,
    min_rtt_micros: u64,
    /// Seconds since 1970.
    at: u64,
}

impl fmt::Display for PathEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, local, rate, min_rtt_micros, at } = self;
        write!(f, "{peer} {local} {rate} {min_rtt_micros} {at}")
    }
}

impl PathEntry {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let peer = words.next()?.parse().ok()?;
        let local = words.next()?.parse().ok()?;
        let mut number = |most: u64| {
            let number = words.next()?.parse().ok()?;
            (1..=most).contains(&number).then_some(number)
        };
        let (rate, min_rtt_micros, at) =
            (number(MOST_RATE)?, number(MOST_MICROS)?, number(u64::MAX)?);
        words.next().is_none().then_some(Self { peer, local, rate, min_rtt_micros, at })
    }
}

fn place() -> Option<PathBuf> {
    home::cache("paths")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs())
}

/// The address from which the system would send to `peer`; no packet leaves.
fn local_for(peer: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(SocketAddr::new(peer, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The saved paths that start at this host's present addresses.
pub(crate) fn recall() -> Vec<(IpAddr, Remembered)> {
    let lines = place().map(|place| read(&place, now())).unwrap_or_default();
    let here = lines.into_iter().filter(|line| local_for(line.peer) == Some(line.local));
    here.map(|line| {
        let age = Duration::from_secs(now().saturating_sub(line.at));
        let rate = Rate::from_bytes_per_second(line.rate);
        let min_rtt = Duration::from_micros(line.min_rtt_micros);
        (line.peer, Remembered { rate, min_rtt, age })
    })
    .collect()
}

/// Saves the `learned` rate of the path to `peer`, if that is possible.
pub(crate) fn keep(peer: IpAddr, learned: Learned) {
    let peer = peer.to_canonical();
    if let (Some(place), Some(local)) = (place(), local_for(peer))
        && learned != Learned::Nothing
    {
        // A failure costs little: the next transfer finds the rate by itself.
        drop(update(&place, (peer, local), learned, now()));
    }
}

/// The lines of `place` that can be true and are not too old, the newest first.
fn read(place: &Path, now: u64) -> Vec<PathEntry> {
    let mut text = String::new();
    let opened = OpenOptions::new().read(true).custom_flags(nofollow()).open(place);
    let file = opened.and_then(|file| Ok((file.metadata()?.is_file(), file)));
    let Ok((true, file)) = file else { return Vec::new() };
    if file.take(MAX_BYTES + 1).read_to_string(&mut text).is_err() || text.len() as u64 > MAX_BYTES
    {
        return Vec::new();
    }
    let fresh = |line: &PathEntry| line.at <= now && now - line.at <= LASTS;
    text.lines().filter_map(PathEntry::parse).filter(fresh).take(MAX_REMEMBERED).collect()
}

/// Neither a link to elsewhere nor a pipe that waits.
fn nofollow() -> i32 {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    flags.bits().cast_signed()
}

fn update(
    place: &Path,
    (peer, local): (IpAddr, IpAddr),
    learned: Learned,
    now: u64,
) -> io::Result<()> {
    let mut lines = read(place, now);
    lines.retain(|line| (line.peer, line.local) != (peer, local));
    if let Learned::Path(Remembered { rate, min_rtt, .. }) = learned {
        let micros = u64::try_from(min_rtt.as_micros()).unwrap_or(u64::MAX).clamp(1, MOST_MICROS);
        let rate = rate.bytes_per_second().clamp(1, MOST_RATE);
        lines.insert(0, PathEntry { peer, local, rate, min_rtt_micros: micros, at: now });
    }
    lines.truncate(MAX_REMEMBERED);
    let directory = place.parent().unwrap_or(place);
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // Whole or not at all, even if another process does the same now.
    let new = directory.join(format!("paths.{}", process::id()));
    let written = write(&new, &lines).and_then(|()| fs::rename(&new, place));
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

fn write(new: &Path, lines: &[PathEntry]) -> io::Result<()> {
    drop(fs::remove_file(new));
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    let text: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    file.write_all(text.concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn path(rate: u64) -> Learned {
        let min_rtt = Duration::from_millis(70);
        let rate = Rate::from_bytes_per_second(rate);
        Learned::Path(Remembered { rate, min_rtt, age: Duration::ZERO })
    }

    fn ends(last: u8) -> (IpAddr, IpAddr) {
        (Ipv4Addr::new(192, 0, 2, last).into(), Ipv4Addr::new(198, 51, 100, 1).into())
    }

    #[test]
    fn a_saved_path_is_used_until_it_is_invalid_or_old() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("a/netblt/paths");
        update(&place, ends(1), path(1000), NOW).unwrap();
        update(&place, ends(2), path(2000), NOW + 1).unwrap();
        update(&place, ends(1), path(3000), NOW + 2).unwrap();
        let rates = |now| read(&place, now).iter().map(|line| line.rate).collect::<Vec<_>>();
        assert_eq!(rates(NOW + 2), [3000, 2000]);
        assert_eq!(rates(NOW + 2 + LASTS), [3000], "a day");
        assert_eq!(rates(NOW), Vec::<u64>::new(), "not from the future");
        let mode = fs::metadata(&place).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        update(&place, ends(1), Learned::Wrong, NOW + 2).unwrap();
        assert_eq!(rates(NOW + 2), [2000]);
        for last in 0..=255 {
            update(&place, ends(last), path(9), NOW).unwrap();
        }
        update(&place, (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()), path(7), NOW)
            .unwrap();
        assert_eq!(read(&place, NOW).len(), MAX_REMEMBERED);
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1, "nothing is left");
    }

    #[test]
    fn files_of_others_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("paths");
        let good = format!("192.0.2.1 198.51.100.1 5 6 {NOW}\n");
        let wrong = [
            "",
            "x\n",
            "192.0.2.1 198.51.100.1 5 6\n",
            "192.0.2.1 198.51.100.1 0 6 9\n",
            "192.0.2.1 198.51.100.1 99999999999999 6 9\n",
            "192.0.2.1 198.51.100.1 5 6 9 9\n",
            "192.0.2.1 198.51.100.1 -5 6 9\n",
            "evil 198.51.100.1 5 6 9\n",
        ];
        fs::write(&place, wrong.concat() + &good).unwrap();
        assert_eq!(read(&place, NOW).len(), 1);
        fs::write(&place, [b"\xff\xfe\n", good.as_bytes()].concat()).unwrap();
        assert_eq!(read(&place, NOW), [], "no text");
        fs::write(&place, good.repeat(100_000)).unwrap();
        assert_eq!(read(&place, NOW), [], "too long");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&place, &link).unwrap();
        assert_eq!(read(&link, NOW), [], "a link");
        assert_eq!(read(directory.path(), NOW), [], "a directory");
        // An existing file is replaced, never written through.
        fs::write(&place, "other").unwrap();
        update(&link, ends(1), path(1), NOW).unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "other");
        assert_eq!(read(&link, NOW).len(), 1);
    }
}
