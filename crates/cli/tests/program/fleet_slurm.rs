//! `netblt fleet submit --engine slurm` with real parts: munged, slurmctld and two slurmd of this
//! test's own on this machine (Debian's slurm-wlm), where they are installed and this is root.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::testenv::{self, Env, LIMIT, Running, able, tree};
use rustix::process::Signal;

/// A port that was unused a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A cluster of this machine alone; its daemons die with it.
struct Cluster {
    daemons: Vec<(&'static str, Child)>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, daemon) in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

const NODES: [&str; 2] = ["n0", "n1"];

impl Cluster {
    fn start(env: &Env) -> Self {
        let (munge, place) = (env.make_directory("munge"), env.make_directory("slurm"));
        fs::write(munge.join("key"), testenv::noise(1024)).expect("a key");
        fs::set_permissions(munge.join("key"), fs::Permissions::from_mode(0o600)).expect("set");
        for name in ["state", "n0", "n1"] {
            env.make_directory(&format!("slurm/{name}"));
        }
        let (at, host, socket) = (place.display(), host(), munge.join("socket"));
        let [control, ports @ ..] = [(); 3].map(|()| free_port());
        let node = |(name, port)| {
            format!("NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2\n")
        };
        let nodes: String = NODES.into_iter().zip(ports).map(node).collect();
        let text = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={control}\n\
             SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n\
             AuthInfo=socket={}\nStateSaveLocation={at}/state\nSlurmdSpoolDir={at}/%n\n\
             SlurmctldPidFile={at}/control.pid\nSlurmdPidFile={at}/%n.pid\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nMpiDefault=none\n\
             JobAcctGatherType=jobacct_gather/none\n\
             AccountingStorageType=accounting_storage/none\n\
             SchedulerParameters=batch_sched_delay=0,sched_interval=1\nReturnToService=2\n\
             {nodes}PartitionName=dtn Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            socket.display()
        );
        fs::write(place.join("slurm.conf"), text).expect("written");
        let mut cluster = Self { daemons: Vec::new() };
        let option = |name: &str, file: &str| format!("--{name}={}", munge.join(file).display());
        cluster.daemon(
            env,
            "munged",
            &[
                "--foreground".to_owned(),
                "--force".to_owned(),
                option("socket", "socket"),
                option("key-file", "key"),
                option("pid-file", "pid"),
                option("log-file", "log"),
                option("seed-file", "seed"),
            ],
        );
        wait_for("munged", || socket.exists());
        cluster.daemon(env, "slurmctld", &["-D".to_owned()]);
        for name in NODES {
            cluster.daemon(env, "slurmd", &["-D".to_owned(), "-N".to_owned(), name.to_owned()]);
        }
        cluster
    }

    fn daemon(&mut self, env: &Env, name: &'static str, args: &[String]) {
        let mut command = Command::new(format!("/usr/sbin/{name}"));
        command.args(args).env("SLURM_CONF", env.path("slurm/slurm.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemons.push((name, command.spawn().expect(name)));
    }
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < until, "{what} does not come");
        thread::sleep(Duration::from_millis(100));
    }
}

/// What a program of Slurm's says.
fn output_of(env: &Env, words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("SLURM_CONF", env.path("slurm/slurm.conf"));
    let output = command.stdin(Stdio::null()).output().expect(words[0]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A command of `netblt fleet` that finds this cluster.
fn fleet(env: &Env, args: &[&str]) -> Running {
    let mut command = env.command(&[&["fleet"], args].concat());
    command.env("SLURM_CONF", env.path("slurm/slurm.conf"));
    command.env("PATH", "/usr/bin:/bin");
    Running::new(command)
}

/// The run's directory. Slurm would take `%j` and `% ` in names of logs for the job's number.
const RUN: &str = "run%j 5% 100%";

fn in_run(name: &str) -> String {
    format!("{RUN}/{name}")
}

#[test]
fn slurm_runs_a_fleet_and_repeats_a_killed_task() {
    if !able(&["munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "sinfo"], &[]) {
        return;
    }
    let env = Env::new();
    env.make_directory("src");
    for at in 0..6 {
        env.make_file(&format!("src/f{at}"), 3_000_000 + at);
    }
    let _cluster = Cluster::start(&env);
    wait_for("the nodes", || output_of(&env, &["sinfo", "-h", "-o", "%T %D"]).trim() == "idle 2");
    env.make_directory("root");
    let serve = ["serve", "--root", "root", "--json", "--bind", "127.0.0.1", "--port", "0"];
    let mut server = env.start(&[&serve[..], &["--ticket-file", "ticket"]].concat());
    let listening = server.event("listening", |_| true);
    let url = format!("netblt://{}/set", listening["addresses"][0].as_str().expect("an address"));
    let plan = ["plan", "src", &url, "-o", RUN, "--chunk-bytes", "4MB"];
    fleet(&env, &[&plan[..], &["--ticket-file", "ticket"]].concat()).finish().exits(0);
    let submit = ["submit", RUN, "--engine", "slurm", "--pairs", "2", "--wan", "8Mbit"];
    let submit = [&submit[..], &["--", "--partition=dtn"]].concat();
    fleet(&env, &submit).finish().exits(0).says("submitted as");
    // A task dies, and has to come again by what its own script does.
    let mut killed = None;
    wait_for("a task at work", || {
        let name = env.names(&in_run("running")).into_iter().find(|name| name.ends_with(".json"));
        let text = name.and_then(|name| fs::read(env.path(&in_run("running")).join(name)).ok());
        let running: Option<serde_json::Value> =
            text.and_then(|text| serde_json::from_slice(&text).ok());
        let running = running.filter(|running| running["bytes"].as_u64() > Some(0));
        killed = running.as_ref().and_then(|running| running["pid"].as_i64());
        killed.is_some()
    });
    let pid = killed.and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(pid, Signal::KILL).expect("it is at work");
    wait_for("the end", || {
        let jobs = output_of(&env, &["squeue", "-h", "-o", "%A %r"]);
        // Slurm lets a job that is queued again wait for two minutes, which is too long here.
        let late = jobs.lines().filter_map(|job| job.strip_suffix(" BeginTime"));
        for job in late {
            let job = format!("JobId={job}");
            output_of(&env, &["scontrol", "update", &job, "StartTime=now"]);
        }
        jobs.trim().is_empty()
    });
    fleet(&env, &["status", RUN]).finish().exits(0);
    let logs = env.names(&in_run("log"));
    assert!(
        logs.iter().any(|log| log.starts_with("slurm-") && log.ends_with("_0.log")),
        "{logs:?}"
    );
    assert_eq!(tree(&env.path("root/set")), tree(&env.path("src")));
    assert_eq!(env.names("root"), ["set"], "what is left");
    let again = env.names(&in_run("claims")).iter().filter(|name| name.ends_with(".2")).count();
    assert_eq!(again, 1, "{:?}", env.names(&in_run("claims")));
    // All is done: there is nothing to submit.
    fleet(&env, &submit).finish().exits(0).says("every chunk is done");
}
