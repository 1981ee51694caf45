//! The whole job: send or receive, from the rendezvous to the verdict.

mod background;
pub(crate) mod growth;
mod helm;
pub(crate) mod lanes;
pub(crate) mod limit;
mod list;
mod preview;
pub(crate) mod promise;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod summary;

pub use self::background::{Event, Transfer};
pub use self::list::Offered;
pub use self::preview::{Preview, preview};
pub use self::receive::{list, receive};
pub use self::send::send;
