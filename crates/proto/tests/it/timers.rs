//! Time that passes for one end, timer by timer.

use std::ops::ControlFlow;

use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

/// So many timers in one span of time are one that is never content.
pub(crate) const MOST: u32 = 2_000_000;

/// Goes on to the next timer of `end` until then, and fires it; or breaks when none is left, and it
/// is `until`.
pub(crate) fn fire(end: &mut Endpoint, now: &mut Instant, until: Instant) -> ControlFlow<()> {
    match end.next_timeout(*now) {
        Some(at) if at <= until => *now = (*now).max(at),
        _ => {
            *now = until;
            return ControlFlow::Break(());
        }
    }
    end.handle_timeout(*now);
    ControlFlow::Continue(())
}
