//! `netblt fleet`, as programs: two servers of one directory, this machine as the engine, and what
//! becomes of a run when servers, tasks and the submitter are killed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::testenv::{Env, Finished, LIMIT, Running, tree};
use rustix::process::Signal;
use serde_json::Value;

const MIB: usize = 1 << 20;

/// A server of `root` at this port, or at one of its own choice, and at which it is.
fn server(env: &Env, port: u16) -> (Running, u16) {
    fs::create_dir_all(env.path("root")).expect("a directory");
    let text = port.to_string();
    let serve = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", &text];
    let options = ["--ticket-file", "ticket", "--death-timer", "20s"];
    let mut server = env.start(&[&serve[..], &options].concat());
    let listening = server.event("listening", |_| true);
    let address = listening["addresses"][0].as_str().expect("an address").to_owned();
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    (server, port)
}

fn fleet(env: &Env, args: &[&str]) -> Finished {
    env.run(&[&["fleet"], args].concat())
}

fn plan(env: &Env, ports: &[u16], options: &[&str]) -> Finished {
    let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let url = format!("netblt://{}/deep/er/set", hosts.join(","));
    let fixed = ["plan", "src", &url, "-o", "run", "--ticket-file", "ticket"];
    fleet(env, &[&fixed[..], options].concat())
}

fn status(env: &Env, code: i32) -> Value {
    fleet(env, &["status", "run", "--json"]).exits(code).last_event("summary")
}

/// Nothing of transfers that are over is left where they went.
fn no_parts(env: &Env) {
    let names = env.names("root/deep/er");
    assert_eq!(names, ["set"], "what is left");
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < until, "{what} does not come");
        thread::sleep(Duration::from_millis(10));
    }
}

fn modified(path: &Path) -> i64 {
    fs::symlink_metadata(path).expect("it is there").mtime()
}

/// A small tree with all that is to survive.
fn small(env: &Env) {
    env.make_directory("src/a/b");
    env.make_directory("src/empty");
    for at in 0..40 {
        env.make_file(&format!("src/a/f{at}"), 100 + at);
    }
    env.make_file("src/a/b/big", 3 * MIB);
    env.make_file("src/with\nline", 10);
    std::os::unix::fs::symlink("f1", env.path("src/a/link")).expect("a link");
    fs::set_permissions(env.path("src/a/b"), fs::Permissions::from_mode(0o555)).expect("set");
    for name in ["src/a/b", "src/a", "src/empty", "src"] {
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let directory = fs::File::open(env.path(name)).expect("opened");
        directory.set_modified(time).expect("set");
    }
}

#[test]
fn a_tree_goes_over_in_chunks() {
    let env = Env::new();
    small(&env);
    let (_one, first) = server(&env, 0);
    let (_two, second) = server(&env, 0);
    let cut = ["--chunk-bytes", "1MiB", "--chunk-files", "10", "--json"];
    let planned = plan(&env, &[first, second], &cut).exits(0).last_event("summary");
    let chunks = planned["chunks"].as_u64().expect("a number");
    // One file of them is three ranges.
    assert!((8..11).contains(&chunks), "{planned}");
    assert_eq!((&planned["files"], &planned["directories"]), (&43.into(), &4.into()));
    plan(&env, &[first], &[]).exits(1).says("not empty");

    // A person does one, and again: it stays as it is.
    assert_eq!(status(&env, 23)["waiting"], chunks);
    fleet(&env, &["run-chunk", "run", "1"]).exits(0).says("verified");
    let record = env.path("run/done/000001.json");
    let before = fs::read(&record).expect("a record");
    fleet(&env, &["run-chunk", "run", "1"]).exits(0).says("done already");
    fleet(&env, &["run-chunk", "run", "999"]).exits(1).says("there is no chunk 999");
    fleet(&env, &["verify", "run"]).exits(23);
    fleet(&env, &["manifest", "run"]).exits(23);

    let submit = ["submit", "run", "--engine", "local", "--pairs", "3", "--wan", "1Gbit"];
    let submitted = fleet(&env, &[&submit[..], &["--requeues", "3", "--json"]].concat()).exits(0);
    assert_eq!(submitted.last_event("summary")["done"], chunks);
    assert_eq!(fs::read(&record).expect("a record"), before);
    assert_eq!(status(&env, 0)["done_bytes"], planned["bytes"]);
    fleet(&env, &["status", "run", "--watch"]).exits(0);
    let verified = fleet(&env, &["verify", "run", "--json"]).exits(0).last_event("summary");
    assert_eq!((&verified["checked"], &verified["different"]), (&47.into(), &0.into()));
    fleet(&env, &["manifest", "run", "--json"]).exits(0);

    let hosts = [first, second].map(|port| format!("127.0.0.1:{port}"));
    for chunk in 0..chunks {
        let done = fs::read(env.path(&format!("run/done/{chunk:06}.json"))).expect("a record");
        let done: Value = serde_json::from_slice(&done).expect("JSON");
        assert!(hosts.iter().any(|host| done["host"] == **host), "{done}");
    }
    assert_eq!(tree(&env.path("root/deep/er/set")), tree(&env.path("src")));
    no_parts(&env);
    for name in ["a/b", "a", "empty", ""] {
        let there = env.path("root/deep/er/set").join(name);
        assert_eq!(modified(&there), 1_000_000_000, "{name}");
    }
    let mode = fs::metadata(env.path("root/deep/er/set/a/b")).expect("there").mode();
    assert_eq!(mode & 0o777, 0o555);

    // The list has every file once, with its digest.
    let list = fs::read_to_string(env.path("run/manifest.b3")).expect("the list");
    let mut lines: Vec<&str> = list.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 42, "{list}");
    let digest = blake3::hash(&fs::read(env.path("src/a/b/big")).expect("read")).to_hex();
    assert!(lines.contains(&&format!("{digest}  set/a/b/big")[..]), "{list}");

    // What changes there later is found.
    fs::write(env.path("root/deep/er/set/a/f1"), "changed").expect("written");
    fs::remove_file(env.path("root/deep/er/set/a/f2")).expect("removed");
    let differs = fleet(&env, &["verify", "run"]).exits(23).text();
    assert!(differs.contains("deep/er/set/a/f1: has another length there"), "{differs}");
    assert!(differs.contains("deep/er/set/a/f2: is not there"), "{differs}");
}

/// What others write into a run would be sent, or started, as this user.
#[test]
fn a_run_that_others_can_write_is_refused() {
    let env = Env::new();
    env.make_directory("src");
    env.make_file("src/f", 10);
    let (_server, port) = server(&env, 0);
    let set = |name: &str, mode| {
        let set = fs::set_permissions(env.path(name), fs::Permissions::from_mode(mode));
        set.expect("set");
    };
    env.make_directory("run");
    set("run", 0o777);
    plan(&env, &[port], &[]).exits(11).says("can be written by others (mode 0777)");
    fs::remove_dir(env.path("run")).expect("nothing is in it");

    // Under any umask the run that is made is its owner's alone to write.
    let url = format!("netblt://127.0.0.1:{port}/set");
    let program = env!("CARGO_BIN_EXE_netblt");
    let words = ["fleet", "plan", "src", &url, "-o", "run", "--ticket-file", "ticket"];
    let wide = format!("umask 0; exec '{program}' \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &wide, "sh"]).args(words).current_dir(env.path(""));
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::new(shell).finish().exits(0);
    for name in ["run", "run/chunks", "run/claims", "run/index", "run/run.json"] {
        let mode = fs::metadata(env.path(name)).expect("it is there").mode();
        assert_eq!(mode & 0o022, 0, "{name}: {mode:o}");
    }

    for name in ["run", "run/claims", "run/chunks"] {
        set(name, 0o775);
        for words in [
            &["submit", "run", "--engine", "local"][..],
            &["submit", "run", "--engine", "slurm"],
            &["submit", "run", "--engine", "dask"],
            &["run-chunk", "run", "0"],
            &["status", "run"],
        ] {
            fleet(&env, words).exits(11).says("can be written by others (mode 0775)");
        }
        set(name, 0o755);
    }
    fleet(&env, &["run-chunk", "run", "0"]).exits(0);
}

#[test]
fn a_permanent_failure_of_a_chunk_is_reported() {
    let env = Env::new();
    env.make_directory("src");
    for at in 0..6 {
        env.make_file(&format!("src/f{at}"), 1000);
    }
    let (_server, port) = server(&env, 0);
    plan(&env, &[port], &["--chunk-files", "2"]).exits(0);
    let list = fs::read(env.path("run/chunks/000001.list")).expect("a list");
    let name = list.split(|byte| *byte == 0).nth(1).expect("an entry").rsplit(|byte| *byte == b' ');
    let name = String::from_utf8(name.into_iter().next().expect("a name").to_vec()).expect("text");
    fs::remove_file(env.path("src").join(&name)).expect("removed");
    fleet(&env, &["submit", "run", "--engine", "local"]).exits(23).says("chunk 1");
    let survey = status(&env, 23);
    assert_eq!((&survey["done"], &survey["lost"]), (&3.into(), &1.into()), "{survey}");
    let shown = fleet(&env, &["status", "run"]).exits(23).text();
    assert!(shown.contains("chunk 1 failed for good: 1 of the files"), "{shown}");
    let failed = fs::read_to_string(env.path("run/failed/000001.json")).expect("a record");
    assert!(failed.contains(&name), "{failed}");
    fleet(&env, &["manifest", "run"]).exits(23);
    let failed = fs::read_to_string(env.path("run/failed.jsonl")).expect("the list");
    let failed: Value = serde_json::from_str(failed.trim()).expect("a line of JSON");
    assert_eq!((&failed["permanent"], &failed["code"]), (&true.into(), &24.into()));
    // It is there again, and so the run ends well.
    env.make_file(&format!("src/{name}"), 1000);
    fleet(&env, &["submit", "run", "--engine", "local"]).exits(0);
    status(&env, 0);
    assert!(!env.path("run/failed/000001.json").exists());
    no_parts(&env);
}

#[test]
fn an_unreachable_server_leaves_a_chunk_to_be_tried_again() {
    let env = Env::new();
    env.make_directory("src");
    env.make_file("src/f", 1000);
    let (server, port) = server(&env, 0);
    plan(&env, &[port], &[]).exits(0);
    server.signal(Signal::KILL);
    drop(server);
    let task = env.start(&["fleet", "run-chunk", "run", "0", "--json"]);
    // It tries for longer than anybody waits here.
    wait_for("a claim", || env.path("run/running/000000.json").exists());
    task.signal(Signal::TERM);
    task.finish().exits(20);
    assert!(!env.path("run/running/000000.json").exists());
    let cleaned = env.start(&["fleet", "clean", "run"]);
    cleaned.finish().exits_with_one_of(&[5, 30, 35]);
    let (_server, _) = self::server(&env, port);
    fleet(&env, &["run-chunk", "run", "0"]).exits(0);
    let cleaned = fleet(&env, &["clean", "run", "--json"]).exits(0).last_event("summary");
    assert_eq!(cleaned["removed"], 0);
    assert!(env.path("run/done/000000.json").exists() && env.names("run/claims").is_empty());
}

/// The records of what is done, by their names.
fn done(env: &Env) -> BTreeMap<String, Vec<u8>> {
    let names = env.names("run/done").into_iter().filter(|name| name.ends_with(".json"));
    let read = |name: String| {
        let record = fs::read(env.path("run/done").join(&name)).expect("a record");
        (name, record)
    };
    names.map(read).collect()
}

/// A task at work on a server, and its process.
fn at_work(env: &Env) -> Option<i32> {
    env.names("run/running").iter().find_map(|name| {
        let text = fs::read(env.path("run/running").join(name)).ok()?;
        let running: Value = serde_json::from_slice(&text).ok()?;
        running["host"].as_str()?;
        i32::try_from(running["pid"].as_i64()?).ok()
    })
}

#[test]
fn a_run_goes_on_after_a_kill_of_any_process() {
    let env = Env::new();
    env.make_directory("src/more");
    for at in 0..10 {
        env.make_file(&format!("src/big{at}"), 2 * MIB + at);
    }
    for at in 0..100 {
        env.make_file(&format!("src/more/f{at}"), 20_000 + at);
    }
    let (one, first) = server(&env, 0);
    let (two, second) = server(&env, 0);
    let cut = ["--chunk-bytes", "1MiB", "--chunk-files", "10", "--json"];
    let planned = plan(&env, &[first, second], &cut).exits(0).last_event("summary");
    let chunks = planned["chunks"].as_u64().expect("a number");
    // The first of the large files is two ranges, the others are three.
    assert!((39..43).contains(&chunks), "{planned}");
    let submit = ["fleet", "submit", "run", "--engine", "local", "--pairs", "4", "--wan", "50Mbit"];

    let submitter = env.start(&submit);
    wait_for("a first chunk", || done(&env).len() > 1);
    one.signal(Signal::KILL);
    drop(one);
    let (_one, _) = server(&env, first);
    wait_for("more of it", || done(&env).len() > 3);
    wait_for("a task", || at_work(&env).is_some());
    let task = at_work(&env).and_then(rustix::process::Pid::from_raw).expect("a process");
    // It may be over by now.
    let _ = rustix::process::kill_process(task, Signal::KILL);
    two.signal(Signal::KILL);
    drop(two);
    let (_two, _) = server(&env, second);
    submitter.signal(Signal::KILL);
    // The last range of a file counts when the file was made, which may be under way.
    let mut before = done(&env);
    before.retain(|name, _| env.path(&format!("run/sums/{}", name.replace("json", "b3"))).exists());
    drop(submitter);
    let survey = fleet(&env, &["status", "run", "--json"]).exits(23).last_event("summary");
    assert!(survey["done"].as_u64() >= Some(before.len() as u64), "{survey}");

    // Its tasks, some of which are still at work, make room for the new ones.
    env.start(&submit).finish_within(3 * LIMIT).exits(0);
    let after = done(&env);
    assert_eq!(after.len() as u64, chunks);
    for (name, record) in before {
        assert_eq!(after[&name], record, "{name} was done again");
    }
    fleet(&env, &["verify", "run"]).exits(0);
    fleet(&env, &["manifest", "run"]).exits(0);
    assert_eq!(tree(&env.path("root/deep/er/set")), tree(&env.path("src")));
    let list = fs::read_to_string(env.path("run/manifest.b3")).expect("the list");
    assert_eq!(list.lines().count(), 110, "{list}");
    no_parts(&env);
}

/// A bar for each of them, by machine and by server.
fn the_page_has_all_four(env: &Env, address: &str) {
    fleet(env, &["status", "run", "--html", "run.html"]).exits(0);
    let page = fs::read_to_string(env.path("run.html")).expect("a page");
    let bars = |fate: &str| page.matches(&format!("; {fate}</title>")).count();
    assert_eq!((bars("done"), bars("its task was killed"), bars("stopped")), (2, 2, 4), "{page}");
    // The records of the killed task are not lost.
    let killed = page.lines().find(|line| line.contains("its task was killed")).expect("a bar");
    assert!(killed.contains(" task 2, ") && !killed.contains(": 0 bytes at "), "{killed}");
    assert!(page.contains("1 of 1 chunks done") && page.contains("chunk 0, task 4, "), "{page}");
    assert!(page.contains(&format!(" to {address}: 4 attempts, 1 done, ")), "{page}");
    assert!(!page.contains("<script") && !page.contains("src="), "{page}");
}

#[test]
fn a_newer_task_goes_on_from_an_older_one() {
    let env = Env::new();
    env.make_directory("src");
    env.make_file("src/big", 12 * MIB);
    for name in ["server", "mine"] {
        env.run(&["keygen", name, "--comment", name]).exits(0);
    }
    fs::copy(env.path("mine.pub"), env.path("keys")).expect("copied");
    env.make_directory("root");
    let serve = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", "0"];
    let keys = ["--authorized-keys", "keys", "--key", "server", "--audit", "audit"];
    let mut server = env.start(&[&serve[..], &keys].concat());
    let listening = server.event("listening", |_| true);
    let address = listening["addresses"][0].as_str().expect("an address");
    let url = format!("netblt://{address}/deep/er/set");
    let proof = ["-i", "mine", "--known-servers", "known"];
    fleet(&env, &[&["plan", "src", &url, "-o", "run"], &proof[..]].concat()).exits(0);
    let rate = |bits: u64| {
        let text = format!("wan-bits-per-second = {bits}\npairs = 1\n");
        fs::write(env.path("run/rate.toml"), text).expect("written");
    };
    // What the task of this number has through.
    let stored = |attempt: u64| {
        let text = fs::read(env.path("run/running/000000.json")).unwrap_or_default();
        let running: Value = serde_json::from_slice(&text).unwrap_or_default();
        let bytes = running["bytes"].as_u64().filter(|_| running["attempt"] == attempt);
        bytes.unwrap_or(0)
    };
    let run = ["fleet", "run-chunk", "run", "0"];
    rate(8_000_000);
    let first = env.start(&run);
    wait_for("a part", || stored(1) > MIB as u64);
    let labelled = env.names("root/deep/er");
    assert!(labelled[0].starts_with(".netblt-partial-") && labelled.len() == 1, "{labelled:?}");
    // Another task, elsewhere perhaps: the first one stops.
    let second = env.start(&run);
    first.finish().exits(20).says("another task has taken it");
    wait_for("more", || stored(2) > 2 * MIB as u64);
    let busy = fleet(&env, &["clean", "run"]).exits(1);
    assert!(busy.stderr.contains("at work"), "{}", busy.stderr);
    second.signal(Signal::KILL);
    drop(second);
    // It is stopped before its time is over, and its rate is changed while it runs.
    let third = env.start(&run);
    let kept = MIB as u64 * 2;
    wait_for("what is there", || stored(3) > kept);
    third.signal(Signal::TERM);
    third.finish().exits(20).says("partial files are kept");
    let fourth = env.start(&[&run[..], &["--json"]].concat());
    wait_for("what is there", || stored(4) > kept);
    rate(4_000_000_000);
    let done = fourth.finish().exits(0).last_event("summary");
    assert_eq!((&done["attempt"], &done["bytes"]), (&4.into(), &(12 * MIB).into()));
    assert!(done["kept"].as_u64() > Some(kept), "{done}");
    assert_eq!(tree(&env.path("root/deep/er/set")), tree(&env.path("src")));
    no_parts(&env);

    the_page_has_all_four(&env, address);
    // What a run that is given up has left goes.
    fs::remove_file(env.path("run/done/000000.json")).expect("removed");
    fs::remove_dir_all(env.path("root/deep/er/set")).expect("removed");
    rate(8_000_000);
    let fifth = env.start(&run);
    wait_for("a part", || stored(5) > MIB as u64);
    fifth.signal(Signal::TERM);
    fifth.finish().exits(20);
    assert_eq!(env.names("root/deep/er").len(), 1);
    let look = || env.run(&["clean", "root/deep/er", "-n"]);
    wait_for("the server's leave", || look().code == Some(0));
    let left = look().exits(0).text();
    assert!(left.contains("set/big"), "{left}");
    let cleaned = fleet(&env, &["clean", "run", "--json"]).exits(0).last_event("summary");
    assert_eq!((cleaned["removed"].as_u64(), env.names("root/deep/er").len()), (Some(1), 0));
}

#[test]
fn a_large_file_goes_over_in_ranges() {
    let env = Env::new();
    env.make_directory("src/d");
    env.make_file("src/d/large", 5 * MIB + 77);
    let (_one, first) = server(&env, 0);
    let (_two, second) = server(&env, 0);
    let cut = ["--chunk-bytes", "2MiB", "--json"];
    let planned = plan(&env, &[first, second], &cut).exits(0).last_event("summary");
    assert_eq!((&planned["chunks"], &planned["files"]), (&4.into(), &1.into()));
    let index = fs::read_to_string(env.path("run/index")).expect("an index");
    let parts: Vec<&str> = index.lines().filter_map(|line| line.split(' ').nth(4)).collect();
    assert_eq!(parts, ["0/3", "1/3", "2/3"]);
    let run = |number: &str| fleet(&env, &["run-chunk", "run", number]);
    let number = |part: &str| {
        let line = index.lines().find(|line| line.ends_with(part)).expect("a range");
        line.split(' ').next().expect("a number").to_owned()
    };
    // The last of it first: nothing is shown, and no task waits.
    run(&number("2/3")).exits(0);
    run(&number("0/3")).exits(0);
    assert!(!env.path("root/deep/er/set/d/large").exists());
    let survey = status(&env, 23);
    assert_eq!((&survey["done"], &survey["waiting"]), (&2.into(), &2.into()), "{survey}");
    fleet(&env, &["manifest", "run"]).exits(23);
    assert_eq!(fs::read_to_string(env.path("run/manifest.b3")).expect("a list"), "");

    // Another state of the file is not mixed with that one.
    let at = fs::metadata(env.path("src/d/large")).and_then(|it| it.modified()).expect("there");
    let touch = |time| {
        let options = fs::File::options().write(true).open(env.path("src/d/large"));
        options.and_then(|file| file.set_modified(time)).expect("set");
    };
    touch(at + Duration::from_secs(5));
    let changed = run(&number("1/3")).exits(24);
    assert!(changed.stderr.contains("plan it again"), "{}", changed.stderr);
    touch(at);

    // What is given up goes, and is sent again.
    let cleaned = fleet(&env, &["clean", "run", "--json"]).exits(0).last_event("summary");
    assert_eq!(cleaned["removed"], 1);
    assert_eq!(status(&env, 23)["done"], 0);
    assert!(env.names("root/deep/er").is_empty());
    for part in ["1/3", "2/3"] {
        run(&number(part)).exits(0);
    }
    // The ranges are there, and the file was not made of them: that is seen, and made good.
    run(&number("0/3")).exits(0);
    assert!(env.path("root/deep/er/set/d/large").exists());
    let sums = env.path(&format!("run/sums/{:0>6}.b3", number("2/3")));
    fs::remove_file(&sums).expect("removed");
    assert_eq!(status(&env, 23)["done"], 3 - 1);
    fleet(&env, &["submit", "run", "--engine", "local", "--pairs", "4"]).exits(0);
    assert_eq!(status(&env, 0)["done"], 4);
    let verified = fleet(&env, &["verify", "run", "--json"]).exits(0).last_event("summary");
    assert_eq!((&verified["checked"], &verified["different"]), (&3.into(), &0.into()));
    fleet(&env, &["manifest", "run"]).exits(0);
    let content = fs::read(env.path("src/d/large")).expect("read");
    let line = format!("{}  set/d/large\n", blake3::hash(&content).to_hex());
    assert_eq!(fs::read_to_string(env.path("run/manifest.b3")).expect("a list"), line);
    assert_eq!(tree(&env.path("root/deep/er/set")), tree(&env.path("src")));
    assert_eq!(modified(&env.path("root/deep/er/set/d/large")), modified(&env.path("src/d/large")));
    no_parts(&env);
}

/// What all of the shares have of what the largest would give to each: 1 if they are alike.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|x| x * x).sum::<f64>());
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn all_tasks_together_keep_to_the_wan_rate_and_share_it_equally() {
    const WAN: f64 = 16e6;
    const PAIRS: usize = 4;
    // What a host that was late for a moment sends, or counts, all at once: seconds of it.
    const LATE: f64 = 1.0;
    let env = Env::new();
    env.make_directory("src");
    for at in 0..3 * PAIRS {
        env.make_file(&format!("src/f{at}"), MIB);
    }
    let (_server, port) = server(&env, 0);
    let to = format!("127.0.0.1:{port}");
    // The path carries much more than they may take, and tells what they send.
    let path = ["--rate", "100Mbit", "--rtt", "20ms", "--stats", "100ms", "--json"];
    let relay = ["emulate", "relay", "--listen", "127.0.0.1:0", "--to", &to];
    let mut relay = env.start(&[&relay[..], &path].concat());
    let listen = relay.event("emulating", |_| true)["listen"].take();
    let listen = listen.as_str().and_then(|at| at.rsplit(':').next()?.parse().ok());
    plan(&env, &[listen.expect("a port")], &["--chunk-files", "1"]).exits(0);
    let submit = ["submit", "run", "--engine", "local", "--pairs", "4", "--wan", "16Mbit"];
    fleet(&env, &submit).exits(0);
    relay.signal(Signal::INT);
    let log = relay.finish().exits(0).text();

    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let samples = lines.filter(|line| line["event"] == "sample");
    let samples: Vec<(f64, f64)> = samples
        .map(|line| {
            let bytes = line["data"]["up"]["entered_bytes"].as_f64().expect("bytes");
            (line["data"]["seconds"].as_f64().expect("a time"), bytes * 8.0)
        })
        .collect();
    let sent = samples.last().expect("samples").1;
    assert!(sent > (3 * PAIRS * MIB * 8) as f64, "{sent} bits have come this way");
    for (at, first) in samples.iter().enumerate() {
        for last in &samples[at..] {
            let most = WAN * (last.0 - first.0 + LATE);
            assert!(last.1 - first.1 <= most, "from {first:?} to {last:?}");
        }
    }

    let mut spans = Vec::new();
    for record in done(&env).values() {
        let record: Value = serde_json::from_slice(record).expect("JSON");
        // The source itself is a chunk of its own.
        if record["bytes"] == MIB {
            let [began, ended] = [&record["began"], &record["ended"]].map(Value::as_f64);
            spans.push((began.expect("a time"), ended.expect("a time")));
        }
    }
    assert_eq!(spans.len(), 3 * PAIRS, "{spans:?}");
    let at_once =
        |(began, _): &(f64, f64)| spans.iter().filter(|it| it.0 <= *began && *began < it.1).count();
    assert_eq!(spans.iter().map(at_once).max(), Some(PAIRS), "{spans:?}");
    let rates: Vec<f64> = spans.iter().map(|(began, ended)| MIB as f64 / (ended - began)).collect();
    assert!(jain(&rates) >= 0.95, "{rates:?}");
    println!("{:.1} Mbit in all, Jain {:.4} of {rates:?}", sent / 1e6, jain(&rates));
}
