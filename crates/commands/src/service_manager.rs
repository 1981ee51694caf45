//! What systemd, or another service manager, learns of a server: that it is ready, alive or
//! stopping, by `sd_notify(3)`. Without one nothing is sent.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::stdout::say;

/// The other end of `NOTIFY_SOCKET`.
pub(crate) struct ServiceManager {
    /// How often it wants a sign of life: half of its patience (`WATCHDOG_USEC`).
    interval: Option<Duration>,
    last: Instant,
    is_stopping: bool,
    /// It cannot be reached, and the user knows it.
    is_lost: bool,
}

impl ServiceManager {
    pub(crate) fn new() -> Self {
        let interval = sd_notify::watchdog_enabled().map(|patience| patience / 2);
        Self { interval, last: Instant::now(), is_stopping: false, is_lost: false }
    }

    /// The server listens.
    pub(crate) fn ready(&mut self) {
        self.send(NotifyState::Ready);
    }

    /// The server takes no more requests. It is sent once.
    pub(crate) fn stopping(&mut self) {
        if !self.is_stopping {
            self.is_stopping = true;
            self.send(NotifyState::Stopping);
        }
    }

    /// The server's loop has gone round.
    pub(crate) fn alive(&mut self) {
        if self.interval.is_some_and(|interval| self.last.elapsed() >= interval) {
            self.last = Instant::now();
            self.send(NotifyState::Watchdog);
        }
    }

    fn send(&mut self, state: NotifyState<'_>) {
        let Err(error) = sd_notify::notify(&[state]) else { return };
        if !self.is_lost {
            self.is_lost = true;
            say(&format!("netblt: warning: the service manager cannot be reached: {error}"));
        }
    }
}
