//! `netblt cp` and ssh as users configure it: logins that run another program, settings under which
//! ssh runs none, and a master that stays.

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

use crate::testenv::far::{Setting, program_directory};
use crate::testenv::sshd::Sshd;
use crate::testenv::{Env, LIMIT, skip};
use rustix::process::Signal;

#[test]
fn a_silent_login_is_waited_for_with_a_message() {
    const SFTP: &str = "/usr/lib/openssh/sftp-server";
    if !fs::exists(SFTP).is_ok_and(|there| there) {
        return skip("no sftp-server");
    }
    let env = Env::new();
    let Some(sshd) = Sshd::start(&env, &format!("command=\"{SFTP}\"")) else { return };
    fs::write(env.path("near/up"), "up").expect("written");
    let mut running = sshd.start_cp(&env, &["--json", "up", "there:"]);
    let warning = running.event("warning", |_| true);
    let text = warning["message"].as_str().expect("text");
    for words in ["netblt on there has not answered for 8 s", "command= in its authorized_keys"] {
        assert!(text.contains(words), "{text}");
    }
    running.signal(Signal::TERM);
    let error = running.finish().exits(20).last_event("error");
    assert_eq!(error["message"], "stopped");
}

#[test]
fn settings_under_which_ssh_runs_no_command_are_overridden() {
    let env = Env::new();
    let Some(sshd) = Sshd::start(&env, "") else { return };
    fs::write(env.path("near/up"), "up").expect("written");
    let place = format!("there:{}", env.path("copy").display());
    for line in ["StdinNull yes", "SessionType none", "ForkAfterAuthentication yes"] {
        sshd.configure(line);
        let _ = fs::remove_file(env.path("copy"));
        sshd.cp(&env, &["up", &place]).exits(0);
        assert!(env.path("copy").exists(), "{line}");
        // The same as an option, which comes before the file.
        let option = line.replace(' ', "=");
        sshd.cp(&env, &["-o", &option, "up", &place]).exits(0);
    }
}

/// A process that is killed with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_persistent_ssh_master_does_not_delay_the_end() {
    // As a master of an older OpenSSH does, it keeps ssh's standard error.
    let stays = "sleep 1000 </dev/null >/dev/null & echo $! > ../master; echo 'ssh speaks' >&2";
    let setting = Setting::with(stays, &program_directory());
    setting.put("near/up", b"up");
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut command = setting.command(&["up", "host:"]);
    command.stderr(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    let child = Killed(command.spawn().expect("started"));
    drop(command);
    ours.set_read_timeout(Some(LIMIT)).expect("set");
    let mut said = String::new();
    // The end comes when nothing holds the other end any more.
    (&ours).read_to_string(&mut said).expect("the end, before the master's");
    assert!(said.contains("ssh speaks") && said.contains("verified"), "{said}");
    drop(child);
    let master = fs::read_to_string(setting.env.path("master")).expect("a number");
    let master = rustix::process::Pid::from_raw(master.trim().parse().expect("a number"));
    rustix::process::kill_process(master.expect("one"), Signal::KILL).expect("it still runs");
}
