//! The machines of RFC 1030 with their processing costs. `docs/decisions/rfc1030-models.md` says
//! where each figure is from.

use std::time::Duration;

use crate::station::{Costs, Interface, Machine};

/// The PC/AT's burst timer: "accurate to within 1 millisecond" (RFC 1030 §5), on every network.
const TIMER: Duration = Duration::from_millis(1);
/// Its time for each entry of the list of buffers, before a burst.
const OUTSTANDING: Duration = Duration::from_micros(160);

/// The PC/AT on the ring, with a Proteon P1300.
pub(crate) const RING_PC_AT: Machine = Machine { costs: RING_COSTS, interface: P1300 };

const RING_COSTS: Costs = Costs {
    send: Duration::from_micros(700),
    send_byte_ns: 3700,
    receive: Duration::ZERO,
    receive_byte_ns: 4200,
    made: Duration::from_micros(1400),
    handling: Duration::from_micros(1100),
    burst: Duration::from_micros(2750),
    outstanding: OUTSTANDING,
    timer: TIMER,
};

const P1300: Interface = Interface {
    buffers: 16,
    deaf: false,
    copy_byte_ns: 0,
    turn: Duration::ZERO,
    enable: Duration::ZERO,
    wire_byte_ns: 800,
};

/// The PC/AT on the Ethernet, with a 3C500.
pub(crate) const ETHERNET_PC_AT: Machine = Machine { costs: ETHERNET_COSTS, interface: I3C500 };

const ETHERNET_COSTS: Costs = Costs {
    send: Duration::from_micros(1910),
    send_byte_ns: 2760,
    receive: Duration::from_micros(2000),
    receive_byte_ns: 2770,
    made: Duration::from_micros(1867),
    handling: Duration::from_micros(222),
    burst: Duration::from_micros(2178),
    outstanding: OUTSTANDING,
    timer: TIMER,
};

const I3C500: Interface = Interface {
    buffers: 16,
    deaf: true,
    copy_byte_ns: 810,
    turn: Duration::from_micros(3800),
    enable: Duration::from_micros(2353),
    wire_byte_ns: 800,
};

/// The SUN-3 that receives from the Wideband. It is fast enough never to be the bottleneck. The 0.5
/// % of the packets that it drops (§7) are in the loss of each row.
pub(crate) const SUN_3: Machine = Machine { costs: SUN_COSTS, interface: SUN_INTERFACE };

const SUN_COSTS: Costs = Costs {
    send: Duration::from_micros(500),
    send_byte_ns: 500,
    receive: Duration::from_micros(300),
    receive_byte_ns: 300,
    made: Duration::from_micros(200),
    handling: Duration::from_micros(200),
    burst: Duration::ZERO,
    outstanding: Duration::ZERO,
    timer: Duration::ZERO,
};

const SUN_INTERFACE: Interface = Interface {
    buffers: 32,
    deaf: false,
    copy_byte_ns: 0,
    turn: Duration::ZERO,
    enable: Duration::ZERO,
    wire_byte_ns: 800,
};
