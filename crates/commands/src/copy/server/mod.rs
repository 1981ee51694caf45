//! A copy to ([`upload`]) and from ([`download`]) servers of files, from one to another
//! ([`between`]), and within one ([`within`]).
//!
//! Sources on a server are looked up there ([`sources`]). Each server has one connection
//! ([`servers`]), and several transfers are one copy ([`totals`]).

pub(crate) mod between;
pub(crate) mod download;
pub(crate) mod servers;
pub(crate) mod sources;
pub(crate) mod totals;
pub(crate) mod upload;
pub(crate) mod within;
