//! The OPEN of a passive end's connection on `rfc998`, and the RESPONSE to its repetitions
//! (`docs/protocol §2.1, §2.3`).

use super::responder_action::ResponderAction;
use super::return_routability;
use crate::api::Route;
use crate::wire::packet::Parameters;
use crate::wire::rfc998::{self, Ports};

/// An OPEN that was answered.
#[derive(Debug)]
pub(super) struct Rfc998Established {
    pub(super) route: Route,
    pub(super) ports: Ports,
    pub(super) proposal: Parameters,
    pub(super) settled: Parameters,
    /// The client string of RESPONSE while the proof is asked for.
    pub(super) client: String,
    /// An OPEN that returns it proves its address, and gets the other answer.
    pub(super) proof: u32,
}

impl Rfc998Established {
    /// Answers another OPEN from the same ports; `half_open` says that no data came yet.
    pub(super) fn handle_open(
        &mut self,
        proposal: Parameters,
        half_open: bool,
    ) -> ResponderAction<'static> {
        if self.proposal.uid == proposal.uid {
            let validated = return_routability::of(&proposal.client) == Some(self.proof);
            return match validated {
                true => ResponderAction::Validated(self.last_response()),
                false => ResponderAction::Reply(self.response()),
            };
        }
        if half_open && self.is_restart(&proposal) {
            self.proposal = proposal;
            return ResponderAction::Reopened(self.response());
        }
        let mut abort = Vec::new();
        rfc998::encode_abort(self.ports, "these ports have a connection", &mut abort);
        ResponderAction::Reply(abort)
    }

    /// Whether `other` comes from the same program, restarted: then it does not matter which of the
    /// two is alive, since its packets mean the same.
    fn is_restart(&self, other: &Parameters) -> bool {
        Parameters { uid: other.uid, ..self.proposal.clone() } == *other
    }

    /// The RESPONSE to its OPEN.
    pub(super) fn response(&self) -> Vec<u8> {
        self.response_with(&self.client)
    }

    /// The RESPONSE to the OPEN that returns the proof.
    fn last_response(&self) -> Vec<u8> {
        self.response_with(&self.settled.client)
    }

    fn response_with(&self, client: &str) -> Vec<u8> {
        let (uid, client) = (self.proposal.uid, client.to_owned());
        let mut out = Vec::new();
        let settled = Parameters { uid, client, ..self.settled.clone() };
        rfc998::encode_response(self.ports, &settled, &mut out);
        out
    }
}
