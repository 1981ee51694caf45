//! All there is to know about a world before it begins.

use std::time::Duration;

use netblt_path::{LinkOptions, Outage};
use netblt_proto::config::{PublicKey, Role, Steering, Wire};

use crate::attacker::AttackerOptions;
use crate::host::HostOptions;
use crate::side::Side;

/// All there is to know about a world before it begins.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seeds everything random.
    pub seed: u64,
    /// Bytes to transfer.
    pub bytes: u64,
    /// An empty transfer has one buffer of no bytes rather than none. Always so on `rfc998`.
    pub at_least_one: bool,
    /// How many bytes the receiver says it has, before it grants anything (`sealed`).
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
    /// Both directions become narrow in the midst of it, and no router says so.
    pub narrows: bool,
    /// One direction takes small packets only, smaller than any search for a size would find.
    pub chokes: bool,
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
    /// What clients change while it runs.
    pub steers: Vec<(Side, Duration, Steering)>,
    /// Somebody on the path who means harm.
    pub attacker: Option<AttackerOptions>,
    /// How many others open connections at the passive end's start, and vanish.
    pub crowd: u8,
    /// By when all must be over.
    pub deadline: Duration,
    /// How many steps it may take.
    pub max_steps: u64,
}

/// A program that is killed, and started again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// The end whose program it is.
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
            icmp: false,
            persistent: false,
            kills: Vec::new(),
            moves: Vec::new(),
            quit: None,
            steers: Vec::new(),
            attacker: None,
            crowd: 0,
            deadline: Duration::from_secs(3600),
            max_steps: 50_000_000,
        }
    }

    /// The host on `side`.
    pub fn host(&self, side: Side) -> &HostOptions {
        match side {
            Side::Active => &self.active,
            Side::Passive => &self.passive,
        }
    }

    /// The longest time for which a direction of the path may be dead.
    pub fn longest_outage(&self) -> Duration {
        let mut longest = Duration::ZERO;
        for link in [&self.there, &self.back] {
            let mut changes: Vec<_> = link.schedule.iter().collect();
            changes.sort_by_key(|change| change.at);
            let mut dead_since = None;
            for change in changes {
                // A path too narrow is as good as dead.
                let narrow = change.mtu.is_some_and(|mtu| mtu < u16::MAX);
                let dead = change.outage.is_some_and(|outage| outage != Outage::None);
                if dead || narrow {
                    dead_since.get_or_insert(change.at);
                } else if let Some(since) = dead_since.take() {
                    longest = longest.max(change.at.saturating_sub(since));
                }
            }
        }
        longest
    }

    /// Mean length in packets of the runs in which what `side` is sent gets lost; 1 if it is lost
    /// independently.
    pub fn runs_towards(&self, side: Side) -> u32 {
        let link = if side == Side::Passive { &self.there } else { &self.back };
        link.loss_burst.unwrap_or(1)
    }

    /// The end that has the data.
    pub fn sender(&self) -> Side {
        match self.active.config.role {
            Role::Sender => Side::Active,
            Role::Receiver => Side::Passive,
        }
    }

    /// Whether the active end calls a sender and cannot give back the number in its RESPONSE, so
    /// that the sender doubts that it is heard (`docs/protocol.md §2.3`).
    pub fn calls_as_a_stranger(&self) -> bool {
        let caller = &self.active.config;
        let receives = (caller.wire, caller.role) == (Wire::Rfc998, Role::Receiver);
        receives && !caller.client.starts_with("netblt")
    }
}
