//! Two network namespaces for one run of the emulator, and their certain end.
//!
//! The namespaces are named (`ip netns`), so that any program can be started in them by hand. Each
//! run holds a lock on a file of its own under `/run/netblt`. The system releases it however the
//! run ends, `kill -9` included. So the next run can distinguish namespaces in use from those left
//! behind, and removes the latter with the processes in them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tun_rs::{DeviceBuilder, SyncDevice};

/// The directory of the names of `ip netns`.
const NAMES: &str = "/run/netns";
/// The directory of the locks.
const LOCKS: &str = "/run/netblt";
/// The name of the device inside either namespace.
pub const DEVICE: &str = "tun0";
/// Packets that wait in a device until the emulator reads them: it may be off the processor for a
/// while, and what does not fit is lost where no option asked for it.
const DEVICE_QUEUE: u32 = 20_000;
/// How long programs have to end by themselves before they are killed.
const MERCY: Duration = Duration::from_secs(1);
/// IPv6 does not run over less.
const IPV6_MIN_MTU: u16 = 1280;

/// One of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The name of its namespace, for `ip netns exec`.
    pub name: String,
    /// Its address on the path, of the range that is reserved for such tests (RFC 2544).
    pub address: Ipv4Addr,
    /// Its IPv6 address on the path.
    pub address6: Ipv6Addr,
}

/// The missing requirements for namespaces, one sentence each; empty when there are none.
pub fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    let lacks = capabilities_lacking();
    if !lacks.is_empty() {
        missing.push(format!("the privilege {} (run it as root)", lacks.join(" and ")));
    }
    match File::options().read(true).write(true).open("/dev/net/tun") {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(
            "/dev/net/tun (`modprobe tun`; in a container: --device /dev/net/tun)".to_owned(),
        ),
        // The missing privilege was reported already.
        Err(_) if !lacks.is_empty() => {}
        Err(error) => missing.push(format!("access to /dev/net/tun ({error})")),
    }
    if ip(&["-V"]).is_err() {
        missing.push("the program `ip` (package iproute2)".to_owned());
    }
    missing
}

/// The needed capabilities that this process does not have.
fn capabilities_lacking() -> Vec<&'static str> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let needed = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];
    needed.into_iter().filter(|(bit, _)| held >> bit & 1 == 0).map(|(_, name)| name).collect()
}

/// Two namespaces, each with a TUN device as its only way out. Dropping it removes them.
#[derive(Debug)]
pub struct Hosts {
    /// The side that connects, by convention; "up" is away from it.
    pub a: Host,
    /// The other side.
    pub b: Host,
    lock: Option<(File, PathBuf)>,
}

impl Hosts {
    /// Makes both, after removing what earlier runs left behind.
    pub fn create() -> io::Result<Self> {
        remove_stale()?;
        fs::create_dir_all(LOCKS)?;
        let (id, file, path) = claim()?;
        let host = |end: &str, last: u8| Host {
            name: format!("netblt-{id}-{end}"),
            address: Ipv4Addr::new(198, 18, 0, last),
            address6: Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, last.into()),
        };
        // From here on, dropping removes whatever part exists.
        let hosts = Self { a: host("a", 1), b: host("b", 2), lock: Some((file, path)) };
        for host in [&hosts.a, &hosts.b] {
            ip(&["netns", "add", &host.name])?;
        }
        Ok(hosts)
    }

    /// Opens the devices of both. Each side's MTU is in bytes.
    pub fn open(&self, mtu_a: u16, mtu_b: u16) -> io::Result<(SyncDevice, SyncDevice)> {
        let open = |host: &Host, mtu| -> io::Result<SyncDevice> {
            let device = device_inside(&host.name, mtu)?;
            configure(host, mtu)?;
            Ok(device)
        };
        Ok((open(&self.a, mtu_a)?, open(&self.b, mtu_b)?))
    }

    /// Packets that a host's device had no room for: they never came to the emulator.
    pub fn overflowed(&self, host: &Host) -> u64 {
        let file = format!("/sys/class/net/{DEVICE}/statistics/tx_dropped");
        let output = ip(&["netns", "exec", &host.name, "cat", &file]);
        output.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Ends every program that still runs in either namespace.
    pub fn end_programs(&self) {
        end_programs(&[&self.a.name, &self.b.name]);
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.end_programs();
        for host in [&self.a, &self.b] {
            // Leftovers are removed by the next run.
            let _ = ip(&["netns", "delete", &host.name]);
        }
        if let Some((_, path)) = self.lock.take() {
            let _ = fs::remove_file(path);
        }
    }
}

/// A command that runs `program` in the namespace `name`.
pub fn command_inside(name: &str, program: &OsStr) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name]).arg(program);
    command
}

/// The lowest free number from this process's own on, with its lock.
fn claim() -> io::Result<(u32, File, PathBuf)> {
    let first = process::id();
    for id in first..first.saturating_add(1000) {
        let path = lock_path(id);
        let file = File::create(&path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_named(&file, &path)
            && !Path::new(NAMES).join(format!("netblt-{id}-a")).exists()
        {
            return Ok((id, file, path));
        }
    }
    Err(io::Error::other("too many emulators at a time"))
}

/// Whether this is still the file of that name: another run may have removed it.
fn is_named(file: &File, path: &Path) -> bool {
    let own = file.metadata().map(|about| about.ino());
    own.is_ok_and(|own| fs::metadata(path).is_ok_and(|named| named.ino() == own))
}

fn lock_path(id: u32) -> PathBuf {
    Path::new(LOCKS).join(format!("{id}.lock"))
}

/// Removes the namespaces of runs that are no more, and ends what still runs in them.
pub fn remove_stale() -> io::Result<()> {
    let names = match fs::read_dir(NAMES) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in names.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = run_of(&name) else { continue };
        let path = lock_path(id);
        let free = match File::open(&path) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(_) => true,
        };
        if free {
            end_programs(&[&name]);
            let removed = ip(&["netns", "delete", &name]);
            // Another run may have come here first.
            if Path::new(NAMES).join(&name).exists() {
                removed?;
            }
        }
    }
    // Locks go last: a namespace without a lock is stale, a lock without a namespace is litter.
    for entry in fs::read_dir(LOCKS).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(file) = File::open(&path) else { continue };
        // Held until the name is gone, so that no run takes it meanwhile.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

/// The number of the run that made a namespace, if one of ours did.
fn run_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix("netblt-")?;
    number.strip_suffix("-a").or(number.strip_suffix("-b"))?.parse().ok()
}

fn programs(names: &[&str]) -> Vec<Pid> {
    let mut pids = Vec::new();
    for name in names {
        let text = ip(&["netns", "pids", name]).unwrap_or_default();
        pids.extend(text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)));
    }
    let own = rustix::process::getpid();
    pids.retain(|&pid| pid != own);
    pids
}

fn end_programs(names: &[&str]) {
    for pid in programs(names) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Instant::now() + MERCY;
    loop {
        let left = programs(names);
        if left.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            for pid in left {
                let _ = kill_process(pid, Signal::KILL);
            }
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A TUN device that exists in the namespace only. It goes when it is closed, as it is when the
/// process ends in whatever way.
fn device_inside(name: &str, mtu: u16) -> io::Result<SyncDevice> {
    let namespace = File::open(Path::new(NAMES).join(name))?;
    // In a thread of its own, which never leaves the namespace.
    let open = move || -> io::Result<SyncDevice> {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        let builder = DeviceBuilder::new().name(DEVICE).mtu(mtu).tx_queue_len(DEVICE_QUEUE);
        let device = builder.offload(true).enable(false).build_sync()?;
        device.set_nonblocking(true)?;
        Ok(device)
    };
    let thread = thread::Builder::new().spawn(open)?;
    thread.join().map_err(|_| io::Error::other("the thread that opens devices died"))?
}

fn configure(host: &Host, mtu: u16) -> io::Result<()> {
    let Host { name, address, address6 } = host;
    let ipv6 = mtu >= IPV6_MIN_MTU && Path::new("/proc/net/if_inet6").exists();
    let mut batch = String::from("link set lo up\n");
    if ipv6 {
        // Without an address of its own making the system sends nothing unasked, which would take
        // the place of the first packets in the order of faults.
        batch += &format!("link set {DEVICE} addrgenmode none\n");
    }
    batch += &format!(
        "link set {DEVICE} up\n\
         addr add {address}/24 dev {DEVICE}\n\
         route add default dev {DEVICE}\n"
    );
    if ipv6 {
        batch +=
            &format!("addr add {address6}/64 dev {DEVICE} nodad\nroute add ::/0 dev {DEVICE}\n");
    }
    let mut child = Command::new("ip")
        .args(["-n", name, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(batch.as_bytes())?;
    }
    answer("-batch", child.wait_with_output()?).map(drop)
}

/// The output of `ip`.
fn ip(args: &[&str]) -> io::Result<String> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output()?;
    answer(&args.join(" "), output)
}

fn answer(what: &str, output: process::Output) -> io::Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("no reason given").to_owned();
    Err(io::Error::other(format!("`ip {what}` failed: {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_run() {
        assert_eq!(run_of("netblt-17-a"), Some(17));
        assert_eq!(run_of("netblt-17-b"), Some(17));
        for other in ["netblt-17", "netblt--a", "netblt-x-a", "net-17-a", "netblt-17-c"] {
            assert_eq!(run_of(other), None, "{other}");
        }
    }
}
