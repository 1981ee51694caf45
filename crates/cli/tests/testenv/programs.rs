//! The built programs: that of these tests, and the other one beside it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The commands of `netblt-lab` that `netblt` does not have.
const OF_LAB: [&str; 3] = ["emulate", "report", "simulate"];

/// Every command there is, by program.
pub(crate) const PROGRAMS: [(&str, &[&str]); 2] = [
    (
        "netblt",
        &[
            "",
            "cp",
            "sync",
            "send",
            "receive",
            "serve",
            "ls",
            "stat",
            "rm",
            "mkdir",
            "mv",
            "keygen",
            "clean",
            "fleet",
            "fleet plan",
            "fleet run-chunk",
            "fleet submit",
            "fleet status",
            "fleet verify",
            "fleet manifest",
            "fleet clean",
            "control",
            "config",
            "config show",
            "bench",
            "demo",
            "plan",
            "completions",
            "man",
        ],
    ),
    (
        "netblt-lab",
        &[
            "",
            "emulate",
            "emulate relay",
            "emulate tun",
            "emulate list",
            "simulate",
            "report",
            "report trace",
            "report transfer",
            "report rfc1030",
            "report ornl",
            "report compare",
            "completions",
            "man",
        ],
    ),
];

/// The path of `netblt`.
pub(crate) fn netblt() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    let beside = || PATH.get_or_init(|| beside("netblt", "netblt-cli")).as_str();
    option_env!("CARGO_BIN_EXE_netblt").unwrap_or_else(beside)
}

/// The path of `netblt-lab`.
pub(crate) fn lab() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    let beside = || PATH.get_or_init(|| beside("netblt-lab", "netblt-lab")).as_str();
    option_env!("CARGO_BIN_EXE_netblt-lab").unwrap_or_else(beside)
}

/// The path of the program of this name.
pub(crate) fn named(name: &str) -> &'static str {
    match name {
        "netblt" => netblt(),
        "netblt-lab" => lab(),
        other => panic!("no program {other}"),
    }
}

/// The path of the program that has this command.
pub(crate) fn with_command(command: &str) -> &'static str {
    if OF_LAB.contains(&command) { lab() } else { netblt() }
}

/// The name of the built program in this path, if it is one.
pub(crate) fn name_of(path: &str) -> Option<&'static str> {
    let names = PROGRAMS.iter().map(|(name, _)| *name);
    names.into_iter().find(|name| directory().join(name) == Path::new(path))
}

/// Where cargo puts programs: above that of this test.
fn directory() -> PathBuf {
    let test = env::current_exe().expect("its path");
    test.ancestors().nth(2).expect("it is in a directory of its own").to_owned()
}

/// A program of another package than these tests. `cargo test --workspace` builds it before they
/// run; `cargo test -p` of one package does not, so it is built here if it is missing or old.
fn beside(name: &str, package: &str) -> String {
    let directory = directory();
    let program = directory.join(name);
    if is_old(&program) {
        let profile = match directory.file_name().and_then(|name| name.to_str()) {
            Some("release") => "release",
            _ => "test",
        };
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "--locked", "--profile", profile, "--package", package]);
        command.arg("--target-dir").arg(directory.parent().expect("a target directory"));
        command.arg("--manifest-path").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        assert!(command.status().expect("cargo runs").success(), "{package} is not built");
    }
    program.into_os_string().into_string().expect("text")
}

/// Whether the program is missing, or older than a file that it is made of.
fn is_old(program: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let Some(built) = changed(program) else { return true };
    // Cargo names there all files of the workspace that it read: `PROGRAM: FILE FILE...`.
    let Ok(list) = fs::read_to_string(program.with_extension("d")) else { return true };
    let files = list.split_once(": ").map_or("", |(_, files)| files);
    let files = files.replace("\\ ", "\0");
    let files = files.split_whitespace().map(|file| PathBuf::from(file.replace('\0', " ")));
    let newer = |file: PathBuf| changed(&file).is_none_or(|time: SystemTime| time > built);
    files.into_iter().any(newer)
}
