//! Running a case under callgrind, and reading what it counted.

use std::env;
use std::fs;
use std::process::{Command, Stdio};

/// The word that says: this is inside valgrind.
pub(crate) const INSIDE: &str = "--inside";

/// Where memory comes from, as the C library names it.
const ALLOCATORS: [&str; 4] = ["malloc", "calloc", "realloc", "posix_memalign"];

/// Something to be counted.
pub(crate) struct Case {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Does it, the part that counts inside [`measured`], and answers how many packets that was.
    pub(crate) run: fn() -> u64,
}

/// The part of a case that counts: callgrind counts only functions of this name.
#[inline(never)]
pub(crate) fn measured<T>(part: impl FnOnce() -> T) -> T {
    // Else the call might be the function's last act, and a jump.
    std::hint::black_box(part())
}

/// Under valgrind: runs a case and says how many packets it was.
pub(crate) fn inside(cases: &[Case], name: &str) {
    let case = cases.iter().find(|case| case.name == name).unwrap();
    println!("{}", (case.run)());
}

/// Runs each case under valgrind (of those whose names contain one of `wanted`, if any) and prints
/// what it costs.
pub(crate) fn outside(cases: &[Case], wanted: &[String]) {
    let here = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !here.is_ok_and(|status| status.success()) {
        println!("skipped: nothing is measured without valgrind, which is not installed");
        return;
    }
    println!("{:<34} {:>14} {:>14}", "", "instructions", "allocations");
    println!("{:<34} {:>14} {:>14}", "", "a packet", "a packet");
    for case in cases {
        if wanted.is_empty() || wanted.iter().any(|part| case.name.contains(part.as_str())) {
            let (instructions, allocations) = count(case);
            println!("{:<34} {instructions:>14.1} {allocations:>14.4}", case.name);
        }
    }
}

fn count(case: &Case) -> (f64, f64) {
    let file = env::temp_dir().join(format!("netblt-callgrind.{}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*counting*measured*", "--compress-strings=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(env::current_exe().unwrap())
        .args([INSIDE, case.name])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", case.name);
    let packets: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let profile = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let total = |line: &str| line.strip_prefix("summary: ")?.trim().parse::<f64>().ok();
    let instructions = profile.lines().find_map(total).unwrap();
    (instructions / packets, allocations(&profile) as f64 / packets)
}

/// How often one of [`ALLOCATORS`] was called by the profile: `cfn=NAME`, then `calls=N ...`.
fn allocations(profile: &str) -> u64 {
    let mut sum = 0;
    let mut counts = false;
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            counts = ALLOCATORS.contains(&name);
        } else if let Some(calls) = line.strip_prefix("calls=").filter(|_| counts) {
            let calls = calls.split(' ').next().and_then(|calls| calls.parse::<u64>().ok());
            sum += calls.unwrap_or_default();
        }
    }
    sum
}
