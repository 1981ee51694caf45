//! Watches the handle that changes a transfer.

use netblt_proto::config::RuntimeSettings;

use crate::control::Control;

/// The last seen state of a transfer's control handle.
#[derive(Debug, Default)]
pub(crate) struct ControlWatcher {
    control: Option<Control>,
    seen: u64,
}

impl ControlWatcher {
    pub(crate) fn new(control: Option<Control>) -> Self {
        Self { control, seen: 0 }
    }

    /// The changes since the last call, if there are any.
    pub(crate) fn changed(&mut self) -> Option<RuntimeSettings> {
        let wish = *self.control.as_ref()?.lock();
        (std::mem::replace(&mut self.seen, wish.changes) != wish.changes).then_some(wish.steering)
    }

    /// The transfer could not go over to the policy of `steering`.
    pub(crate) fn refuse(&self, steering: &RuntimeSettings) {
        if let Some(control) = &self.control {
            control.lock().refused = steering.policy;
        }
    }
}

#[cfg(test)]
mod tests {
    use netblt_proto::config::Ceiling;
    use netblt_proto::units::Rate;

    use super::*;

    #[test]
    fn each_change_is_seen_once_and_the_last_one_holds() {
        let control = Control::new();
        let mut watcher = ControlWatcher::new(Some(control.clone()));
        assert_eq!(watcher.changed(), None);
        control.set_rate(Some(Rate::from_bytes_per_second(7)));
        control.pause();
        control.set_rate(None);
        let seen = watcher.changed().expect("it was changed");
        assert_eq!((seen.ceiling, seen.paused), (Ceiling::Unlimited, true));
        assert_eq!(watcher.changed(), None);
        control.resume();
        assert!(watcher.changed().is_some_and(|steering| !steering.paused));
        assert_eq!(ControlWatcher::new(None).changed(), None);
    }
}
