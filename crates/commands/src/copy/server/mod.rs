//! A copy to and from servers of files ([`copy`]), whose sources a server lists ([`sources`]).

pub(crate) mod copy;
pub(crate) mod sources;
