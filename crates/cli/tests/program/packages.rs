//! What `packaging/build` has made, installed into roots with nothing else in them. It is not made
//! here: where none were built, this says so and counts as skipped.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::testenv::skip;

/// Where each file of a list of `Cargo.toml` goes, by its place beneath `packages/stage`.
fn assets(toml: &str, section: &str) -> BTreeMap<String, String> {
    let (_, rest) = toml.split_once(&format!("[package.metadata.{section}]")).expect("a section");
    let (_, list) = rest.split_once("assets = [\n").expect("a list");
    let (list, _) = list.split_once("\n]").expect("its end");
    let lines = list.lines().filter(|line| !line.trim().starts_with('#'));
    let pair = |line: &str| {
        let texts: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        let (_, from) = texts[0].split_once("packages/stage/").expect("what packaging/build made");
        (from.to_owned(), texts[1].trim_start_matches('/').to_owned())
    };
    lines.map(pair).collect()
}

/// Both packages have the same files, and what systemd needs is among them.
#[test]
fn the_deb_and_the_rpm_have_the_unit() {
    let toml = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    let toml = toml.expect("the manifest");
    let [deb, rpm] = ["deb", "generate-rpm"].map(|section| assets(&toml, section));
    assert!(deb.keys().eq(rpm.keys()), "{deb:?} {rpm:?}");
    for list in [deb, rpm] {
        assert!(list["netblt-serve.service"].starts_with("usr/lib/systemd/system/"), "{list:?}");
    }
}

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
