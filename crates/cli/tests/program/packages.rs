//! What `packaging/build` has made, installed into roots with nothing else in them. It is not made
//! here: where nobody has, this says so and counts as skipped.

use std::path::Path;
use std::process::Command;

use crate::testenv::skip;

#[test]
fn packages_work_in_an_empty_root() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = std::env::var_os("CARGO_TARGET_DIR");
    let built = built.map_or_else(|| workspace.join("target"), Into::into);
    if !built.join("packages/SHA256SUMS").is_file() {
        skip("no packages, which packaging/build makes");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        skip("packages are tried as root");
        return;
    }
    let tried = Command::new(workspace.join("packaging/try")).output().expect("started");
    let said = String::from_utf8_lossy(&tried.stdout);
    let why = String::from_utf8_lossy(&tried.stderr);
    assert!(tried.status.success() && said.contains("packages tried: "), "{said}{why}");
}
