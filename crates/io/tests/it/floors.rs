//! What imports what in this library: no circle, twelve floors, and a receiver without the sender's
//! walk through files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Floors at most, `lib.rs` and the `mod.rs` above them not counted: those only list and re-export.
///
/// The longest way down is `serve::server`, `admission`, `connection`, `connection_state`,
/// `transfer::receive`, `disk::directory`, and six of `disk`: `publish_all` gives names, `store`
/// has the temporaries, `sites` all directories of temporaries of a destination, `staging` one of
/// them, `locks` its lock, `fault_injection` the failures that a test plans. `connection_state`,
/// `sites` and `locks` are the three beyond nine. The state of a connection hides how it changes
/// from the connection itself. A destination has a directory of temporaries for each file system
/// and group in it, and is locked where `flock` fails, too. None has a place in a module above or
/// below it.
const MAX_FLOORS: usize = 12;

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The text of every module that does something, by its path in the crate.
fn modules(directory: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            modules(&path, &format!("{prefix}{stem}::"), found);
        } else if !matches!(stem.as_str(), "lib" | "mod") && !stem.ends_with("_tests") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.insert(format!("{prefix}{stem}"), code.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// The modules that a module names: what follows `crate::` or `super::`, with what is in braces.
fn imports() -> Imports {
    let mut modules_found = BTreeMap::new();
    modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut modules_found);
    let mut imports = Imports::new();
    for (name, code) in &modules_found {
        let wing = name.rsplit_once("::").map(|(wing, _)| wing);
        let mut named = BTreeSet::new();
        for start in ["crate::", "super::"] {
            for rest in code.split(start).skip(1) {
                let base = if start == "super::" { wing.map(|w| format!("{w}::")) } else { None };
                let path = format!("{}{rest}", base.unwrap_or_default());
                for braced in spelled_out(&path) {
                    named.extend(modules_found.keys().filter(|m| is_in(&braced, m)).cloned());
                }
            }
        }
        named.remove(name);
        imports.insert(name.clone(), named);
    }
    imports
}

/// `a::{b, c::d} ...` as `a::b` and `a::c::d`; one level is all there is.
fn spelled_out(path: &str) -> Vec<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = path.find(|c| !plain(c)).unwrap_or(path.len());
    let (before, rest) = path.split_at(end);
    match rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        Some((list, _)) => list.split(',').map(|one| format!("{before}{}", one.trim())).collect(),
        None => vec![before.to_owned()],
    }
}

fn is_in(path: &str, module: &str) -> bool {
    path == module || path.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"))
}

/// On which floor a module stands, or the circle that it is part of.
fn floor(
    module: &str,
    imports: &Imports,
    above: &mut Vec<String>,
    known: &mut BTreeMap<String, usize>,
) -> usize {
    if let Some(floor) = known.get(module) {
        return *floor;
    }
    assert!(!above.iter().any(|m| m == module), "a circle: {above:?} and {module} again");
    above.push(module.to_owned());
    let below = imports[module].iter().map(|below| floor(below, imports, above, known));
    let own = 1 + below.max().unwrap_or(0);
    above.pop();
    known.insert(module.to_owned(), own);
    own
}

#[test]
fn imports_make_no_circle_and_twelve_floors() {
    let imports = imports();
    assert!(imports.len() > 30, "{:?}", imports.keys());
    assert!(imports["net::event_loop"].contains("net::socket"), "{:?}", imports["net::event_loop"]);
    let mut known = BTreeMap::new();
    for module in imports.keys() {
        let floor = floor(module, &imports, &mut Vec::new(), &mut known);
        assert!(floor <= MAX_FLOORS, "{module} stands on floor {floor}: {:?}", imports[module]);
    }
    // A bound that is no longer reached is to be lowered.
    assert_eq!(known.values().max(), Some(&MAX_FLOORS));
}

#[test]
fn each_folder_imports_only_lower_ones() {
    for (module, named) in imports() {
        let above = |other: &&String| match module.split_once("::").map_or("", |(wing, _)| wing) {
            "net" | "disk" => {
                let side = if module.starts_with("net") { "disk::" } else { "net::" };
                ["serve::", "transfer::", "bench::", side]
                    .iter()
                    .any(|wing| other.starts_with(wing))
            }
            "serve" => other.starts_with("bench::"),
            "transfer" => ["serve::", "bench::"].iter().any(|wing| other.starts_with(wing)),
            "bench" => ["serve::", "disk::"].iter().any(|wing| other.starts_with(wing)),
            "mirror" => ["serve::", "transfer::", "bench::", "net::"]
                .iter()
                .any(|wing| other.starts_with(wing)),
            "keys" => !other.starts_with("keys::") && other.contains("::"),
            // The options of a transfer name algorithms and lists.
            _ => !other.starts_with("checksums::") && other.contains("::"),
        };
        let wrong: Vec<&String> = named.iter().filter(above).collect();
        assert!(wrong.is_empty(), "{module} imports {wrong:?}");
    }
}

#[test]
fn the_receiver_does_not_import_the_walk_through_files() {
    let imports = imports();
    let (mut todo, mut seen) = (vec!["transfer::receive".to_owned()], BTreeSet::new());
    while let Some(module) = todo.pop() {
        if seen.insert(module.clone()) {
            todo.extend(imports[&module].iter().cloned());
        }
    }
    assert!(seen.contains("disk::directory"));
    assert!(!seen.contains("disk::file_list") && !seen.contains("disk::source"), "{seen:?}");
}
