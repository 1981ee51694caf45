//! A temporary directory in which the built program runs. Every wait here has a limit.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod busy;
pub(crate) mod far;
pub(crate) mod nets;
pub(crate) mod programs;
pub(crate) mod sshd;
pub(crate) mod tried;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes, on a busy machine too; only a bug gets this far.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// Where a test's files and programs live.
pub(crate) struct Env {
    directory: TempDir,
}

/// Notes that a test, or a part of one, cannot run here: in its output, and in the file that
/// `NETBLT_SKIPPED` names, a line each, which `.ci/run` counts.
pub(crate) fn skip(why: &str) {
    println!("skipped: {why}");
    let Some(file) = std::env::var_os("NETBLT_SKIPPED") else { return };
    let line = format!("{}: {why}\n", thread::current().name().unwrap_or("a test"));
    let file = std::fs::File::options().append(true).create(true).open(file);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the skip is noted");
}

pub(crate) fn installed(program: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .any(|directory| Path::new(directory).join(program).exists())
}

/// Whether this is root with these programs and files; skips and says why if not.
pub(crate) fn able(programs: &[&str], files: &[&str]) -> bool {
    let mut why = Vec::new();
    if !rustix::process::geteuid().is_root() {
        why.push("needs root".to_owned());
    }
    let absent = files.iter().filter(|file| !Path::new(file).exists());
    why.extend(absent.map(|file| format!("no {file}")));
    let missing = programs.iter().filter(|program| !installed(program));
    why.extend(missing.map(|program| format!("no `{program}`")));
    if !why.is_empty() {
        skip(&why.join(", "));
    }
    why.is_empty()
}

/// Whether benchmarks are to run: what depends on this machine's speed, and is no test.
pub(crate) fn accuracy_wanted() -> bool {
    let wanted = std::env::var_os("NETBLT_ACCURACY").is_some_and(|value| value == "1");
    if !wanted {
        println!("a benchmark, which NETBLT_ACCURACY=1 runs");
    }
    wanted
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Finished {
    args: Vec<String>,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Env {
    pub(crate) fn new() -> Self {
        Self { directory: TempDir::new().expect("a temporary directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn make_directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    /// A file of that many bytes, none like its neighbours.
    pub(crate) fn make_file(&self, name: &str, bytes: usize) -> Vec<u8> {
        let data = noise(bytes);
        std::fs::write(self.path(name), &data).expect("a file");
        data
    }

    /// What is in a directory, sorted.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).expect("a directory");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.expect("an entry").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    /// The program that has the command, the first of these words, with nothing of the caller's
    /// environment that matters to it.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let first = args.first().and_then(|word| word.as_ref().to_str()).unwrap_or_default();
        self.command_of(programs::with_command(first), args)
    }

    /// The same of the program with this path.
    pub(crate) fn command_of<A: AsRef<OsStr>>(&self, program: &str, args: &[A]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.directory.path())
            .env_clear()
            .env("TMPDIR", self.make_directory("tmp"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start<A: AsRef<OsStr>>(&self, args: &[A]) -> Running {
        Running::new(self.command(args))
    }

    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: &[A]) -> Finished {
        self.start(args).finish()
    }

    /// Runs the program of this name: both have `man`, `completions` and `--help`.
    pub(crate) fn run_program<A: AsRef<OsStr>>(&self, program: &str, args: &[A]) -> Finished {
        Running::new(self.command_of(programs::named(program), args)).finish()
    }

    /// Runs with these bytes as standard input.
    pub(crate) fn run_with_input<A: AsRef<OsStr>>(&self, args: &[A], input: Vec<u8>) -> Finished {
        self.start_with_input(args, input).finish()
    }

    pub(crate) fn start_with_input<A: AsRef<OsStr>>(&self, args: &[A], input: Vec<u8>) -> Running {
        let mut command = self.command(args);
        command.stdin(Stdio::piped());
        let mut running = Running::new(command);
        let mut stdin = running.child.stdin.take().expect("a pipe");
        // The program may end without reading all of it.
        thread::spawn(move || stdin.write_all(&input));
        running
    }
}

/// A program that runs; it is killed if the test ends before it does.
pub(crate) struct Running {
    child: Child,
    args: Vec<String>,
    lines: Receiver<String>,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
}

impl Running {
    pub(crate) fn new(mut command: Command) -> Self {
        let args = tried::args(&command);
        let mut child = command.spawn().expect("the program starts");
        let (line, lines) = mpsc::channel();
        let (all, stdout) = mpsc::channel();
        // A test may have it go elsewhere.
        let out = child.stdout.take();
        thread::spawn(move || {
            let pipe = out.map_or_else(|| Box::new(std::io::empty()) as _, boxed);
            let mut reader = BufReader::new(pipe);
            let mut bytes = Vec::new();
            let mut start = 0;
            while reader.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&bytes[start..]).trim_end().to_owned();
                start = bytes.len();
                let _ = line.send(text);
            }
            let _ = all.send(bytes);
        });
        let (all, stderr) = mpsc::channel();
        let mut err = child.stderr.take().expect("a pipe");
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = err.read_to_end(&mut bytes);
            let _ = all.send(bytes);
        });
        Self { child, args, lines, stdout, stderr }
    }

    /// The same with a pipe as its standard input, which is given back.
    pub(crate) fn with_input(mut command: Command) -> (Self, ChildStdin) {
        command.stdin(Stdio::piped());
        let mut running = Self::new(command);
        let input = running.child.stdin.take().expect("a pipe");
        (running, input)
    }

    /// Waits until it has ended, with its standard input open.
    pub(crate) fn wait(&mut self) {
        let deadline = Instant::now() + LIMIT;
        while self.child.try_wait().expect("its state").is_none() {
            assert!(Instant::now() < deadline, "the program does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The next line of standard output.
    pub(crate) fn line(&mut self) -> String {
        self.lines.recv_timeout(LIMIT).unwrap_or_else(|error| {
            let ended = self.child.try_wait().expect("its state");
            panic!("no line of standard output, {error}; ended: {ended:?}")
        })
    }

    /// The data of the next JSON event of this name for which `wanted` holds.
    pub(crate) fn event(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            let mut event: Value = serde_json::from_str(&self.line()).expect("JSON");
            if event["event"] == name && wanted(&event["data"]) {
                return event["data"].take();
            }
        }
        panic!("no event {name} in time");
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// `INT`, `TERM` or `KILL`.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("the program runs");
    }

    /// Waits for its end.
    pub(crate) fn finish(self) -> Finished {
        self.finish_within(LIMIT)
    }

    /// The same of one that calculates for a minute when nothing else runs.
    pub(crate) fn finish_within(mut self, limit: Duration) -> Finished {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its state") {
                break status;
            }
            assert!(Instant::now() < deadline, "the program does not end");
            thread::sleep(Duration::from_millis(5));
        };
        let rest = |pipe: &Receiver<Vec<u8>>| pipe.recv_timeout(LIMIT).expect("its output");
        Finished {
            args: self.args.clone(),
            code: status.code(),
            stdout: rest(&self.stdout),
            stderr: String::from_utf8_lossy(&rest(&self.stderr)).into_owned(),
        }
    }
}

fn boxed(pipe: ChildStdout) -> Box<dyn Read> {
    Box::new(pipe)
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// Asserts the exit code, and shows everything if it is another one.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.text(), self.stderr);
        tried::note(&self.args, code);
        self
    }

    #[track_caller]
    pub(crate) fn exits_with_one_of(self, codes: &[i32]) -> Self {
        let code = self.code.unwrap_or(-1);
        assert!(codes.contains(&code), "{code}: {}\n{}", self.text(), self.stderr);
        tried::note(&self.args, code);
        self
    }

    /// Asserts what standard error says.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "no {text:?} in: {}", self.stderr);
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The data of the last JSON line, which must be of this event.
    #[track_caller]
    pub(crate) fn last_event(&self, name: &str) -> Value {
        last_event(&self.text(), name)
    }
}

#[track_caller]
pub(crate) fn last_event(text: &str, name: &str) -> Value {
    let line = text.lines().last().unwrap_or_default();
    let mut event: Value = serde_json::from_str(line).expect(line);
    assert_eq!(event["event"], name, "{line}");
    event["data"].take()
}

/// Bytes that do not repeat.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64 ^ bytes as u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Whether the process that started the tests ignores SIGHUP, as `nohup` does: the program then
/// leaves it alone.
pub(crate) fn hangups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

/// Waits until `done`, but not for ever.
#[track_caller]
pub(crate) fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The text of a path, for arguments.
pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Everything beneath a directory: files with their content.
pub(crate) fn tree(root: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(&directory).expect("listed") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root).expect("beneath").display().to_string();
            if path.is_dir() {
                todo.push(path);
                found.insert(name, None);
            } else {
                found.insert(name, Some(std::fs::read(&path).expect("read")));
            }
        }
    }
    found
}
