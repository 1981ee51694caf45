//! A far machine for `netblt cp`: another directory, behind a stand-in for ssh.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Env, Finished, Running, tree};

/// A stand-in for ssh: runs the command here, in `far`, after whatever `before` prints.
pub(crate) fn fake_ssh(env: &Env, before: &str, path: &str) -> PathBuf {
    let far = env.make_directory("far");
    let far = far.display();
    script(
        env,
        "ssh",
        &format!(
            "for last; do :; done\n\
             case \" $* \" in *' -G '*) echo hostname 127.0.0.1; exit;; esac\n\
             cd '{far}' && export HOME='{far}' PATH=\"{path}:$PATH\"\n\
             export XDG_CONFIG_HOME='{own}' XDG_STATE_HOME='{own}'\n\
             export SSH_CONNECTION='127.0.0.1 9 127.0.0.1 22'\n\
             echo $$ > '{pid}'\n\
             {before}\n\
             exec sh -c \"$last\"\n",
            pid = env.path("pid").display(),
            // What the program keeps for itself is no file that was copied.
            own = env.path("far-own").display(),
        ),
    )
}

pub(crate) fn script(env: &Env, name: &str, text: &str) -> PathBuf {
    let path = env.path(name);
    fs::write(&path, format!("#!/bin/sh\n{text}")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    path
}

pub(crate) fn program_directory() -> String {
    let program = Path::new(super::programs::netblt());
    program.parent().expect("a directory").display().to_string()
}

/// Where files are, and the ssh that leads there.
pub(crate) struct Setting {
    pub(crate) env: Env,
    pub(crate) ssh: PathBuf,
}

impl Setting {
    pub(crate) fn new() -> Self {
        Self::with("", &program_directory())
    }

    pub(crate) fn with(before: &str, path: &str) -> Self {
        let env = Env::new();
        let ssh = fake_ssh(&env, before, path);
        env.make_directory("near");
        Self { env, ssh }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of("cp", args)
    }

    /// `cp` or `sync`.
    pub(crate) fn command_of(&self, name: &str, args: &[&str]) -> Command {
        let ssh = self.ssh.to_str().expect("text");
        let all: Vec<&str> = [name, "-S", ssh].iter().chain(args).copied().collect();
        let mut command = self.env.command(&all);
        command.current_dir(self.env.path("near"));
        command
    }

    pub(crate) fn cp(&self, args: &[&str]) -> Finished {
        self.start(args).finish()
    }

    pub(crate) fn sync(&self, args: &[&str]) -> Finished {
        Running::new(self.command_of("sync", args)).finish()
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::new(self.command(args))
    }

    pub(crate) fn put(&self, name: &str, content: &[u8]) {
        let path = self.env.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, content).expect("written");
    }

    pub(crate) fn tree(&self, name: &str) -> BTreeMap<String, Option<Vec<u8>>> {
        tree(&self.env.path(name))
    }

    pub(crate) fn far_pid(&self) -> i32 {
        let text = fs::read_to_string(self.env.path("pid")).expect("a number");
        text.trim().parse().expect("a number")
    }
}

pub(crate) fn names(tree: &BTreeMap<String, Option<Vec<u8>>>) -> Vec<&str> {
    tree.keys().map(String::as_str).collect()
}
