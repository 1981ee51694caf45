//! Tests, or parts of them, that cannot run here are noted and counted.

use std::fs::File;
use std::io::Write as _;

/// Prints it, and adds a line to the file in `NETBLT_SKIPPED`, which `.ci/run` counts.
pub(crate) fn skip(why: &str) {
    println!("skipped: {why}");
    let Some(file) = std::env::var_os("NETBLT_SKIPPED") else { return };
    let line = format!("{}: {why}\n", std::thread::current().name().unwrap_or("a test"));
    let file = File::options().append(true).create(true).open(file);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the skip is noted");
}
