//! The floors of this crate, and that nothing reaches up: no circle of imports, neither between the
//! folders nor inside one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the ground up; a module uses only what is on lower floors.
const FLOORS: [&[&str]; 12] = [
    &["time", "units", "limits", "entropy", "rtt"],
    &["timers", "buffer", "crypto", "buffer_autotuning", "stats"],
    &["wire"],
    &["wire_profile"],
    &["content", "control_fifo", "api", "pmtud", "peer_gone", "fec"],
    &["loss_detection"],
    &["path_validation", "config", "amplification_limit", "codec", "negotiated"],
    &["rate", "trace"],
    &["emulated"],
    &["handshake", "receiver", "sender"],
    &["connection", "endpoint"],
    &["listener"],
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

/// Imports of a folder's own items (those of its `mod.rs`) by its modules, at most. A module that
/// needs few of them can be read alone. The numbers only fall.
const IMPORTS_OF_PARENT: [(&str, usize); 14] = [
    ("crypto", 5),
    ("emulated", 3),
    ("endpoint", 3),
    ("handshake", 14),
    ("loss_detection", 12),
    ("rate", 44),
    ("rate/adaptive", 31),
    ("rate/controller", 3),
    ("receiver", 1),
    ("sender", 1),
    ("trace", 6),
    ("transitions", 3),
    ("wire/rfc998", 5),
    ("wire/sealed", 27),
];

/// A module or an item, as the names on the way to it.
type ItemPath = Vec<String>;

/// The paths that a `use` tree names: `a::{b, c::d}` names `a::b` and `a::c::d`.
fn paths_of(tree: &str) -> Vec<ItemPath> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, byte) in tree.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tree[start..]);
    let names = |path: &str| -> ItemPath {
        let path = path.split(" as ").next().unwrap_or_default();
        path.split("::").map(|name| name.trim().to_owned()).filter(|n| !n.is_empty()).collect()
    };
    let mut paths = Vec::new();
    for part in parts.into_iter().map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('{') {
            None => paths.push(names(part)),
            Some((head, rest)) => {
                let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
                paths.extend(paths_of(inner).into_iter().map(|p| [names(head), p].concat()));
            }
        }
    }
    paths
}

/// Every module outside the tests, and the paths that it imports from this crate.
fn modules() -> BTreeMap<ItemPath, Vec<ItemPath>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut texts = BTreeMap::new();
    for file in files {
        let path = file.strip_prefix(&root).expect("it is in there").with_extension("");
        let mut module: ItemPath =
            path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| matches!(last.as_str(), "mod" | "lib"));
        if module.iter().any(|name| name.contains("test") && name != "coin_test") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("it can be read");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        texts.insert(module, code.collect::<Vec<_>>().join(" "));
    }
    let known: BTreeSet<ItemPath> = texts.keys().cloned().collect();
    let imports = |module: &ItemPath, text: &str| {
        let trees = text.split("use ").skip(1).filter_map(|rest| rest.split(';').next());
        let mut imports = Vec::new();
        for path in trees.flat_map(paths_of) {
            let mut base = module.clone();
            let mut rest = path.as_slice();
            match rest.first().map(String::as_str) {
                Some("crate") => (base, rest) = (Vec::new(), &rest[1..]),
                Some("self") => rest = &rest[1..],
                Some("super") => {
                    while rest.first().is_some_and(|name| name == "super") {
                        base.pop();
                        rest = &rest[1..];
                    }
                }
                Some(first) if known.contains(&[&base[..], &[first.to_owned()]].concat()) => {}
                _ => continue,
            }
            imports.push([&base[..], rest].concat());
        }
        imports
    };
    texts.iter().map(|(module, text)| (module.clone(), imports(module, text))).collect()
}

/// The module that `path` leads to or into.
fn module_of(path: &[String], modules: &BTreeMap<ItemPath, Vec<ItemPath>>) -> ItemPath {
    let mut module = path.to_vec();
    while !module.is_empty() && !modules.contains_key(&module) {
        module.pop();
    }
    module
}

/// Whether `to` can be reached from itself in `graph`.
fn is_on_circle(to: &str, graph: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![to.to_owned()]);
    while let Some(name) = open.pop() {
        for next in graph.get(&name).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    false
}

#[test]
fn no_folder_has_a_circle_and_imports_of_parents_only_fall() {
    let modules = modules();
    assert!(modules.len() > 100, "{}", modules.len());
    let folders: BTreeSet<&[String]> =
        modules.keys().filter(|m| m.len() > 1).map(|m| &m[..m.len() - 1]).collect();
    let mut faults = Vec::new();
    for folder in folders {
        let depth = folder.len();
        let (mut graph, mut of_parent) = (BTreeMap::<_, BTreeSet<String>>::new(), 0);
        for (module, imports) in modules.iter().filter(|(m, _)| m.len() > depth) {
            if !module.starts_with(folder) {
                continue;
            }
            for path in imports {
                let to = module_of(path, &modules);
                if to == folder {
                    of_parent += 1;
                } else if to.starts_with(folder) && to[depth] != module[depth] {
                    graph.entry(module[depth].clone()).or_default().insert(to[depth].clone());
                }
            }
        }
        let name = folder.join("/");
        let most =
            IMPORTS_OF_PARENT.iter().find(|(of, _)| *of == name).map_or(0, |(_, most)| *most);
        if of_parent != most {
            faults.push(format!("{name}: {of_parent} imports of the parent, {most} are written"));
        }
        for module in graph.keys().filter(|module| is_on_circle(module, &graph)) {
            faults.push(format!("{name}: {module} is on a circle of imports"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_use_tree_names_its_paths() {
    let path = |path: &str| -> ItemPath { path.split("::").map(str::to_owned).collect() };
    let paths = ["super::b::C", "super::b::d::E", "super::F"].map(path);
    assert_eq!(paths_of("super::{b::{C, d::E}, F as G}"), paths);
    let graph = BTreeMap::from([
        ("a".to_owned(), BTreeSet::from(["b".to_owned()])),
        ("b".to_owned(), BTreeSet::from(["a".to_owned(), "c".to_owned()])),
    ]);
    assert!(is_on_circle("a", &graph) && is_on_circle("b", &graph) && !is_on_circle("c", &graph));
}
