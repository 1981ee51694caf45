//! `netblt cp` from one other machine to another: the data go straight from the one to the other.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::testenv::far::{program_directory, script};
use crate::testenv::nets::{join, run};
use crate::testenv::sshd::own_home;
use crate::testenv::{Env, Finished, Running, able, noise, skip, text, tree, wait_until};
use rustix::process::Signal;

/// A stand-in for ssh: the command runs here, in the directory that has the host's name.
fn fake_ssh(env: &Env) -> String {
    let ssh = script(
        env,
        "ssh",
        &format!(
            "for word; do host=$last; last=$word; done\n\
             case \" $* \" in *' -G '*) echo hostname 127.0.0.1; exit;; esac\n\
             cd '{here}'/$host && export HOME=$PWD PATH=\"{path}:$PATH\"\n\
             export SSH_CONNECTION='127.0.0.1 9 127.0.0.1 22'\n\
             echo $$ > '{here}'/pid-$host\n\
             exec sh -c \"$last\"\n",
            here = text(&env.path(".")),
            path = program_directory(),
        ),
    );
    ["one", "other"].iter().for_each(|host| drop(env.make_directory(host)));
    text(&ssh)
}

fn cp(env: &Env, ssh: &str, args: &[&str]) -> Finished {
    env.run(&[&["cp", "-S", ssh], args].concat())
}

#[test]
fn files_and_trees_go_from_there_to_there() {
    let env = Env::new();
    let ssh = fake_ssh(&env);
    let cp = |args: &[&str]| cp(&env, &ssh, args);
    let big = env.make_file("one/big", 3_000_000);
    env.make_directory("one/tree/sub");
    env.make_file("one/tree/sub/a", 1000);
    env.make_file("one/tree/b", 2000);

    let copied = cp(&["--json", "one:big", "other:"]).exits(0);
    let summary = copied.last_event("summary");
    assert_eq!((&summary["bytes"], &summary["verified"]), (&3_000_000.into(), &true.into()));
    assert!(copied.text().contains("\"way\":\"udp\""), "{}", copied.text());
    assert_eq!(fs::read(env.path("other/big")).expect("the file"), big);
    cp(&["one:big", "other:new"]).exits(0).says("2.86 MiB");
    assert_eq!(fs::read(env.path("other/new")).expect("the file"), big);
    cp(&["-r", "-p", "one:tree", "other:twin"]).exits(0);
    assert_eq!(tree(&env.path("other/twin")), tree(&env.path("one/tree")));
    cp(&["-r", "one:t*", "one:big", "other:twin"]).exits(0);
    assert_eq!(env.names("other/twin"), ["b", "big", "sub", "tree"]);
    // And from one directory of a machine to another.
    cp(&["one:big", "one:tree/big"]).exits(0);
    assert_eq!(fs::read(env.path("one/tree/big")).expect("the file"), big);

    cp(&["one:none", "other:"]).exits(23).says("one: ");
    cp(&["one:none", "one:big", "other:twin"]).exits(23).says("none");
    cp(&["one:tree", "other:"]).exits(23).says("-r");
    cp(&["one:big", "other:none/x"]).exits(11).says("other: ");
    cp(&["-n", "one:big", "other:"]).exits(1).says("--dry-run");
    cp(&["--fallback", "always", "one:big", "other:"]).exits(1).says("--fallback");
    cp(&["--report", "p.html", "one:big", "other:"]).exits(1).says("--report");
    cp(&["--max-files", "1", "-r", "one:tree", "other:few"]).exits_with_one_of(&[11, 12]);
    assert!(!env.path("other/few/sub/a").exists());
}

fn is_running(env: &Env, host: &str) -> bool {
    let pid = fs::read_to_string(env.path(&format!("pid-{host}"))).expect("a number");
    Path::new("/proc").join(pid.trim()).exists()
}

#[test]
fn no_process_runs_on_when_any_of_the_three_is_killed() {
    for killed in ["one", "other", "caller"] {
        let env = Env::new();
        let ssh = fake_ssh(&env);
        let big = env.make_file("one/big", 20_000_000);
        let args = ["cp", "-S", &ssh, "--json", "--rate", "40Mbit", "one:big", "other:"];
        let mut running = env.start(&args);
        running.event("progress", |data| data["bytes"].as_u64() > Some(2_000_000));
        if killed == "caller" {
            running.signal(Signal::KILL);
        } else {
            let pid = fs::read_to_string(env.path(&format!("pid-{killed}"))).expect("a number");
            let pid = rustix::process::Pid::from_raw(pid.trim().parse().expect("a number"));
            rustix::process::kill_process(pid.expect("one"), Signal::KILL).expect("it runs");
            let ended = running.finish().exits(12);
            assert!(ended.text().contains(killed), "{}", ended.text());
        }
        wait_until("both ends are gone", || {
            !["one", "other"].iter().any(|host| is_running(&env, host))
        });
        assert!(!env.path("other/big").exists());
        // What has arrived is gone on with.
        let again = cp(&env, &ssh, &["--json", "one:big", "other:"]).exits(0);
        assert!(again.last_event("summary")["kept_bytes"].as_u64() > Some(0), "{}", again.text());
        assert_eq!(fs::read(env.path("other/big")).expect("the file"), big);
    }
}

/// A caller and two hosts, each with a link of its own to a router.
struct Net([String; 4]);

/// Tests that have one at the same time have each their own.
static NETS: AtomicU32 = AtomicU32::new(0);

impl Net {
    /// None, with a counted message, where that cannot be made.
    fn new(programs: &[&str], files: &[&str]) -> Option<Self> {
        if !able(programs, files) {
            return None;
        }
        let id = format!("{}-{}", std::process::id(), NETS.fetch_add(1, Ordering::Relaxed));
        let net = Self(["r", "caller", "one", "other"].map(|end| format!("netblt-3-{id}-{end}")));
        let [router, hosts @ ..] = &net.0;
        let ip = |words: String| run("ip", &words);
        let mut made = net.0.iter().all(|name| ip(format!("netns add {name}")));
        for (number, host) in hosts.iter().enumerate() {
            let (wire, subnet) = (format!("w{number}"), number + 1);
            made &= join(router, host, &wire, subnet);
        }
        made &= ip(format!("netns exec {router} sysctl -q -w net.ipv4.ip_forward=1"));
        if !made {
            skip("namespaces with a router between them cannot be made here");
        }
        made.then_some(net)
    }

    /// What has passed the link of one of the three, in both directions.
    fn bytes(&self, number: usize) -> u64 {
        let words = format!("-n {} -j -s link show dev w{number}", self.0[0]);
        let output = Command::new("ip").args(words.split(' ')).output().expect("it runs").stdout;
        let output: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
        let stats = &output[0]["stats64"];
        ["rx", "tx"].map(|way| stats[way]["bytes"].as_u64().expect("a number")).iter().sum()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.0 {
            run("ip", &format!("netns del {name}"));
        }
    }
}

/// One that ends with the test.
struct Sshd(Child);

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sshd(env: &Env, namespace: &str) -> Sshd {
    let child = Command::new("ip")
        .args(["netns", "exec", namespace, "/usr/sbin/sshd", "-D", "-f"])
        .arg(env.path("sshd_config"))
        .stderr(Stdio::null())
        .spawn();
    Sshd(child.expect("started"))
}

fn configure(env: &Env) {
    for name in ["host_key", "key"] {
        let words = format!("-q -t ed25519 -f {}", text(&env.path(name)));
        let mut made = Command::new("ssh-keygen");
        assert!(made.args(words.split(' ')).args(["-N", ""]).status().expect("it runs").success());
    }
    let at = |name: &str| text(&env.path(name));
    let config = format!(
        "Port 2222\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
         PermitRootLogin yes\n{}",
        at("host_key"),
        at("key.pub"),
        own_home(env)
    );
    fs::write(env.path("sshd_config"), config).expect("written");
    let config = format!(
        "Host one\nHostName 198.18.2.2\nHost other\nHostName 198.18.3.2\nHost *\nPort 2222\n\
         User root\nIdentityFile {}\nIdentitiesOnly yes\nStrictHostKeyChecking no\n\
         UserKnownHostsFile {}\nLogLevel ERROR\nBatchMode yes\n",
        at("key"),
        at("known")
    );
    fs::write(env.path("ssh_config"), config).expect("written");
}

#[test]
fn the_callers_link_carries_next_to_nothing() {
    const BYTES: usize = 20_000_000;
    let Some(net) = Net::new(&["ip", "sshd", "ssh", "ssh-keygen"], &["/run/sshd"]) else { return };
    let env = Env::new();
    configure(&env);
    let _hosts = [sshd(&env, &net.0[2]), sshd(&env, &net.0[3])];
    env.make_directory("one");
    env.make_directory("other");
    let big = noise(BYTES);
    fs::write(env.path("one/big"), &big).expect("written");
    let in_caller = |program: &str, args: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &net.0[1], program]).args(args).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
        command.env("TMPDIR", env.make_directory("tmp"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let config = text(&env.path("ssh_config"));
    for host in ["one", "other"] {
        wait_until("sshd answers", || {
            let ended = in_caller("ssh", &["-F", &config, host, "true"]).output();
            ended.expect("it runs").status.success()
        });
    }
    let before: Vec<u64> = (0..3).map(|number| net.bytes(number)).collect();
    let (from, to) = (text(&env.path("one/big")), text(&env.path("other/")));
    let (from, to) = (format!("one:{from}"), format!("other:{to}"));
    let program = env!("CARGO_BIN_EXE_netblt");
    let args = ["cp", "--json", "-F", &config, "--remote-netblt", program, &from, &to];
    let copied = Running::new(in_caller(program, &args)).finish().exits(0);
    assert_eq!(copied.last_event("summary")["verified"], true);
    assert_eq!(fs::read(env.path("other/big")).expect("the file"), big);
    let passed: Vec<u64> = (0..3).map(|number| net.bytes(number) - before[number]).collect();
    println!("bytes on the links of the caller and of the two: {passed:?}");
    assert!(passed[0] < 100_000, "{passed:?}");
    assert!(passed[1] > BYTES as u64 && passed[2] > BYTES as u64, "{passed:?}");

    // Where UDP does not pass between the two, that is said, and nothing goes by way of here.
    let far = [&net.0[2], &net.0[3]];
    for host in far {
        assert!(run("ip", &format!("-n {host} route add blackhole 198.18.0.0/16")));
    }
    let back = "198.18.1.0/24 via 198.18";
    assert!(run("ip", &format!("-n {} route add {back}.2.1", far[0])));
    assert!(run("ip", &format!("-n {} route add {back}.3.1", far[1])));
    let before = net.bytes(0);
    let failed = Running::new(in_caller(program, &args)).finish().exits(35);
    assert!(failed.text().contains("UDP does not pass between one and other"), "{}", failed.text());
    assert!(net.bytes(0) - before < 100_000);
}

#[test]
fn the_callers_link_carries_next_to_nothing_between_two_servers() {
    const BYTES: usize = 20_000_000;
    let Some(net) = Net::new(&["ip"], &[]) else { return };
    let env = Env::new();
    let program = env!("CARGO_BIN_EXE_netblt");
    let within = |number: usize, args: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &net.0[number], program]).args(args).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
        command.env("HOME", env.path(".")).current_dir(env.path("."));
        Running::new({
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        })
    };
    env.run(&["keygen", "me"]).exits(0);
    let me = fs::read_to_string(env.path("me.pub")).expect("the public half");
    let servers = [(2, "one", "third-party "), (3, "other", "")].map(|(number, name, options)| {
        let (key, keys) = (format!("{name}-key"), format!("{name}-keys"));
        env.run(&["keygen", &key]).exits(0);
        fs::write(env.path(&keys), format!("{options}{me}")).expect("written");
        env.make_directory(name);
        let args = ["serve", "--json", "--root", name, "--key", &key, "--authorized-keys", &keys];
        let mut server = within(number, &args);
        server.event("listening", |_| true);
        server
    });
    let big = noise(BYTES);
    fs::write(env.path("one/big"), &big).expect("written");
    let before: Vec<u64> = (0..3).map(|number| net.bytes(number)).collect();
    let (from, to) = ("netblt://198.18.2.2/big", "netblt://198.18.3.2/");
    let args = ["cp", "--json", "-i", "me", "--known-servers", "known", from, to];
    let copied = within(1, &args).finish().exits(0);
    assert_eq!(copied.last_event("summary")["verified"], true);
    assert_eq!(fs::read(env.path("other/big")).expect("the file"), big);
    let passed: Vec<u64> = (0..3).map(|number| net.bytes(number) - before[number]).collect();
    println!("bytes on the links of the caller and of the two servers: {passed:?}");
    assert!(passed[0] < 100_000, "{passed:?}");
    assert!(passed[1] > BYTES as u64 && passed[2] > BYTES as u64, "{passed:?}");
    for server in servers {
        server.signal(Signal::TERM);
        server.finish().exits(0);
    }
}
