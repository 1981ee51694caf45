//! The context in which a server performs a request.

use crate::cancel::Cancel;
use crate::disk::layout::Layout;
use crate::options::Options;
use crate::serve::cleanup::Cleanups;
use crate::serve::listings::Listings;
use crate::serve::rate_limiter::ClientId;

/// The context of a request.
pub(in crate::serve) struct HandlerContext<'a> {
    pub(in crate::serve) options: &'a Options,
    pub(in crate::serve) layout: Layout,
    pub(in crate::serve) cleanups: &'a Cleanups,
    pub(in crate::serve) listings: &'a Listings,
    pub(in crate::serve) client: ClientId,
    /// The client may read files here.
    pub(in crate::serve) may_read: bool,
    pub(in crate::serve) cancel: &'a Cancel,
}
