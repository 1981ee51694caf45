//! `netblt cp` and its far end: two programs, the user's own ssh between them, and the transfer
//! beside or inside it.
//!
//! The near end ([`near`]) starts the far end with ssh ([`link`], [`ssh`]) and speaks with it over
//! its standard input and output ([`channel`], [`words`]): nothing of a name or a path is ever a
//! word of a shell. Where UDP passes is found by trying ([`probe`]); where it does not, datagrams
//! go through ssh ([`tunnel`]). Which side sends is the user's choice ([`place`], [`gather`]), and
//! which files ([`listed`], [`standing`]). Where neither side is here, there are two far ends, and
//! this one introduces them ([`third`]). Which options mean something on which way
//! is one table ([`routes`]).

pub(crate) mod channel;
pub(crate) mod gather;
pub(crate) mod install;
pub(crate) mod link;
pub(crate) mod listed;
pub(crate) mod near;
pub(crate) mod options;
pub(crate) mod place;
pub(crate) mod probe;
pub(crate) mod routes;
pub(crate) mod ssh;
pub(crate) mod standing;
pub(crate) mod third;
pub(crate) mod tunnel;
pub(crate) mod words;
