//! All there is to know about a world before it begins.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, Outage};
use netblt_proto::config::{PublicKey, Role, RuntimeSettings, Wire};

use crate::attacker::AttackerOptions;
use crate::bottleneck::FlowOptions;
use crate::host::HostOptions;
use crate::side::Side;

/// Control messages are repeated at least so often, or every four round trips (`docs/protocol
/// §6.2`).
pub(crate) const REPEATED: Duration = Duration::from_secs(2);

/// All there is to know about a world before it begins.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seeds everything random.
    pub seed: u64,
    /// Bytes to transfer.
    pub bytes: u64,
    /// An empty transfer has one buffer of no bytes rather than none. Always so on `rfc998`.
    pub at_least_one: bool,
    /// How many bytes of HAVE the receiver sends before it grants anything (`sealed`).
    pub have: u32,
    /// A receiver that waits to be opened grants buffers with its RESPONSE (`sealed`).
    pub greets: bool,
    /// The public keys of the active end and the passive one, if they prove themselves by static
    /// keys (`sealed`).
    pub keys: Option<[PublicKey; 2]>,
    /// The end that opens the connection.
    pub active: HostOptions,
    /// The end that waits to be opened.
    pub passive: HostOptions,
    /// The path from the active end to the passive one.
    pub there: LinkOptions,
    /// The path from the passive end to the active one.
    pub back: LinkOptions,
    /// Both directions become narrow meanwhile, and no router reports it.
    pub narrows: bool,
    /// One direction takes small packets only, smaller than any search for a size would find.
    pub chokes: bool,
    /// The path becomes another one in the midst of it: longer or shorter, and perhaps slower.
    pub another_way: bool,
    /// Hosts say "unreachable" for a program that is not running.
    pub icmp: bool,
    /// Programs that end without success are started again.
    pub persistent: bool,
    /// Programs killed on the way, unless they are done by then.
    pub kills: Vec<Kill>,
    /// Ends that get another address (`sealed`): the active one loses its old address, as behind a
    /// router that forgot it; the passive one speaks from a new one and is still found at the old.
    pub moves: Vec<(Side, Duration)>,
    /// A client that gives up, unless it is done by then.
    pub quit: Option<(Side, Duration)>,
    /// The changes that clients make while it runs.
    pub steers: Vec<(Side, Duration, RuntimeSettings)>,
    /// An attacker on the path.
    pub attacker: Option<AttackerOptions>,
    /// Flows that share the path with the transfer.
    pub neighbours: Vec<FlowOptions>,
    /// How many others open connections at the passive end's start, and vanish.
    pub crowd: u8,
    /// By when all must be over.
    pub deadline: Duration,
    /// How many steps it may take.
    pub max_steps: u64,
    /// Whether all datagrams of a machine are hashed, so that two worlds can be compared. No other
    /// check needs it, and it takes time.
    pub transcript: bool,
}

/// A program that is killed, and started again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// The end of the program.
    pub side: Side,
    /// When it is killed.
    pub at: Duration,
    /// How long it stays dead.
    pub down: Duration,
}

impl Setup {
    /// A transfer of `bytes` between two hosts over perfect links.
    pub fn new(seed: u64, bytes: u64, active: HostOptions, passive: HostOptions) -> Self {
        Self {
            seed,
            bytes,
            at_least_one: active.config.wire == Wire::Rfc998,
            have: 0,
            greets: true,
            keys: None,
            active,
            passive,
            there: LinkOptions::default(),
            back: LinkOptions::default(),
            narrows: false,
            chokes: false,
            another_way: false,
            icmp: false,
            persistent: false,
            kills: Vec::new(),
            moves: Vec::new(),
            quit: None,
            steers: Vec::new(),
            attacker: None,
            neighbours: Vec::new(),
            crowd: 0,
            deadline: Duration::from_secs(3600),
            max_steps: 50_000_000,
            transcript: true,
        }
    }

    /// The host on `side`.
    pub fn host(&self, side: Side) -> &HostOptions {
        match side {
            Side::Active => &self.active,
            Side::Passive => &self.passive,
        }
    }

    /// The longest time for which a direction of the path may be dead, or a suspended end. A live
    /// interval that is too short for all repetitions counts as dead.
    pub fn longest_outage(&self) -> Duration {
        let rtt = self.longest_round_trip();
        let pause = REPEATED.max(rtt * 4) + rtt;
        let mut longest = Duration::ZERO;
        let asleep = self.active.sleeps.iter().chain(&self.passive.sleeps);
        let asleep: Vec<_> = asleep.map(|(from, lasts)| (*from, *from + *lasts)).collect();
        for link in [&self.there, &self.back] {
            let mut dead = asleep.clone();
            let mut changes: Vec<_> = link.schedule.iter().collect();
            changes.sort_by_key(|change| change.at);
            // The last MTU is the one of the path.
            let last = changes.iter().rev().find_map(|change| change.mtu).unwrap_or(u16::MAX);
            let (mut out, mut narrow, mut dead_since) = (false, false, None);
            for (at, change) in changes.iter().enumerate() {
                out = change.outage.map_or(out, |outage| outage != Outage::None);
                // A path that is too narrow counts as dead.
                narrow = change.mtu.map_or(narrow, |mtu| mtu < last);
                if out || narrow {
                    dead_since.get_or_insert(change.at);
                } else if changes.get(at + 1).is_none_or(|next| next.at > change.at)
                    && let Some(since) = dead_since.take()
                {
                    dead.push((since, change.at));
                }
            }
            longest = longest.max(longest_of(dead, pause));
        }
        longest
    }

    /// The longest time for which nothing may reach `side` at its new address: until it asks, which
    /// may take `asked`, and is answered there. If it moves again before, the time starts over.
    pub fn longest_unfound(&self, side: Side, asked: Duration) -> Duration {
        let found = asked + self.longest_round_trip();
        let moves = self.moves.iter().filter(|(moved, _)| *moved == side);
        longest_of(moves.map(|(_, at)| (*at, *at + found)).collect(), Duration::ZERO)
    }

    /// A round trip when nothing queues.
    pub fn longest_round_trip(&self) -> Duration {
        let one_way = |link: &LinkOptions| {
            let delays = link.schedule.iter().filter_map(|change| change.delay);
            delays.fold(link.delay, Duration::max) + link.jitter
        };
        one_way(&self.there) + one_way(&self.back)
    }

    /// How likely `packets` in a row to `side` are all lost or spoilt, at the path's worst.
    pub fn chance_of_loss(&self, side: Side, packets: u32) -> f64 {
        let link = if side == Side::Passive { &self.there } else { &self.back };
        let share = |of: Probability| of.ppb() as f64 / 1e9;
        let spoilt = share(link.corrupt);
        let lost = share(link.loss);
        let begins = lost + spoilt - lost * spoilt;
        // In runs the next one is lost as the one before was; else each for itself.
        let goes_on = link.loss_burst.map_or(0.0, |run| 1.0 - 1.0 / f64::from(run.max(1)));
        let more = i32::try_from(packets.saturating_sub(1)).unwrap_or(i32::MAX);
        begins * goes_on.max(begins).powi(more)
    }

    /// The end that has the data.
    pub fn sender(&self) -> Side {
        match self.active.config.role {
            Role::Sender => Side::Active,
            Role::Receiver => Side::Passive,
        }
    }

    /// Whether the active end calls a sender and cannot return the number in its RESPONSE, so that
    /// the sender doubts its address (`docs/protocol §2.3`).
    pub fn calls_as_a_stranger(&self) -> bool {
        let caller = &self.active.config;
        let receives = (caller.wire, caller.role) == (Wire::Rfc998, Role::Receiver);
        receives && !caller.client.starts_with("netblt")
    }
}

/// The longest of these times, those no more than `pause` apart taken for one.
fn longest_of(mut times: Vec<(Duration, Duration)>, pause: Duration) -> Duration {
    times.sort_unstable();
    let (mut longest, mut now) = (Duration::ZERO, None);
    for (from, to) in times {
        let (since, until) = now.filter(|(_, until)| from <= *until + pause).unwrap_or((from, to));
        now = Some((since, to.max(until)));
        longest = longest.max(to.max(until) - since);
    }
    longest
}

#[cfg(test)]
mod tests {
    use netblt_path::Change;
    use netblt_proto::config::Config;

    use super::*;

    fn setup() -> Setup {
        let host = |role| HostOptions::new(Config::new(Wire::Sealed, role));
        Setup::new(1, 1, host(Role::Sender), host(Role::Receiver))
    }

    #[test]
    fn a_path_is_dead_as_long_as_anything_kills_it() {
        let at = |s, outage, mtu| Change {
            at: Duration::from_secs(s),
            outage,
            mtu,
            ..Change::default()
        };
        let mut setup = setup();
        setup.there.schedule = vec![
            at(1, Some(Outage::Drop), None),
            at(2, None, Some(90)),
            at(4, Some(Outage::None), None),
            // Healed and narrow again, in no time.
            at(7, Some(Outage::None), Some(u16::MAX)),
            at(7, None, Some(90)),
            at(11, None, Some(u16::MAX)),
        ];
        setup.back.schedule = vec![
            at(3, Some(Outage::Hold), None),
            at(9, Some(Outage::None), None),
            at(20, Some(Outage::None), None),
        ];
        assert_eq!(setup.longest_outage(), Duration::from_secs(10));
        setup.there.schedule.clear();
        assert_eq!(setup.longest_outage(), Duration::from_secs(6));
        // A last narrow MTU is the path's. Before that the path was too narrow.
        setup.there.schedule = vec![at(1, None, Some(592)), at(9, None, Some(1280))];
        assert_eq!(setup.longest_outage(), Duration::from_secs(8));
        // A suspended host does not see it heal.
        let secs = Duration::from_secs;
        setup.active.sleeps = vec![(secs(8), secs(3)), (secs(30), secs(4))];
        assert_eq!(setup.longest_outage(), secs(10));
        // A second is too short for a packet and its answer.
        setup.active.sleeps = vec![(secs(30), secs(4)), (secs(35), secs(4)), (secs(50), secs(4))];
        assert_eq!(setup.longest_outage(), secs(9));
    }

    #[test]
    fn a_second_move_before_the_first_is_found_adds_both_times() {
        let (ms, side) = (Duration::from_millis, Side::Active);
        let mut setup = setup();
        (setup.there.delay, setup.back.delay) = (ms(400), ms(600));
        let unfound = |setup: &Setup| setup.longest_unfound(side, ms(1500));
        assert_eq!(unfound(&setup), Duration::ZERO);
        setup.moves = vec![(side, ms(1000)), (side.other(), ms(3000)), (side, ms(3600))];
        assert_eq!(unfound(&setup), ms(2500));
        setup.moves.push((side, ms(3400)));
        assert_eq!(unfound(&setup), ms(5100));
    }

    #[test]
    fn runs_of_losses_swallow_more_in_a_row() {
        let mut setup = setup();
        setup.back.loss = Probability::from_percent(10);
        let chance = |setup: &Setup| setup.chance_of_loss(Side::Active, 5);
        assert!((chance(&setup) / 1e-5 - 1.0).abs() < 1e-6);
        setup.back.loss_burst = Some(2);
        assert!((chance(&setup) / 0.00625 - 1.0).abs() < 1e-6);
        assert!(setup.chance_of_loss(Side::Passive, 1) < f64::MIN_POSITIVE);
    }
}
