//! A server of files that has many clients one after the other: alone in its process, whose memory
//! is looked at.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails the test")]

mod serving;

use std::{fs, thread};

use netblt::Destination;
use netblt::serve::client::Fetch;

use serving::{Deaf, Host, bytes};

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn many_sessions_in_succession_leave_nothing_behind() {
    let sessions = std::env::var("NETBLT_SESSIONS").ok().and_then(|n| n.parse().ok());
    let sessions: usize = sessions.unwrap_or(200);
    let host = Host::start(|_| {});
    let here = tempfile::tempdir().unwrap();
    let content = bytes(1 << 20, 2);
    fs::write(here.path().join("f"), &content).unwrap();
    fs::write(host.root("file"), &content).unwrap();
    let fetch = || {
        let path = b"file".to_vec();
        let fetch = Fetch { path, name: "file".into(), trees: false, bytes: None, data: None };
        let into = Destination::writer(std::io::sink());
        assert!(host.server().get(&fetch, into, &mut Deaf).unwrap().verified);
    };
    // On a busy machine the next one comes while the last is about to go, and what the two had is
    // kept for others: so it is from the beginning.
    thread::scope(|scope| (0..3).for_each(|_| _ = scope.spawn(fetch)));
    let run = || {
        let (mut before, mut files) = (0, 0);
        for number in 0..sessions {
            if number % 2 == 0 {
                let name = format!("{number}");
                assert!(host.put(&[&here.path().join("f")], &name).unwrap().verified);
                fs::remove_file(host.root(&name)).unwrap();
            } else {
                fetch();
            }
            if number == sessions / 4 {
                before = resident();
                files = fs::read_dir("/proc/self/fd").unwrap().count();
            }
        }
        (resident().saturating_sub(before), files)
    };
    // Half of what one session takes, for all that came after the first quarter. More of them at
    // once than ever before take more, once: what is left behind grows each time.
    let (mut grown, mut files) = run();
    for _ in 0..3 {
        if grown >= 8 << 20 {
            (grown, files) = run();
        }
    }
    assert!(grown < 8 << 20, "{grown} bytes more after {sessions} sessions");
    // Threads that are just leaving may hold a few.
    let open = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open < files + 40, "{files} open files became {open}");
    assert_eq!(fs::read_dir(host.root("")).unwrap().count(), 1);
}
