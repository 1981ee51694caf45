//! `netblt serve`'s clients: where a server is ([`address`]), how to ask it ([`client`]), and
//! commands for several addresses ([`command`]) with a target ([`target`]).

pub(crate) mod address;
pub(crate) mod client;
pub(crate) mod command;
pub(crate) mod target;
