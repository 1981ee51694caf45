//! The whole job: send or receive, from the rendezvous to the verdict.

pub(crate) mod announcement;
pub(crate) mod buffer_pool;
mod control_watcher;
mod handle;
pub(crate) mod limited_by;
mod list;
mod preview;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod subflows;
pub(crate) mod summary;

pub use self::handle::{Event, Transfer};
pub use self::list::Offered;
pub use self::preview::{Preview, preview};
pub use self::receive::{list, receive};
pub use self::send::send;
