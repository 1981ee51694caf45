//! The whole job: send or receive, from the rendezvous to the verdict.

mod list;
mod preview;
mod receive;
mod send;
pub(crate) mod session;
pub(crate) mod summary;

pub use self::list::list;
pub use self::preview::{Offered, Preview, preview};
pub use self::receive::receive;
pub use self::send::send;
