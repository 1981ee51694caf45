//! Keeps what a process knows of secrets in the process.

use rustix::process::{Resource, Rlimit, setrlimit};

/// From now on no core dump is made of this process, and no other program of the same user looks
/// into it. Best effort: where it cannot be had, transfers go on.
pub(crate) fn keep() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}
