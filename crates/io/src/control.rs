//! Changes of a transfer while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netblt_proto::config::{Ceiling, Policy, RuntimeSettings};
use netblt_proto::units::Rate;

/// Changes a transfer from any thread while it runs: its rate and its policy, and pauses it. Give a
/// clone of it in [`Options::control`](crate::Options::control), and keep one.
///
/// Changes before the transfer begins hold from its beginning. The last change holds for as long as
/// the transfer runs, also when a new connection replaces its connection. A change is noticed
/// within 100 ms. With `rfc998` a sender's policy cannot change, and a receiver can only pause.
///
/// ```
/// use netblt::{Control, Options, Rate};
///
/// let control = Control::new();
/// let mut options = Options::default();
/// options.control = Some(control.clone());
/// // ... `netblt::send` runs on another thread ...
/// control.set_rate(Some(Rate::from_bits_per_second(50_000_000)));
/// control.pause();
/// control.resume();
/// assert!(!control.is_paused());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Control(Arc<Mutex<ControlState>>);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ControlState {
    pub(crate) steering: RuntimeSettings,
    /// How often it was changed.
    pub(crate) changes: u64,
    /// The transfer could not go over to this policy.
    pub(crate) refused: Option<Policy>,
}

impl Control {
    /// A handle that has changed nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The highest rate, in bytes of IP packets a second. `None`: no ceiling, whatever
    /// [`TransferSettings::policy`](crate::TransferSettings::policy) says. A receiver asks its
    /// sender for it, which obeys (`sealed`). The bound that both ends agreed on at the opening
    /// holds as well.
    pub fn set_rate(&self, most: Option<Rate>) {
        self.change(|steering| steering.ceiling = most.map_or(Ceiling::Unlimited, Ceiling::At));
    }

    /// Sender: the policy from now on, with the ceiling in `policy` unless [`Control::set_rate`]
    /// set one. [`Policy::Emulated`] can be neither left nor chosen; [`Control::refused`] says so.
    pub fn set_policy(&self, policy: Policy) {
        self.change(|steering| steering.policy = Some(policy));
    }

    /// Pauses until [`Control::resume`]: a sender sends no data (`rfc998`: begins no other buffer),
    /// and a receiver grants no more, so that data of earlier grants still come. The connection
    /// stays.
    pub fn pause(&self) {
        self.change(|steering| steering.paused = true);
    }

    /// Ends the pause.
    pub fn resume(&self) {
        self.change(|steering| steering.paused = false);
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.lock().steering.paused
    }

    /// The changes so far.
    pub fn steering(&self) -> RuntimeSettings {
        self.lock().steering
    }

    /// The policy that the transfer could not go over to, if that was wanted last.
    pub fn refused(&self) -> Option<Policy> {
        self.lock().refused
    }

    fn change(&self, change: impl FnOnce(&mut RuntimeSettings)) {
        let mut wish = self.lock();
        change(&mut wish.steering);
        wish.changes += 1;
        wish.refused = None;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
