//! `netblt cp`: what is copied where, over UDP and through ssh; strange logins, far ends that mean
//! harm, and deaths on every side; and scp's meaning, compared with scp's own.

mod testenv;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use testenv::{Env, Finished, Running, able, installed, noise, skip, wait_until};

/// A stand-in for ssh: runs the command here, in `far`, after whatever `before` prints.
fn fake_ssh(env: &Env, before: &str, path: &str) -> PathBuf {
    let far = env.make_directory("far");
    let far = far.display();
    script(
        env,
        "ssh",
        &format!(
            "for last; do :; done\n\
             case \" $* \" in *' -G '*) echo hostname 127.0.0.1; exit;; esac\n\
             cd '{far}' && export HOME='{far}' PATH=\"{path}:$PATH\"\n\
             export SSH_CONNECTION='127.0.0.1 9 127.0.0.1 22'\n\
             echo $$ > '{pid}'\n\
             {before}\n\
             exec sh -c \"$last\"\n",
            pid = env.path("pid").display(),
        ),
    )
}

fn script(env: &Env, name: &str, text: &str) -> PathBuf {
    let path = env.path(name);
    fs::write(&path, format!("#!/bin/sh\n{text}")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    path
}

fn program_directory() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_netblt"));
    program.parent().expect("a directory").display().to_string()
}

/// Where files are, and the ssh that leads there.
struct Setting {
    env: Env,
    ssh: PathBuf,
}

impl Setting {
    fn new() -> Self {
        Self::with("", &program_directory())
    }

    fn with(before: &str, path: &str) -> Self {
        let env = Env::new();
        let ssh = fake_ssh(&env, before, path);
        env.make_directory("near");
        Self { env, ssh }
    }

    fn command(&self, args: &[&str]) -> Command {
        let ssh = self.ssh.to_str().expect("text");
        let all: Vec<&str> = ["cp", "-S", ssh].iter().chain(args).copied().collect();
        let mut command = self.env.command(&all);
        command.current_dir(self.env.path("near"));
        command
    }

    fn cp(&self, args: &[&str]) -> Finished {
        self.start(args).finish()
    }

    fn start(&self, args: &[&str]) -> Running {
        Running::new(self.command(args))
    }

    fn put(&self, name: &str, content: &[u8]) {
        let path = self.env.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, content).expect("written");
    }

    fn tree(&self, name: &str) -> BTreeMap<String, Option<Vec<u8>>> {
        tree(&self.env.path(name))
    }

    fn far_pid(&self) -> i32 {
        let text = fs::read_to_string(self.env.path("pid")).expect("a number");
        text.trim().parse().expect("a number")
    }
}

/// Everything beneath a directory: files with their content.
fn tree(root: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(&directory).expect("listed") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root).expect("beneath").display().to_string();
            if path.is_dir() {
                todo.push(path);
                found.insert(name, None);
            } else {
                found.insert(name, Some(fs::read(&path).expect("read")));
            }
        }
    }
    found
}

fn names(tree: &BTreeMap<String, Option<Vec<u8>>>) -> Vec<&str> {
    tree.keys().map(String::as_str).collect()
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // What has ended and was not waited for is gone, too.
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn files_and_trees_go_both_ways_over_udp_and_through_ssh() {
    for fallback in ["never", "always"] {
        let setting = Setting::new();
        let big = noise(3_000_000);
        setting.put("near/big", &big);
        setting.put("near/t/deep/er/x", b"x");
        fs::create_dir(setting.env.path("near/t/empty")).expect("made");
        let way = ["--fallback", fallback, "--json"];
        let cp = |args: &[&str]| setting.cp(&[&way[..], args].concat()).exits(0);
        let sent = cp(&["-r", "big", "t", "host:"]);
        let expected = if fallback == "always" { "ssh" } else { "udp" };
        let way = format!("{{\"way\":\"{expected}\"");
        let text = sent.text();
        assert!(text.contains(&way), "{text}");
        let summary = testenv::last_event(&text, "summary");
        assert_eq!((&summary["verified"], &summary["files"]), (&true.into(), &2.into()));
        assert_eq!(setting.tree("far"), setting.tree("near"));
        cp(&["host:big", "copy"]);
        assert_eq!(fs::read(setting.env.path("near/copy")).expect("read"), big);
        cp(&["-r", "host:t", "u"]);
        assert_eq!(setting.tree("near/u"), setting.tree("near/t"));
    }
}

#[test]
fn names_and_places_mean_what_they_mean_to_scp() {
    let setting = Setting::new();
    setting.put("near/a", b"new");
    setting.put("near/b", b"b");
    setting.put("far/a", b"old");
    setting.put("far/d/x", b"x");
    setting.put("far/d/.hidden", b"h");
    setting.put("far/one.txt", b"1");
    setting.put("far/two.txt", b"2");
    setting.cp(&["a", "host:"]).exits(0);
    setting.cp(&["a", "host:~/c"]).exits(0);
    setting.cp(&["a", "b", "host:d/"]).exits(0);
    let far = setting.tree("far");
    for name in ["a", "c", "d/a"] {
        assert_eq!(far[name], Some(b"new".to_vec()), "{name}");
    }
    setting.cp(&["host:*.txt", "."]).exits(0);
    setting.cp(&["-r", "host:d/.", "new"]).exits(0);
    setting.cp(&["-r", "host:d", "new"]).exits(0);
    let near = setting.tree("near");
    let expected = ["new", "new/.hidden", "new/a", "new/b", "new/d", "new/d/.hidden"];
    let found: Vec<_> = names(&near).into_iter().filter(|name| name.starts_with("new")).collect();
    assert_eq!(found[..6], expected);
    assert!(near.contains_key("one.txt") && near.contains_key("two.txt"));
    let local = setting.env.path("near/copy");
    setting.cp(&["scp://host/one.txt", local.to_str().expect("text")]).exits(0);
    assert_eq!(fs::read(local).expect("read"), b"1");
}

#[test]
fn what_cannot_be_is_said_and_nothing_is_made() {
    let setting = Setting::new();
    setting.put("near/a", b"a");
    setting.put("near/b", b"b");
    setting.put("far/file", b"f");
    setting.put("far/d/x", b"x");
    let before = (setting.tree("near"), setting.tree("far"));
    for (args, code, says) in [
        (&["a", "b", "host:file"][..], 11, "host: file: is not a directory"),
        (&["a", "host:none/x"], 11, "host: none: no such directory"),
        (&["a", "host:none/"], 11, "no such directory"),
        (&["missing", "host:"], 23, "there is nothing to copy"),
        (&["host:missing", "."], 23, "skipped missing: No such file"),
        (&["host:none*", "."], 23, "none*: nothing matches"),
        (&["host:d", "."], 23, "-r copies directories"),
        (&["host:file", "none/x"], 11, "none: no such directory"),
        (&["host:~nobody/x", "."], 11, "other users' homes"),
        (&["a", "b"], 1, "both sides are on this machine"),
        (&["a:x", "b:y"], 1, "both sides are on other machines"),
        (&["a:x", "b:y", "."], 1, "on several machines"),
        (&["a", "b:y", "."], 1, "here and on another machine"),
        (&["a", "-oProxyCommand=x:y"], 35, ""),
        (&["a", "ho st:"], 1, "characters that none has"),
        (&["a", "host:", "--udp-port", "9-8"], 1, "lower end first"),
        (&["a", "host:", "--exclude", "a**"], 1, "is no pattern"),
        (&["a", "host:", "--remote-netblt", "x'y"], 1, "quotes"),
        (&["a", "host:", "--remote-netblt", "/none/netblt"], 5, "(/none/netblt on "),
    ] {
        if says.is_empty() {
            continue;
        }
        setting.cp(args).exits(code).says(says);
    }
    assert_eq!(before, (setting.tree("near"), setting.tree("far")));
}

#[test]
fn what_is_left_out_is_named_and_the_rest_arrives() {
    let setting = Setting::new();
    setting.put("near/t/a.c", b"c");
    setting.put("near/t/a.o", b"o");
    setting.put("near/t/.git/x", b"x");
    setting.put("near/b", b"b");
    let some = setting.cp(&["b", "t", "missing", "host:"]).exits(23);
    let some = some.says("skipped t: not a regular file").says("skipped missing: No such file");
    some.says("(2 left out)");
    assert_eq!(names(&setting.tree("far")), ["b"]);
    setting.cp(&["-r", "--exclude", "*.o", "--exclude", ".git/", "t", "host:"]).exits(0);
    assert_eq!(names(&setting.tree("far")), ["b", "t", "t/a.c"]);
    setting.put("far/t/deep/y.o", b"y");
    setting.cp(&["-r", "--exclude", "*.o", "host:t", "host:none", "."]).exits(23);
    let near = setting.tree("near");
    assert!(near.contains_key("t/deep") && !near.contains_key("t/deep/y.o"));
    let listed = setting.cp(&["-n", "-r", "host:t", "."]).exits(0).text();
    assert_eq!(listed, "t/\nt/a.c\t1\nt/deep/\nt/deep/y.o\t1\n");
    let listed = setting.cp(&["-n", "b", "host:"]).exits(0).text();
    assert_eq!(listed, "b\t1\n");
}

#[test]
fn what_logins_print_does_no_harm() {
    let before = "echo Welcome; printf 'no newline'; echo warning >&2; head -c 100000 /dev/zero";
    let setting = Setting::with(before, &program_directory());
    setting.put("near/a", b"a");
    setting.cp(&["a", "host:"]).exits(0);
    assert_eq!(names(&setting.tree("far")), ["a"]);
}

#[test]
fn a_far_end_that_is_not_there_is_explained() {
    let setting = Setting::with("", "/none");
    setting.put("near/a", b"a");
    let missing = setting.command(&["a", "host:"]).env("PATH", "/usr/bin:/bin").spawn();
    let missing = missing.expect("started").wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(said.contains("netblt was not found on host (netblt on "), "{said}");
    assert_eq!(missing.status.code(), Some(5));
    for (script_text, code, says) in [
        ("exit 255", 35, "ssh could not connect to host"),
        ("echo 'This account is closed.'; exit 1", 5, "which said: This account is closed."),
        ("cat >/dev/null", 5, "does not answer"),
    ] {
        let ssh = script(&setting.env, "other", &format!("{script_text}\n"));
        let mut command = setting.env.command(&["cp", "-S", ssh.to_str().expect("text")]);
        command.args(["a", "host:"]).current_dir(setting.env.path("near"));
        if script_text.starts_with("cat") {
            // It waits as long as ssh does: for a password, perhaps.
            let running = Running::new(command);
            thread::sleep(Duration::from_millis(300));
            running.signal(rustix::process::Signal::INT);
            running.finish().exits(20);
        } else {
            Running::new(command).finish().exits(code).says(says);
        }
    }
}

/// A far end that says what it is told to, whatever it hears.
fn puppet(env: &Env, words: &[&str]) -> PathBuf {
    let mut bytes = b"\nnetblt far end\n".to_vec();
    for word in words {
        bytes.push(1);
        bytes.extend_from_slice(&u32::try_from(word.len()).expect("short").to_be_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    let said = env.path("said");
    fs::write(&said, bytes).expect("written");
    script(env, "puppet", &format!("cat '{}'; exec cat >/dev/null\n", said.display()))
}

#[test]
fn a_far_end_cannot_send_what_nobody_asked_for() {
    let setting = Setting::new();
    let hello = hello();
    let name = |name: &str| {
        let bytes: Vec<String> = name.bytes().map(|byte| byte.to_string()).collect();
        format!("{{\"Unix\":[{}]}}", bytes.join(","))
    };
    let ready = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|text| name(text)).collect();
        let names = names.join(",");
        format!(
            "{{\"Ready\":{{\"addresses\":[],\"port\":0,\"plan\":{{\"Send\":{{\"names\":[{names}]}}\
             }}}}}}"
        )
    };
    for (source, offered) in [
        ("host:a.txt", &["a.txt", ".bashrc"][..]),
        ("host:*.txt", &["a.txt.sh"]),
        ("host:d", &["e"]),
    ] {
        let ssh = puppet(&setting.env, &[&hello, &ready(offered)]);
        let args = ["cp", "-r", "-S", ssh.to_str().expect("text"), source, "."];
        let mut command = setting.env.command(&args);
        command.current_dir(setting.env.path("near"));
        Running::new(command).finish().exits(2).says("which nobody asked for");
        assert!(setting.tree("near").is_empty());
    }
    let other = hello.replace("\"words\":1", "\"words\":77");
    let odd = "{\"Hello\":7}";
    let escape = "{\"Done\":{\"code\":11,\"message\":\"\\u001b[2Jgone\",\"echo\":false,\
                  \"skipped\":0}}";
    for (words, code, says) in [
        (&[&other[..]][..], 5, "do not understand each other; install the same"),
        (&[odd], 12, "brought an unknown word"),
        (&[&hello, "\"Listening\""], 2, "makes no sense"),
        (&[&hello, escape], 11, "host: \\u{1b}[2Jgone"),
    ] {
        let ssh = puppet(&setting.env, words);
        let args = ["cp", "-S", ssh.to_str().expect("text"), "host:a", "."];
        let mut command = setting.env.command(&args);
        command.current_dir(setting.env.path("near"));
        Running::new(command).finish().exits(code).says(says);
    }
}

/// What this program's own far end says first.
fn hello() -> String {
    let env = Env::new();
    let said = env.run_with_input(&["far-end"], Vec::new()).stdout;
    let after = "\nnetblt far end\n".len() + 5;
    let text = String::from_utf8_lossy(&said[after..]).into_owned();
    let end = text.find("}}").expect("a word") + 2;
    text[..end].to_owned()
}

#[test]
fn whoever_dies_nothing_is_left() {
    use rustix::process::{Pid, Signal, kill_process};
    for (victim, code) in [("near", None), ("far", Some(12)), ("interrupt", Some(20))] {
        let setting = Setting::new();
        setting.put("near/big", &noise(2_000_000));
        let running = setting.start(&["--json", "-l", "1000", "big", "host:"]);
        let mut running = running;
        running.event("progress", |data| data["bytes"].as_u64().is_some_and(|n| n > 0));
        let far = setting.far_pid();
        assert!(is_alive(far));
        match victim {
            "near" => running.signal(Signal::KILL),
            "interrupt" => running.signal(Signal::INT),
            _ => kill_process(Pid::from_raw(far).expect("a process"), Signal::KILL).expect("sent"),
        }
        let finished = running.finish();
        if let Some(code) = code {
            finished.exits(code);
        }
        wait_until("the far end is gone", || !is_alive(far));
        // What the far end itself could not remove, the next one does.
        let left = names(&setting.tree("far")).len();
        assert!(left == 0 || victim == "far", "{victim}: {:?}", setting.tree("far").keys());
        setting.cp(&["big", "host:"]).exits(0);
        assert_eq!(names(&setting.tree("far")), ["big"], "{victim}");
    }
}

#[test]
fn without_a_way_for_udp_the_data_go_through_ssh() {
    if !able(&["unshare"], &[]) {
        return;
    }
    // A far end in a network of its own, of which nothing leads here.
    let env = Env::new();
    let far = env.make_directory("far");
    env.make_directory("near");
    let ssh = script(
        &env,
        "ssh",
        &format!(
            "for last; do :; done\n\
             case \" $* \" in *' -G '*) echo hostname 127.0.0.1; exit;; esac\n\
             cd '{far}' && export HOME='{far}' PATH=\"{path}:$PATH\"\n\
             exec unshare -n sh -c \"ip link set lo up; $last\"\n",
            far = far.display(),
            path = program_directory(),
        ),
    );
    let setting = Setting { env, ssh };
    let data = noise(1_000_000);
    setting.put("near/a", &data);
    setting.cp(&["a", "host:"]).exits(0).says("the data go through ssh");
    setting.cp(&["host:a", "b"]).exits(0).says("UDP does not pass");
    assert_eq!(fs::read(setting.env.path("near/b")).expect("read"), data);
    setting.cp(&["--fallback", "never", "a", "host:c"]).exits(35).says("--fallback never forbids");
    assert_eq!(names(&setting.tree("far")), ["a"]);
}

/// An sshd of our own on loopback, for this user alone.
struct Sshd {
    child: Child,
    config: PathBuf,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sshd {
    /// None, with a counted message, where there is no sshd or it cannot run.
    fn start(env: &Env) -> Option<Self> {
        if !["sshd", "ssh", "scp", "ssh-keygen"].iter().all(|program| installed(program)) {
            skip("needs sshd, ssh and scp");
            return None;
        }
        if rustix::process::geteuid().is_root() && !Path::new("/run/sshd").exists() {
            skip("no /run/sshd");
            return None;
        }
        for name in ["host_key", "key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(env.path(name))
                .status();
            assert!(made.expect("it runs").success());
        }
        fs::copy(env.path("key.pub"), env.path("authorized")).expect("copied");
        let port = free_port();
        let at = |name: &str| env.path(name).display().to_string();
        fs::write(
            env.path("sshd_config"),
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
                 StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n\
                 Subsystem sftp internal-sftp\n",
                at("host_key"),
                at("authorized")
            ),
        )
        .expect("written");
        fs::write(
            env.path("ssh_config"),
            format!(
                "Host there\nHostName 127.0.0.1\nPort {port}\nIdentityFile {}\n\
                 IdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile {}\n\
                 LogLevel ERROR\nBatchMode yes\n",
                at("key"),
                at("known")
            ),
        )
        .expect("written");
        let child = Command::new("/usr/sbin/sshd")
            .arg("-D")
            .arg("-f")
            .arg(env.path("sshd_config"))
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let sshd = Self { child, config: env.path("ssh_config") };
        wait_until("sshd answers", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(sshd)
    }

    fn cp(&self, env: &Env, args: &[&str]) -> Finished {
        let config = self.config.to_str().expect("text");
        let program = env!("CARGO_BIN_EXE_netblt");
        let own = ["cp", "-F", config, "--remote-netblt", program];
        let all: Vec<&str> = own.iter().chain(args).copied().collect();
        let mut command = env.command(&all);
        command.current_dir(env.path("near"));
        Running::new(command).finish()
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("bound");
    listener.local_addr().expect("known").port()
}

type Listing = BTreeMap<String, (u32, Option<i64>, Option<Vec<u8>>)>;

/// Names, permissions, times if they are kept, and contents.
fn listing(root: &Path, times: bool) -> Listing {
    let of = |(name, content): (String, Option<Vec<u8>>)| {
        let metadata = fs::metadata(root.join(&name)).expect("examined");
        let time = times.then(|| metadata.mtime());
        (name, (metadata.mode() & 0o7777, time, content))
    };
    tree(root).into_iter().map(of).collect()
}

#[test]
fn it_does_what_scp_does() {
    let env = Env::new();
    let Some(sshd) = Sshd::start(&env) else { return };
    // What to copy, seen from `near` to `far` or back; in `far` there are a directory `d` and a
    // file `old`.
    let cases: &[&[&str]] = &[
        &["a", "FAR/"],
        &["a", "FAR/new"],
        &["a", "FAR/old"],
        &["a", "FAR/d"],
        &["a", "FAR/d/"],
        &["a", "b c", "FAR/d"],
        &["-r", "t", "FAR/"],
        &["-r", "t", "FAR/d"],
        &["-r", "t", "FAR/new"],
        &["-r", "t/", "FAR/d"],
        &["-r", "t/", "FAR/new"],
        &["-r", "t/.", "FAR/d"],
        &["-r", "t/.", "FAR/new"],
        &["-p", "a", "FAR/"],
        &["-r", "-p", "t", "a", "FAR/d"],
    ];
    for up in [true, false] {
        for case in cases {
            let mut results = Vec::new();
            for tool in ["scp", "netblt"] {
                let name = format!("{tool}-{up}");
                let root = env.make_directory(&name);
                fs::remove_dir_all(&root).expect("removed");
                let (from, to) = match up {
                    true => (env.path("near"), root.clone()),
                    false => (root.join("from"), env.path("near")),
                };
                let _ = fs::remove_dir_all(env.path("near"));
                for directory in [&root, &from, &to] {
                    fs::create_dir_all(directory).expect("made");
                }
                make_sources(&from);
                fs::create_dir_all(to.join("d")).expect("made");
                fs::write(to.join("old"), "old").expect("written");
                let place = |text: &str, far: &Path| format!("there:{}/{text}", far.display());
                let args: Vec<String> = case
                    .iter()
                    .map(|arg| match (arg.strip_prefix("FAR/"), up) {
                        (Some(rest), true) => place(rest, &to),
                        (Some(rest), false) => format!("{}/{rest}", to.display()),
                        (None, false) if !arg.starts_with('-') => place(arg, &from),
                        _ => (*arg).to_owned(),
                    })
                    .collect();
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                match tool {
                    "scp" => {
                        let mut scp = Command::new("scp");
                        scp.arg("-q").arg("-F").arg(&sshd.config).args(&args);
                        let status = scp.current_dir(env.path("near")).status();
                        assert!(status.expect("it runs").success(), "scp {args:?}");
                    }
                    _ => drop(sshd.cp(&env, &args).exits(0)),
                }
                let kept = case.contains(&"-p");
                let mut found = listing(&to, kept);
                // Theirs is the time at which it was made.
                if let Some(entry) = found.get_mut("d") {
                    entry.1 = None;
                }
                if let Some(entry) = found.get_mut("old") {
                    entry.1 = None;
                }
                results.push(found);
            }
            assert_eq!(results[0], results[1], "{case:?}, up: {up}");
        }
    }
}

fn make_sources(root: &Path) {
    let files = [("a", 0o640), ("b c", 0o755), ("t/x", 0o600), ("t/deep/.y", 0o644)];
    for (name, mode) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, name).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        let file = fs::File::options().write(true).open(&path).expect("opened");
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).expect("set");
    }
    fs::create_dir_all(root.join("t/empty")).expect("made");
    for directory in ["t/empty", "t/deep", "t"] {
        let file = fs::File::open(root.join(directory)).expect("opened");
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_100_000_000)).expect("set");
    }
}
