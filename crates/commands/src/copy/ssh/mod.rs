//! A copy by ssh: two programs, the user's own ssh between them, and the transfer beside or inside
//! it.
//!
//! The client ([`client`]) starts the agent ([`agent`]) with ssh ([`connect`], [`command`],
//! [`session`]). Both exchange messages over the agent's standard input and output ([`framing`],
//! [`messages`]). No name and no path is ever a word of a shell. Probes find where UDP passes
//! ([`probe`]). Where it does not, datagrams go through ssh ([`tunnel`]). A machine without the
//! program can get it ([`install`]). If neither side is this machine, there are two agents, and
//! this program gives each the addresses of the other ([`third_party`]).

pub(crate) mod agent;
pub(crate) mod client;
pub(crate) mod command;
pub(crate) mod connect;
pub(crate) mod framing;
pub(crate) mod install;
pub(crate) mod messages;
mod mirror;
pub(crate) mod probe;
pub(crate) mod session;
pub(crate) mod third_party;
pub(crate) mod tunnel;
