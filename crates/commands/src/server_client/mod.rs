//! `netblt serve`'s clients: where a server is ([`address`]), and how to ask it ([`client`]).

pub(crate) mod address;
pub(crate) mod client;
