//! Settings that the client changes while a transfer runs (`docs/protocol §6.9`).

use super::{Connection, Endpoint};
use crate::config::{Ceiling, Policy, RuntimeSettings};
use crate::connection::Machine;
use crate::rate;
use crate::time::Instant;
use crate::units::Rate;

impl Endpoint {
    /// Replaces all settings by `steering`. False if this transfer cannot change to its policy
    /// ([`RuntimeSettings::policy`]): then the old policy stays, and the other settings apply.
    pub fn steer(&mut self, now: Instant, steering: RuntimeSettings) -> bool {
        let before = self.chosen();
        let wanted = steering.policy.unwrap_or(self.config.policy);
        let may = before.may_become(wanted, self.config.wire);
        let policy = if may { steering.policy } else { self.steering.policy };
        self.steering = RuntimeSettings { policy, ..steering };
        let policy = self.chosen();
        let changed = before.with_ceiling(None) != policy.with_ceiling(None);
        if let Some(mut connection) = self.connection.take() {
            self.apply(now, &mut connection, changed.then_some(policy));
            self.connection = Some(connection);
        }
        self.take_trace();
        may
    }

    /// The policy in force, with the ceiling in force.
    pub fn policy(&self) -> Policy {
        self.chosen().with_ceiling(self.ceiling())
    }

    /// The policy that the client chose last.
    pub(super) fn chosen(&self) -> Policy {
        self.steering.policy.unwrap_or(self.config.policy)
    }

    /// Passes the settings to the machine of `connection`; the policy only if it changes.
    pub(super) fn apply(&self, now: Instant, connection: &mut Connection, policy: Option<Policy>) {
        let ceiling = self.ceiling();
        match &mut connection.machine {
            Machine::Sender(sender) => {
                if let Some(policy) = policy {
                    let negotiated = *sender.negotiated();
                    let law = rate::build_anew(policy, &negotiated, sender.overhead());
                    sender.follow(now, law);
                }
                sender.set_ceiling(now, ceiling);
                sender.pause(now, self.steering.paused);
            }
            Machine::Receiver(receiver) => {
                let changed = self.steering.ceiling != Ceiling::Configured;
                receiver.steer(now, changed.then_some(ceiling), self.steering.paused);
            }
        }
    }

    /// The client's ceiling in force.
    fn ceiling(&self) -> Option<Rate> {
        match self.steering.ceiling {
            Ceiling::Configured => self.chosen().ceiling(),
            Ceiling::Unlimited => None,
            Ceiling::At(rate) => Some(rate),
        }
    }
}
