//! Keeps the secrets of a process in the process.

use rustix::process::{Resource, Rlimit, setrlimit};

/// From now on this process makes no core dump, and no other program of the same user can read its
/// memory. Best effort: where that is impossible, transfers go on.
pub(crate) fn keep() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}
