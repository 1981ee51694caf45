//! Static keys on disk: a user's own key pair ([`mod@file`]), the clients' keys that a server
//! accepts ([`authorized`]), and the known keys of servers ([`known`], [`tofu`]). The protocol is
//! in `docs/protocol §4.8, §4.9`; the files are in `docs/guide/keys.md`.

pub mod authorized;
pub mod file;
pub mod known;
pub mod line;
pub mod tofu;

pub use self::authorized::InvalidLine;
pub use self::known::KnownServers;
pub use self::line::{PublicLine, fingerprint};
pub use crate::net::key_discovery::ask;
