//! Static keys on disk: one's own ([`mod@file`]), those that a server lets in ([`authorized`]),
//! and those of servers that were met before ([`known`]), by which they are called ([`tofu`]). The
//! protocol's side of it is in `docs/protocol.md §4.8, §4.9`; the files' in `docs/guide/keys.md`.

pub mod authorized;
pub mod file;
pub mod known;
pub mod line;
pub mod tofu;

pub use self::authorized::InvalidLine;
pub use self::known::KnownServers;
pub use self::line::{PublicLine, fingerprint};
pub use crate::net::key_discovery::ask;
