//! A socket of the user's own by which a transfer is changed while it runs: `netblt control`.
//!
//! One line of JSON each way: a [`Request`], and a [`Reply`]. The directory of the sockets
//! ([`place`]) is open to this user alone, and so are they.

mod server;
pub(crate) mod socket_dir;

use netblt::{Control, Options, Policy};
use netblt_proto::config::Role;
use serde::{Deserialize, Serialize};

use crate::commands::send::PolicyName;
use crate::reporter::Reporter;
pub(crate) use server::Server;

/// The requested changes. Fields without a value stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) rate: Option<RateChange>,
    pub(crate) policy: Option<PolicyName>,
    pub(crate) paused: Option<bool>,
}

impl Request {
    /// Whether it only asks how things are.
    pub(crate) fn is_question(&self) -> bool {
        *self == Self::default()
    }
}

/// A ceiling, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RateChange {
    Lifted,
    /// Bytes of IP packets a second.
    At(u64),
}

/// The answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Done, and this is how it is.
    State(State),
    /// Nothing was changed, for this reason.
    Refused(String),
}

/// How a transfer is. A promise to scripts, as all JSON here: fields are only ever added.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) pid: u32,
    /// `sender` or `receiver`.
    pub(crate) role: String,
    /// The sources, or the destination.
    pub(crate) what: String,
    /// The other end, once there is one.
    pub(crate) peer: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) total: Option<u64>,
    pub(crate) elapsed_seconds: f64,
    pub(crate) mbps: f64,
    /// The sender's.
    pub(crate) policy: Option<String>,
    /// The ceiling in force at this end.
    pub(crate) ceiling_mbps: Option<f64>,
    pub(crate) paused: bool,
}

/// Lets other programs of this user change the transfer with these options, if that is possible. If
/// not, it goes on all the same.
pub(crate) fn offer(report: &mut Reporter, options: &mut Options, role: Role, what: String) {
    let control = Control::new();
    options.control = Some(control.clone());
    match Server::start(control, options, role, what) {
        Ok(server) => report.serve(server),
        Err(error) => report.detail(&format!("`netblt control` cannot find this: {error}")),
    }
}

/// The names of the sources, shortened.
pub(crate) fn few<'a>(mut names: impl Iterator<Item = std::borrow::Cow<'a, str>>) -> String {
    let first = names.next().unwrap_or_default().into_owned();
    match names.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Whether the policy can be left, or taken up, on the way.
fn may_change(policy: Policy) -> bool {
    !matches!(policy, Policy::Emulated(_))
}
