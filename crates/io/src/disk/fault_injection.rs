//! Fault injection: tests make a call to the disk fail or wait. Other builds have none of it.

use std::path::Path;

use rustix::io::Errno;

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Close,
    Sync,
    Rename,
    Exchange,
    Link,
    Lock,
    Modes,
    Times,
}

/// The planned fault of the next such call for this destination.
#[cfg(not(test))]
pub(crate) fn at(_: &Path, _: Call) -> Result<(), Errno> {
    Ok(())
}

/// The same for a destination that is known by a handle of it, or of a file in it.
#[cfg(not(test))]
pub(crate) fn at_handle(_: impl std::os::fd::AsFd, _: Call) -> Result<(), Errno> {
    Ok(())
}

#[cfg(test)]
pub(crate) use planned::{Fault, at, at_handle, forget, plan};

#[cfg(test)]
mod planned {
    use std::os::fd::AsRawFd as _;
    use std::path::PathBuf;
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    /// A planned fault.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Fault {
        Error(Errno),
        Wait(Duration),
    }

    #[derive(Debug)]
    struct Planned {
        to: PathBuf,
        call: Call,
        /// Calls that go well before it.
        after: u32,
        times: u32,
        fault: Fault,
    }

    static PLANNED: Mutex<Vec<Planned>> = Mutex::new(Vec::new());

    /// From the call after the next `after` on, for `times` calls.
    pub(crate) fn plan(to: &Path, call: Call, after: u32, times: u32, fault: Fault) {
        let to = to.to_path_buf();
        PLANNED.lock().expect("whole").push(Planned { to, call, after, times, fault });
    }

    /// Removes the plans for a destination.
    pub(crate) fn forget(to: &Path) {
        PLANNED.lock().expect("whole").retain(|planned| planned.to != to);
    }

    pub(crate) fn at(to: &Path, call: Call) -> Result<(), Errno> {
        let fault = due(to, call);
        match fault {
            None => Ok(()),
            Some(Fault::Error(errno)) => Err(errno),
            Some(Fault::Wait(time)) => {
                std::thread::sleep(time);
                Ok(())
            }
        }
    }

    pub(crate) fn at_handle(handle: impl std::os::fd::AsFd, call: Call) -> Result<(), Errno> {
        let place = std::fs::read_link(format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd()));
        let place = place.unwrap_or_default();
        place.ancestors().try_for_each(|to| at(to, call))
    }

    fn due(to: &Path, call: Call) -> Option<Fault> {
        let mut planned = PLANNED.lock().expect("whole");
        let planned = planned.iter_mut().find(|p| p.to == to && p.call == call && p.times > 0)?;
        if planned.after > 0 {
            planned.after -= 1;
            return None;
        }
        planned.times -= 1;
        Some(planned.fault)
    }
}
