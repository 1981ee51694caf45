//! A file server for many clients (`netblt serve`), and its client: one UDP port and one event
//! loop; each connection, or branch of a connection, carries one request (`docs/protocol §8.8`).
//!
//! [`serve()`] runs the server until it is stopped; [`client`] sends requests.

mod admission;
mod audit;
mod authorized_clients;
mod buffer_share;
mod cleanup;
pub mod client;
mod connection;
mod connection_state;
mod handlers;
mod jobs;
mod listings;
mod memory_pool;
mod metrics;
mod pending_uploads;
mod push;
mod rate_limiter;
mod requests;
mod response;
mod response_decoder;
mod roots;
mod route;
mod server;
mod service;
mod session;
mod sessions;
mod status;
mod takeover;
mod third_party;

pub use self::audit::{AuditKind, AuditRecord, Verdict};
pub use self::authorized_clients::AuthorizedClients;
pub use self::metrics::Metrics;
pub use self::requests::entry::{Entry, EntryType};
pub use self::requests::read::Piece;
pub use self::requests::request_kind::RequestKind;
pub use self::server::serve;
pub use self::service::{PORT, ServerObserver, Service};
pub use self::session::Session;
pub use self::third_party::ThirdPartyError;
pub use crate::permissions::Permissions;
