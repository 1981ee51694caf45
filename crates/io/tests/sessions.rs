//! A server of files that has many clients one after the other: alone in its process, whose memory
//! is looked at.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails the test")]

mod serving;

use std::fs;

use netblt::Destination;
use netblt::serve::remote::Fetch;

use serving::{Deaf, Host, bytes};

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn many_one_after_the_other_leave_nothing_behind() {
    let sessions = std::env::var("NETBLT_SESSIONS").ok().and_then(|n| n.parse().ok());
    let sessions = sessions.unwrap_or(200_usize).max(8);
    let host = Host::start(|_| {});
    let here = tempfile::tempdir().unwrap();
    let content = bytes(1 << 20, 2);
    fs::write(here.path().join("f"), &content).unwrap();
    fs::write(host.root("file"), &content).unwrap();
    let (mut held, mut files) = (Vec::new(), 0);
    for number in 0..sessions {
        if number % 2 == 0 {
            let name = format!("{number}");
            assert!(host.put(&[&here.path().join("f")], &name).unwrap().verified);
            fs::remove_file(host.root(&name)).unwrap();
        } else {
            let path = b"file".to_vec();
            let fetch = Fetch { path, name: "file".into(), trees: false, bytes: None };
            let into = Destination::writer(std::io::sink());
            assert!(host.server().get(&fetch, into, &mut Deaf).unwrap().verified);
        }
        if number % (sessions / 4) == sessions / 4 - 1 {
            held.push(resident());
        }
        if number == sessions / 4 {
            files = fs::read_dir("/proc/self/fd").unwrap().count();
        }
    }
    // What stays behind grows in every quarter. The allocator may hold more once, on a busy
    // machine.
    let grown = held.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min().unwrap();
    assert!(grown < 2 << 20, "{grown} bytes more in a quarter of {sessions} sessions: {held:?}");
    // Threads that are just leaving may hold a few.
    let open = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open < files + 40, "{files} open files became {open}");
    assert_eq!(fs::read_dir(host.root("")).unwrap().count(), 1);
}
