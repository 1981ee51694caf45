//! What `netblt` is built of: nothing of the laboratory. Asked of the manifests, so that it holds
//! for every feature and platform.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Packages that only `netblt-lab` and tests need.
const LABORATORY: [&str; 6] =
    ["netblt-sim", "netblt-rfc1030", "netblt-ornl", "netblt-compare", "netblt-emu", "netblt-lab"];

/// The packages of the workspace.
fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["metadata", "--offline", "--no-deps", "--format-version", "1"]);
    let output = command.arg("--manifest-path").arg(manifest).output().expect("cargo runs");
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("no packages: {other}"),
    }
}

/// The packages of the workspace that this one is built of, itself included: dependencies for tests
/// do not count.
fn built_of(name: &str) -> BTreeSet<String> {
    let packages = packages();
    let (mut found, mut todo) = (BTreeSet::new(), vec![name.to_owned()]);
    while let Some(name) = todo.pop() {
        let Some(package) = packages.iter().find(|package| package["name"] == name.as_str()) else {
            continue;
        };
        let needs = package["dependencies"].as_array().expect("a list");
        let needs = needs.iter().filter(|need| need["kind"] != "dev");
        if found.insert(name) {
            todo.extend(needs.filter_map(|need| need["name"].as_str()).map(str::to_owned));
        }
    }
    found
}

#[test]
fn the_product_is_built_without_the_laboratory() {
    let product = built_of("netblt-cli");
    assert!(product.contains("netblt-proto") && product.contains("netblt-commands"), "{product:?}");
    let laboratory = built_of("netblt-lab");
    for name in LABORATORY {
        assert!(!product.contains(name), "netblt-cli is built of {name}");
        assert!(laboratory.contains(name), "netblt-lab is built without {name}");
    }
}
