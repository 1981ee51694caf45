//! `netblt fleet submit --engine dask` with real parts: a scheduler and four workers of this test's
//! own, where the `python3` that is found first has `dask.distributed`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::testenv::{Env, Running, skip, tree, wait_until};
use rustix::process::{Pid, Signal};

/// Whether `python3` can do this.
fn python(words: &[&str]) -> bool {
    let mut command = Command::new("python3");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn has_dask() -> bool {
    let has = python(&["-c", "import dask.distributed"]);
    if !has {
        skip("python3 has no dask.distributed");
    }
    has
}

/// A scheduler and its workers; they die with it.
struct Cluster {
    daemons: Vec<Child>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

const FILE: &str = "scheduler.json";

impl Cluster {
    /// Its scheduler, by which it is found, is in [`FILE`].
    fn start(env: &Env, workers: usize) -> Self {
        let mut cluster = Self { daemons: Vec::new() };
        let common = ["--no-dashboard", "--scheduler-file", FILE];
        let scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"];
        cluster.daemon(env, &[&scheduler[..], &common].concat());
        wait_until("the scheduler", || env.path(FILE).exists());
        let worker = ["distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny"];
        for _ in 0..workers {
            let own = ["--host", "127.0.0.1", "--local-directory", "workers"];
            cluster.daemon(env, &[&worker[..], &own, &common].concat());
        }
        cluster
    }

    fn daemon(&mut self, env: &Env, words: &[&str]) {
        let mut command = Command::new("python3");
        command.arg("-m").args(words).current_dir(env.path(""));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemons.push(command.spawn().expect("python3"));
    }
}

/// A run of twelve chunks of 1.5 MB, and who takes them.
fn planned(env: &Env) -> Running {
    env.make_directory("src");
    for at in 0..12 {
        env.make_file(&format!("src/f{at}"), 1_500_000 + at);
    }
    env.make_directory("root");
    let serve = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", "0"];
    let mut server = env.start(&[&serve[..], &["--ticket-file", "ticket"]].concat());
    let listening = server.event("listening", |_| true);
    let url = format!("netblt://{}/set", listening["addresses"][0].as_str().expect("an address"));
    let plan = ["fleet", "plan", "src", &url, "-o", "run", "--chunk-bytes", "2MB"];
    env.run(&[&plan[..], &["--ticket-file", "ticket"]].concat()).exits(0);
    server
}

const SUBMIT: [&str; 5] = ["fleet", "submit", "run", "--engine", "dask"];

/// Hands it to Dask as this test finds it.
fn submit(env: &Env, options: &[&str]) -> Running {
    let mut command = env.command(&[&SUBMIT[..], options].concat());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // Nothing answers at an unused port.
    command.env("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "5s");
    Running::new(command)
}

/// Hands it to that cluster.
fn submit_there(env: &Env, options: &[&str]) -> Running {
    submit(env, &[options, &["--", "--scheduler-file", FILE]].concat())
}

/// What tasks at work tell. One that was done just when a newer one claimed its chunk leaves that.
fn at_work(env: &Env) -> Vec<serde_json::Value> {
    let names = env.names("run/running").into_iter().filter(|name| name.ends_with(".json"));
    let texts = names.filter_map(|name| {
        let text = fs::read(env.path("run/running").join(&name)).ok()?;
        (!env.path("run/done").join(&name).exists()).then_some(text)
    });
    texts.filter_map(|text| serde_json::from_slice(&text).ok()).collect()
}

/// Kills a task that has sent something and is not done. It is stopped first, so that it is not
/// done meanwhile.
fn kill_one(env: &Env) -> bool {
    let pid_of =
        |task: &serde_json::Value| Pid::from_raw(i32::try_from(task["pid"].as_i64()?).ok()?);
    let of_one = at_work(env).into_iter().find(|task| task["bytes"].as_u64() > Some(0));
    let Some(pid) = of_one.as_ref().and_then(pid_of) else { return false };
    if rustix::process::kill_process(pid, Signal::STOP).is_err() {
        return false;
    }
    let goes_on = at_work(env).iter().any(|task| pid_of(task) == Some(pid));
    let signal = if goes_on { Signal::KILL } else { Signal::CONT };
    rustix::process::kill_process(pid, signal).is_ok() && goes_on
}

fn done(env: &Env) -> usize {
    env.names("run/done").iter().filter(|name| name.ends_with(".json")).count()
}

fn whole(env: &Env) {
    env.run(&["fleet", "status", "run"]).exits(0);
    assert_eq!(tree(&env.path("root/set")), tree(&env.path("src")));
    assert_eq!(env.names("root"), ["set"], "what is left");
}

#[test]
fn dask_runs_a_fleet_and_resumes_after_a_killed_task_and_a_killed_worker() {
    if !has_dask() {
        return;
    }
    let env = Env::new();
    let _server = planned(&env);
    let mut cluster = Cluster::start(&env, 4);
    let mut submitted = submit_there(&env, &["--pairs", "4", "--wan", "24Mbit", "--json"]);
    wait_until("a task at work", || kill_one(&env));
    // A worker that is killed before it said so takes the word with it.
    let again = "signal: 9; it is started again";
    submitted.event("note", |note| note["message"].as_str().is_some_and(|m| m.contains(again)));
    wait_until("four tasks at work", || done(&env) >= 2 && at_work(&env).len() == 4);
    let mut worker = cluster.daemons.pop().expect("four of them");
    worker.kill().and_then(|()| worker.wait()).expect("it ran");
    let submitted = submitted.finish().exits(0);
    assert_eq!(submitted.last_event("summary")["done"], submitted.last_event("summary")["chunks"]);
    whole(&env);
    // The killed worker may have been between two tasks.
    let claims = env.names("run/claims");
    let again = claims.iter().filter(|name| name.ends_with(".2")).count();
    assert!((1..=2).contains(&again), "{claims:?}");
    submit(&env, &[]).finish().exits(0);
}

#[test]
fn tasks_of_a_submitter_that_was_killed_count_and_one_that_is_stopped_stops_its_own() {
    if !has_dask() {
        return;
    }
    let env = Env::new();
    let _server = planned(&env);
    let _cluster = Cluster::start(&env, 4);
    let options = ["--pairs", "2", "--wan", "12Mbit"];
    let first = submit_there(&env, &options);
    wait_until("two tasks at work", || at_work(&env).len() == 2);
    first.signal(Signal::KILL);
    // It goes on nevertheless; both together are no more than two at once.
    let second = submit_there(&env, &options);
    wait_until("some chunks", || {
        let tasks = at_work(&env).len();
        assert!(tasks <= 2, "{tasks} at once");
        done(&env) >= 6
    });
    second.signal(Signal::TERM);
    second.finish().exits(20).says("it goes on with what is not done");
    submit_there(&env, &options).finish().exits(0);
    whole(&env);
}

#[test]
fn without_a_scheduler_dask_runs_on_this_machine() {
    if !has_dask() {
        return;
    }
    let env = Env::new();
    let _server = planned(&env);
    let nowhere = submit(&env, &["--", "--scheduler", "tcp://127.0.0.1:1"]);
    nowhere.finish().exits(1).says("no scheduler of Dask's");
    submit(&env, &["--", "--nonsense"]).finish().exits(1).says("--nonsense");
    submit(&env, &["--pairs", "3"]).finish().exits(0);
    whole(&env);
    // What fails for good makes it end with the code for that.
    fs::remove_file(env.path("src/f1")).expect("removed");
    fs::remove_dir_all(env.path("run/done")).expect("removed");
    env.make_directory("run/done");
    submit(&env, &["--pairs", "3"]).finish().exits(23).says("exit status: 24; see ");
}

#[test]
fn a_schedulers_file_that_is_not_there_is_named() {
    if !has_dask() {
        return;
    }
    let env = Env::new();
    let _server = planned(&env);
    let submitted = submit(&env, &["--", "-f", "none.json"]).finish();
    submitted.exits(1).says("none.json does not exist");
}

#[test]
fn missing_requirements_of_dask_are_named() {
    let env = Env::new();
    let _server = planned(&env);
    let none = env.make_directory("bin");
    let with = |path: &Path| {
        let mut command = env.command(&SUBMIT);
        command.env("PATH", path);
        Running::new(command).finish()
    };
    with(&none).exits(11).says("python3: cannot be started");
    if !python(&["-c", ""]) {
        skip("no `python3`");
        return;
    }
    // The same one, but without what was installed for it.
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let found = String::from_utf8(found.expect("it ran").stdout).expect("a path");
    let text = format!("#!/bin/sh\nexec '{}' -I -S \"$@\"\n", found.trim());
    fs::write(none.join("python3"), text).expect("written");
    fs::set_permissions(none.join("python3"), fs::Permissions::from_mode(0o755)).expect("set");
    with(&none).exits(1).says("has no dask.distributed");
}

/// Others may have written into the current directory, and before it was refused into a run's.
#[test]
fn no_module_of_the_run_or_of_the_current_directory_is_imported() {
    if !python(&["-c", ""]) {
        return skip("no `python3`");
    }
    let env = Env::new();
    let _server = planned(&env);
    for directory in ["run", "."] {
        for module in ["argparse", "heapq", "sitecustomize", "usercustomize", "dask"] {
            let module = env.path(&format!("{directory}/{module}.py"));
            fs::write(module, "open('imported', 'w')\n").expect("written");
        }
    }
    for paths in ["", ":run", ".", "run:"] {
        let mut command = env.command(&[&SUBMIT[..], &["--", "-f", "none.json"]].concat());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        if !paths.is_empty() {
            command.env("PYTHONPATH", paths);
        }
        Running::new(command).finish().exits(1);
        assert!(!env.path("imported").exists(), "PYTHONPATH {paths:?}");
    }
}
