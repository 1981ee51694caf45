//! `netblt cp` and its agent: two programs, the user's own ssh between them, and the transfer
//! beside or inside it.
//!
//! The client ([`client`]) starts the agent with ssh ([`ssh_session`], [`ssh`]) and exchanges
//! messages with it over its standard input and output ([`framing`], [`messages`]). No name and no
//! path is ever a word of a shell. Probes find where UDP passes ([`probe`]). Where it does not,
//! datagrams go through ssh ([`tunnel`]). The user chooses which side sends ([`location`],
//! [`operands`]), and which files ([`files_from`], [`existing`]). If neither side is this machine,
//! there are two agents, and this program introduces them ([`third_party`]). One table has the
//! options of each route ([`routes`]).

pub(crate) mod client;
pub(crate) mod existing;
pub(crate) mod files_from;
pub(crate) mod framing;
pub(crate) mod install;
pub(crate) mod location;
pub(crate) mod messages;
pub(crate) mod operands;
pub(crate) mod options;
pub(crate) mod probe;
pub(crate) mod routes;
pub(crate) mod ssh;
pub(crate) mod ssh_session;
pub(crate) mod third_party;
pub(crate) mod tunnel;
