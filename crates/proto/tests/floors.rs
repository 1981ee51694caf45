//! The floors of this crate, and that nothing reaches up: no circle of imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the ground up; a module uses only what is on lower floors.
const FLOORS: [&[&str]; 11] = [
    &["time", "units", "limits", "entropy", "rtt"],
    &["timers", "buffer", "crypto", "buffer_autotuning", "stats"],
    &["wire"],
    &["wire_profile"],
    &["content", "control_fifo", "api", "pmtud", "loss_detection", "peer_gone", "fec"],
    &["path_validation", "config", "amplification_limit", "codec", "negotiated"],
    &["rate", "trace"],
    &["emulated"],
    &["handshake", "receiver", "sender"],
    &["connection", "endpoint"],
    &["listener"],
];
/// Within `receiver`, the same.
const RECEIVER: [&[&str]; 5] = [
    &[
        "states",
        "fec",
        "grants",
        "resend_requests",
        "outgoing_control",
        "feedback",
        "data_stats",
        "header_prediction",
    ],
    &["assembly", "end_of_transfer"],
    &["assemblies"],
    &["pmtud"],
    &["data_path"],
];
/// Within `crypto`, the same.
const CRYPTO: [&[&str]; 4] = [
    &["cipher", "static_keys", "secret"],
    &["epoch", "mac", "noise", "replay"],
    &["aead", "static_pairing", "exporter"],
    &["subflow"],
];
/// Within `sender`, the same: no component knows the sender, which `mod.rs` and `control.rs` are.
const SENDER: [&[&str]; 3] = [
    &[
        "scheduler",
        "control_window",
        "circuit_breaker",
        "end_of_transfer",
        "feedback",
        "pmtud",
        "rate_driver",
    ],
    &["fec", "null_ack", "progress_evidence", "records"],
    &["control"],
];
/// Within `sender/scheduler`, the same.
const SCHEDULER: [&[&str]; 4] = [
    &["packet", "resend_rounds"],
    &["unconfirmed"],
    &["outgoing_buffer"],
    &["coin_test", "fec_queue"],
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the sources are here").flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, found),
            path => found.push(path),
        }
    }
}

/// What each module of `directory` imports from `prefix`, tests left out.
fn imports(directory: &Path, prefixes: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(directory, &mut files);
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let path = file.strip_prefix(directory).expect("it is in there").with_extension("");
        let module = path.iter().next().expect("it has a name").to_string_lossy().into_owned();
        let path = path.to_string_lossy();
        if path.contains("tests") || matches!(module.as_str(), "lib" | "mod" | "transitions") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("it can be read");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for prefix in prefixes {
                for rest in line.split(prefix).skip(1) {
                    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    let name = &rest[..end.unwrap_or(rest.len())];
                    if !name.is_empty() && name != module {
                        all.entry(module.clone()).or_default().insert(name.to_owned());
                    }
                }
            }
        }
        all.entry(module).or_default();
    }
    all
}

fn assert_floors(floors: &[&[&str]], imports: &BTreeMap<String, BTreeSet<String>>) {
    let floor = |name: &str| floors.iter().position(|floor| floor.contains(&name));
    for (module, used) in imports {
        let own = floor(module).unwrap_or_else(|| panic!("{module} is on no floor"));
        for name in used {
            if let Some(other) = floor(name) {
                let beside = (module.as_str(), name.as_str()) == ("endpoint", "connection");
                assert!(other < own || beside, "{module} uses {name}, which is not below it");
            }
        }
    }
}

#[test]
fn each_floor_stands_only_on_those_below() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let all = imports(&root, &["crate::"]);
    assert!(all.len() > 20 && all["sender"].contains("codec"), "{all:?}");
    assert_floors(&FLOORS, &all);
    let crypto = imports(&root.join("crypto"), &["super::", "crate::crypto::"]);
    assert!(crypto["aead"].contains("epoch"), "{crypto:?}");
    assert_floors(&CRYPTO, &crypto);
    let root = root.join("sender");
    let sender = imports(&root, &["super::", "crate::sender::"]);
    assert!(sender["fec"].contains("scheduler"), "{sender:?}");
    assert_floors(&SENDER, &sender);
    let scheduler = imports(&root.join("scheduler"), &["super::", "crate::sender::scheduler::"]);
    assert!(scheduler["coin_test"].contains("outgoing_buffer"), "{scheduler:?}");
    assert_floors(&SCHEDULER, &scheduler);
}

/// The sizes of headers are known to the wires, the codec and what builds handshake packets. All
/// else asks the wire profile, so that a size which differs between the wires cannot be taken from
/// the wrong one.
#[test]
fn sizes_of_headers_stay_with_the_codec() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    // The coin test is a part of `rfc998` alone.
    let may = ["wire", "crypto", "codec.rs", "handshake", "endpoint.rs", "limits.rs", "config.rs"];
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut users = BTreeSet::new();
    for file in files {
        let path = file.strip_prefix(&root).expect("it is in there");
        let text = fs::read_to_string(&file).expect("it can be read");
        let names = ["wire::rfc998::HEADER_BYTES", "sealed::HEADER_BYTES", "TAG_BYTES"];
        if names.iter().any(|name| text.contains(name)) {
            let name = path.to_string_lossy();
            let is_test = name.contains("/tests") || name.ends_with("_tests.rs");
            let is_coin_test = name.contains("coin");
            if !is_test && !is_coin_test && !may.iter().any(|may| path.starts_with(may)) {
                users.insert(name.into_owned());
            }
        }
    }
    assert!(users.is_empty(), "header sizes outside the codec: {users:?}");
}

/// The components of a receiver know nothing of the type that routes, which `mod.rs` and
/// `data_path.rs` are.
#[test]
fn a_receivers_components_know_no_receiver() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/receiver");
    let all = imports(&root, &["super::", "crate::receiver::"]);
    assert!(all["assemblies"].contains("assembly"), "{all:?}");
    assert_floors(&RECEIVER, &all);
    for (file, used) in all.iter().filter(|(file, _)| *file != "data_path") {
        assert!(!used.contains("Receiver"), "receiver/{file} uses Receiver");
    }
}
