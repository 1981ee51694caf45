//! `netblt cp` beside scp, over an sshd of this test's own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::testenv::sshd::Sshd;
use crate::testenv::{Env, installed, skip, tree};

type Listing = BTreeMap<String, (u32, Option<i64>, Option<Vec<u8>>)>;

/// Names, permissions, times if they are kept, and contents.
fn listing(root: &Path, times: bool) -> Listing {
    let of = |(name, content): (String, Option<Vec<u8>>)| {
        let metadata = fs::metadata(root.join(&name)).expect("examined");
        let time = times.then(|| metadata.mtime());
        (name, (metadata.mode() & 0o7777, time, content))
    };
    tree(root).into_iter().map(of).collect()
}

fn sshd(env: &Env) -> Option<Sshd> {
    if !installed("scp") {
        skip("needs scp");
        return None;
    }
    Sshd::start(env, "")
}

#[test]
fn cp_does_what_scp_does() {
    let env = Env::new();
    let Some(sshd) = sshd(&env) else { return };
    // What to copy, seen from `near` to `far` or back; in `far` there are a directory `d` and a
    // file `old`.
    let cases: &[&[&str]] = &[
        &["a", "FAR/"],
        &["a", "FAR/new"],
        &["a", "FAR/old"],
        &["a", "FAR/d"],
        &["a", "FAR/d/"],
        &["a", "b c", "FAR/d"],
        &["-r", "t", "FAR/"],
        &["-r", "t", "FAR/d"],
        &["-r", "t", "FAR/new"],
        &["-r", "t/", "FAR/d"],
        &["-r", "t/", "FAR/new"],
        &["-r", "t/.", "FAR/d"],
        &["-r", "t/.", "FAR/new"],
        &["-p", "a", "FAR/"],
        &["-r", "-p", "t", "a", "FAR/d"],
    ];
    for up in [true, false] {
        for case in cases {
            let mut results = Vec::new();
            for tool in ["scp", "netblt"] {
                let name = format!("{tool}-{up}");
                let root = env.make_directory(&name);
                fs::remove_dir_all(&root).expect("removed");
                let (from, to) = match up {
                    true => (env.path("near"), root.clone()),
                    false => (root.join("from"), env.path("near")),
                };
                let _ = fs::remove_dir_all(env.path("near"));
                for directory in [&root, &from, &to] {
                    fs::create_dir_all(directory).expect("made");
                }
                make_sources(&from);
                fs::create_dir_all(to.join("d")).expect("made");
                fs::write(to.join("old"), "old").expect("written");
                let place = |text: &str, far: &Path| format!("there:{}/{text}", far.display());
                let args: Vec<String> = case
                    .iter()
                    .map(|arg| match (arg.strip_prefix("FAR/"), up) {
                        (Some(rest), true) => place(rest, &to),
                        (Some(rest), false) => format!("{}/{rest}", to.display()),
                        (None, false) if !arg.starts_with('-') => place(arg, &from),
                        _ => (*arg).to_owned(),
                    })
                    .collect();
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                match tool {
                    "scp" => {
                        let mut scp = Command::new("scp");
                        scp.arg("-q").arg("-F").arg(&sshd.config).args(&args);
                        let status = scp.current_dir(env.path("near")).status();
                        assert!(status.expect("it runs").success(), "scp {args:?}");
                    }
                    _ => drop(sshd.cp(&env, &args).exits(0)),
                }
                let kept = case.contains(&"-p");
                let mut found = listing(&to, kept);
                // Theirs is the time at which it was made.
                if let Some(entry) = found.get_mut("d") {
                    entry.1 = None;
                }
                if let Some(entry) = found.get_mut("old") {
                    entry.1 = None;
                }
                results.push(found);
            }
            assert_eq!(results[0], results[1], "{case:?}, up: {up}");
        }
    }
}

fn make_sources(root: &Path) {
    let files = [("a", 0o640), ("b c", 0o755), ("t/x", 0o600), ("t/deep/.y", 0o644)];
    for (name, mode) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, name).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        let file = fs::File::options().write(true).open(&path).expect("opened");
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).expect("set");
    }
    fs::create_dir_all(root.join("t/empty")).expect("made");
    for directory in ["t/empty", "t/deep", "t"] {
        let file = fs::File::open(root.join(directory)).expect("opened");
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_100_000_000)).expect("set");
    }
}
