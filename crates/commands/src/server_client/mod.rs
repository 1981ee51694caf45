//! `netblt serve`'s clients: where a server is ([`address`]), how to ask it ([`client`]), and `cp`
//! to and from it ([`copy`]).

pub(crate) mod address;
pub(crate) mod client;
pub(crate) mod copy;
pub(crate) mod sources;
