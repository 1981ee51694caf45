//! A datagram is handed to a machine, before the eyes of an attacker.

use netblt_proto::api::Datagram;

use super::{Origin, World};
use crate::side::Side;

impl World {
    /// Gives `datagram` to the machine of `side`. An attacker sees what took the path, and learns
    /// from the world whether it was dropped.
    pub(super) fn hand_over(&mut self, side: Side, origin: Origin, datagram: Datagram<'_>) {
        let now = self.now;
        let Some(endpoint) = &mut self.hosts[side].endpoint else { return };
        let took_the_path = matches!(origin, Origin::True | Origin::Spoiled);
        let Some(attacker) = self.attacker.as_mut().filter(|_| took_the_path) else {
            endpoint.handle_datagram(now, datagram);
            return;
        };
        attacker.arrived(side, datagram.bytes);
        let before = endpoint.stats(now).datagrams_dropped;
        endpoint.handle_datagram(now, datagram);
        if endpoint.stats(now).datagrams_dropped > before {
            attacker.dropped(side);
        }
    }
}
