//! Checks of the static keys that the ends have proved.

use super::World;
use crate::coverage::Mark;
use crate::side::Side;

impl World {
    /// An end that opens by keys knows the key of the other end.
    pub(super) fn check_keys(&mut self, side: Side) {
        let keys = self.setup.keys;
        let expected = keys.map(|[active, passive]| match side {
            Side::Active => passive,
            Side::Passive => active,
        });
        let proven = self.hosts[side].endpoint.as_ref().and_then(|end| end.peer_key());
        if proven != expected {
            let what = format!("its peer's key is {proven:?} and not {expected:?}");
            self.oracle.find(self.now, side, what);
        }
        self.coverage.see(Mark::ByKeys, u64::from(proven.is_some()));
    }
}
