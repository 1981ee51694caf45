//! The directories of a user's own files, by the XDG base directories.

use std::env;
use std::path::PathBuf;

/// `name` in `$XDG_CONFIG_HOME/netblt` or `~/.config/netblt`. `None` without a home.
pub(crate) fn config(name: &str) -> Option<PathBuf> {
    place("XDG_CONFIG_HOME", ".config", name)
}

/// `name` in `$XDG_STATE_HOME/netblt` or `~/.local/state/netblt`. `None` without a home.
#[cfg_attr(test, expect(dead_code, reason = "tests have places of their own"))]
pub(crate) fn state(name: &str) -> Option<PathBuf> {
    place("XDG_STATE_HOME", ".local/state", name)
}

/// `name` in `$XDG_CACHE_HOME/netblt` or `~/.cache/netblt`. `None` without a home.
pub(crate) fn cache(name: &str) -> Option<PathBuf> {
    place("XDG_CACHE_HOME", ".cache", name)
}

fn place(variable: &str, usual: &str, name: &str) -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(usual)))?;
    Some(base.join("netblt").join(name))
}
