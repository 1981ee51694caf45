//! What a transfer has seen of the handle that changes it.

use netblt_proto::config::Steering;

use crate::options::Control;

/// What a transfer has seen of its handle.
#[derive(Debug, Default)]
pub(crate) struct Helm {
    control: Option<Control>,
    seen: u64,
}

impl Helm {
    pub(crate) fn new(control: Option<Control>) -> Self {
        Self { control, seen: 0 }
    }

    /// What was changed since it was asked last, if anything was.
    pub(crate) fn turned(&mut self) -> Option<Steering> {
        let wish = *self.control.as_ref()?.lock();
        (std::mem::replace(&mut self.seen, wish.changes) != wish.changes).then_some(wish.steering)
    }

    /// The transfer could not go over to the policy of `steering`.
    pub(crate) fn refuse(&self, steering: &Steering) {
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
    fn each_change_is_seen_once_and_the_last_word_holds() {
        let control = Control::new();
        let mut helm = Helm::new(Some(control.clone()));
        assert_eq!(helm.turned(), None);
        control.set_rate(Some(Rate::from_bytes_per_second(7)));
        control.pause();
        control.set_rate(None);
        let seen = helm.turned().expect("it was changed");
        assert_eq!((seen.ceiling, seen.paused), (Ceiling::Lifted, true));
        assert_eq!(helm.turned(), None);
        control.resume();
        assert!(helm.turned().is_some_and(|steering| !steering.paused));
        assert_eq!(Helm::new(None).turned(), None);
    }
}
