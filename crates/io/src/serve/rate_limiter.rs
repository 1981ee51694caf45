//! The rate limiter of a server: one rate for all its traffic, one for each key, and an even share
//! of these for clients, sessions and requests (`docs/guide/servers.md`, *Rates*).
//!
//! A request has a *share*, in bytes of IP packets a second: a sender here keeps to it, and the
//! sender at the other end gets it. All shares together never exceed the rate. A request that its
//! share limits, or that has not left it unused for [`HOLD`], gets as much as any other. What the
//! others leave is divided again.
//!
//! A client that uploads may ignore its share. So each client has a token bucket, filled at the
//! rate of its share, from which all its traffic is taken: data to it when they leave, data from it
//! when they are granted. A client with an empty bucket is granted nothing.
//!
//! The limiter reads no clock and sends nothing: times and counts come in, shares and grants go
//! out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netblt_proto::config::PublicKey;
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;

/// The shortest time over which traffic is measured.
pub(super) const SPELL: Duration = Duration::from_millis(100);
/// A request counts as one that can use all it gets until it has left a part of its share unused
/// for so long.
const HOLD: Duration = Duration::from_secs(2);
/// The number of recent spells that show the use of a request that cannot use its share.
const RECENT: usize = 20;
/// A request that moves less than this part of its share in a spell is held up by something else,
const USED: f64 = 0.9;
/// and keeps this multiple of its best recent spell, to grow into.
const SPARE: f64 = 1.25;
/// A short request is done within this time, in seconds, where shares allow it.
const BRIEF: f64 = 0.05;
/// The least that a request is given, in bytes a second: a share of nothing would end it.
const LEAST: f64 = 1000.0;
/// An uploading client is granted its share of this many seconds ahead of what it may have sent,
/// and one buffer.
const AHEAD: f64 = 1.0;
/// For how many seconds a client's unused share is kept.
const KEPT: f64 = 0.1;
/// The time, in seconds, within which about all excess of a client is made up for.
const REPAID: f64 = 1.0;

/// A client, with an even share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientId {
    /// The owner of a key.
    Key([u8; 32]),
    /// Clients with the server's ticket, at one address.
    At(IpAddr),
}

impl ClientId {
    /// The client that has shown this key, if any, and is at this address.
    pub(super) fn of(key: Option<PublicKey>, peer: SocketAddr) -> Self {
        key.map_or_else(|| Self::at(peer.ip()), |key| Self::Key(key.0))
    }

    /// Those at this address. An IPv6 network of 64 bits counts as one client.
    fn at(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::At(address.into()),
            IpAddr::V6(address) => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                Self::At(std::net::Ipv6Addr::from_bits(network).into())
            }
        }
    }
}

/// The client and the session of a request, and the rate of its key, if that has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestOrigin {
    pub(super) client: ClientId,
    /// Its session; of a connection of one request its own number.
    pub(super) session: u64,
    pub(super) most: Option<Rate>,
}

/// The counts of a request since its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowCounts {
    /// Bytes of IP packets that were sent to its client, or came from it.
    pub(super) moved: u64,
    /// Bytes that were granted to its client and have not come.
    pub(super) ahead: u64,
    /// Bytes that it will have moved in the end, as far as that is known.
    pub(super) total: Option<u64>,
    /// It may move something now.
    pub(super) moves: bool,
}

/// A request.
#[derive(Debug)]
struct Flow {
    place: RequestOrigin,
    seen: FlowCounts,
    /// Bytes of it that were taken from its client's bucket.
    charged: u64,
    /// Bytes that had moved by the last spell, and in each of the newest spells, a second.
    measured: u64,
    recent: [f64; RECENT],
    /// When it was last seen to use its share, or came.
    hungry: Instant,
    /// It waits for a grant; bytes that it was granted, for its turn.
    waits: bool,
    served: u64,
    share: f64,
}

impl Flow {
    /// The part of its client's bucket that belongs to it by now.
    fn due(&self) -> u64 {
        self.seen.moved + self.seen.ahead
    }

    /// The rate that it can use, as far as known, in bytes a second.
    fn demand(&self, now: Instant) -> f64 {
        if !self.seen.moves || (self.waits && self.seen.ahead == 0) {
            return 0.0;
        }
        let peak = self.recent.iter().copied().fold(0.0, f64::max);
        let seen = if now.since(self.hungry) < HOLD { f64::INFINITY } else { peak * SPARE };
        // Lost data are sent again after everything was sent once.
        let left =
            self.seen.total.map(|total| (total / 8).max(total.saturating_sub(self.seen.moved)));
        let left = left.map_or(f64::INFINITY, |left| left as f64 / BRIEF);
        seen.min(left).max(LEAST)
    }
}

/// A client's bucket, and its traffic.
#[derive(Debug)]
struct Account {
    /// Bytes that it may still move now. Bytes granted ahead can make it negative.
    level: f64,
    filled: Instant,
    share: f64,
    /// Bytes granted to its sessions, for their turns.
    served: BTreeMap<u64, u64>,
}

impl Account {
    fn new(now: Instant) -> Self {
        Self { level: 0.0, filled: now, share: 0.0, served: BTreeMap::new() }
    }

    fn fill(&mut self, now: Instant) {
        let spell = now.since(std::mem::replace(&mut self.filled, now)).as_secs_f64();
        if self.share.is_finite() {
            self.level = (self.level + self.share * spell).min(self.share * KEPT);
        }
    }
}

/// The rates of a server.
#[derive(Debug)]
pub(super) struct RateLimiter {
    total: Option<f64>,
    clients: BTreeMap<ClientId, Account>,
    flows: BTreeMap<u64, Flow>,
    measured: Instant,
}

impl RateLimiter {
    /// For a server with this rate for all together, if it has one.
    pub(super) fn new(total: Option<Rate>) -> Self {
        let total = total.map(bytes);
        Self { total, clients: BTreeMap::new(), flows: BTreeMap::new(), measured: Instant::EPOCH }
    }

    /// Whether there is a rate to keep for a key with this rate.
    pub(super) fn limits(&self, most: Option<Rate>) -> bool {
        self.total.is_some() || most.is_some()
    }

    /// A request has come.
    pub(super) fn open(&mut self, now: Instant, id: u64, place: RequestOrigin) {
        let account = self.clients.entry(place.client).or_insert_with(|| Account::new(now));
        let least = account.served.values().min().copied().unwrap_or(0);
        account.served.entry(place.session).or_insert(least);
        let served = self.flows.values().filter(|flow| flow.place.session == place.session);
        let served = served.map(|flow| flow.served).min().unwrap_or(0);
        let flow = Flow {
            place,
            seen: FlowCounts::default(),
            charged: 0,
            measured: 0,
            recent: [0.0; RECENT],
            hungry: now,
            waits: false,
            served,
            share: 0.0,
        };
        self.flows.insert(id, flow);
    }

    /// The present counts of a request. Returns whether shares are to be divided again at once.
    pub(super) fn see(&mut self, now: Instant, id: u64, seen: FlowCounts) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        let begins = seen.moves && !flow.seen.moves;
        if begins {
            flow.hungry = now;
        }
        flow.seen = seen;
        let due = flow.due();
        let more = due as f64 - std::mem::replace(&mut flow.charged, due) as f64;
        if let Some(account) = self.clients.get_mut(&flow.place.client) {
            account.level -= more;
        }
        begins
    }

    /// Whether a request may be granted so many bytes now. If so, they count as granted. If not, it
    /// waits for them.
    pub(super) fn grant(&mut self, now: Instant, id: u64, bytes: u64) -> bool {
        let Some(place) = self.flows.get(&id).map(|flow| flow.place) else { return true };
        let Some(account) = self.clients.get_mut(&place.client) else { return true };
        account.fill(now);
        let has = account.share.is_infinite() || account.level >= -AHEAD * account.share;
        let may = has && self.is_next(id, place);
        let Some(flow) = self.flows.get_mut(&id) else { return true };
        flow.waits = !may;
        if may {
            flow.seen.ahead += bytes;
            flow.served += bytes;
            flow.charged += bytes;
            if let Some(account) = self.clients.get_mut(&place.client) {
                account.level -= bytes as f64;
                account.served.entry(place.session).and_modify(|served| *served += bytes);
            }
        }
        may
    }

    /// A request waits for no grant any more.
    pub(super) fn is_content(&mut self, id: u64) {
        self.flows.entry(id).and_modify(|flow| flow.waits = false);
    }

    /// Whether no other request of the client that waits has been granted less.
    fn is_next(&self, id: u64, place: RequestOrigin) -> bool {
        let turn = |id: u64, flow: &Flow| {
            let account = self.clients.get(&place.client);
            let of_session = account.and_then(|of| of.served.get(&flow.place.session));
            (of_session.copied().unwrap_or(0), flow.served, id)
        };
        let Some(own) = self.flows.get(&id).map(|flow| turn(id, flow)) else { return true };
        let mut others = self.flows.iter().filter(|(other, flow)| {
            **other != id && flow.waits && flow.place.client == place.client
        });
        others.all(|(other, flow)| turn(*other, flow) > own)
    }

    /// A request has ended. Its unused grant goes back.
    pub(super) fn close(&mut self, now: Instant, id: u64) {
        let Some(flow) = self.flows.remove(&id) else { return };
        let is_left = self.flows.values().any(|of| of.place.session == flow.place.session);
        if let Some(account) = self.clients.get_mut(&flow.place.client) {
            account.fill(now);
            account.level += flow.charged as f64 - flow.charged.min(flow.seen.moved) as f64;
            if !is_left {
                account.served.remove(&flow.place.session);
            }
        }
    }

    /// The share of a request; nothing if it has all there is.
    pub(super) fn share(&self, id: u64) -> Option<Rate> {
        let share = self.flows.get(&id)?.share;
        share.is_finite().then(|| Rate::from_bytes_per_second(share as u64))
    }

    /// Measures the traffic, once a spell has passed. Returns whether it has.
    pub(super) fn measure(&mut self, now: Instant) -> bool {
        let spell = now.since(self.measured);
        if spell < SPELL {
            return false;
        }
        self.measured = now;
        for flow in self.flows.values_mut() {
            let moved = flow.seen.moved.saturating_sub(flow.measured) as f64;
            flow.measured = flow.measured.max(flow.seen.moved);
            let rate = moved / spell.as_secs_f64();
            flow.recent.rotate_right(1);
            flow.recent[0] = rate;
            if rate > 0.0 && rate >= flow.share * USED {
                flow.hungry = now;
            }
        }
        let here: BTreeSet<ClientId> = self.flows.values().map(|flow| flow.place.client).collect();
        self.clients.retain(|client, account| {
            account.fill(now);
            // A debt outlives the requests that made it.
            here.contains(client) || account.level < 0.0
        });
        true
    }

    /// Divides what there is among those that are here now.
    pub(super) fn divide(&mut self, now: Instant) {
        self.clients.values_mut().for_each(|account| account.fill(now));
        let mut tree = Tree::default();
        for (id, flow) in &self.flows {
            tree.add(*id, flow, now);
        }
        let mut shares = Vec::new();
        for ClientShare { client, bytes: share, flows } in tree.shares(self.total) {
            let Some(account) = self.clients.get_mut(&client) else { continue };
            account.share = share;
            let part = repaid(account, tree.ahead(client));
            shares.extend(flows.into_iter().map(|(id, share)| (id, share * part)));
        }
        // A client without running requests pays its debts from an even share.
        let here = tree.count().max(1) as f64;
        for (client, account) in &mut self.clients {
            if !tree.has(*client) {
                account.share = self.total.map_or(account.share, |total| total / here);
            }
        }
        for (id, share) in shares {
            self.flows.entry(id).and_modify(|flow| flow.share = share.max(LEAST));
        }
    }
}

/// The part of its share that a client with excess traffic gets. Bytes granted `ahead` are no
/// excess.
fn repaid(account: &Account, ahead: u64) -> f64 {
    let debt = -(account.level + ahead as f64);
    if !account.share.is_finite() || debt <= account.share * KEPT {
        return 1.0;
    }
    (1.0 - debt / (account.share * REPAID)).clamp(0.5, 1.0)
}

/// The demands, by clients, their sessions and requests.
#[derive(Debug, Default)]
struct Tree {
    clients: BTreeMap<ClientId, Branch>,
}

/// The rate of a client, and of each of its requests, in bytes a second.
#[derive(Debug)]
struct ClientShare {
    client: ClientId,
    bytes: f64,
    flows: Vec<(u64, f64)>,
}

#[derive(Debug)]
struct Branch {
    most: f64,
    /// One of its requests waits for a grant; what all of them were granted and has not come.
    waits: bool,
    ahead: u64,
    sessions: BTreeMap<u64, Vec<(u64, f64)>>,
}

impl Tree {
    fn add(&mut self, id: u64, flow: &Flow, now: Instant) {
        let most = flow.place.most.map_or(f64::INFINITY, bytes);
        let new = || Branch { most, waits: false, ahead: 0, sessions: BTreeMap::new() };
        let branch = self.clients.entry(flow.place.client).or_insert_with(new);
        branch.most = branch.most.min(most);
        branch.waits |= flow.waits;
        branch.ahead += flow.seen.ahead;
        let session = branch.sessions.entry(flow.place.session).or_default();
        session.push((id, flow.demand(now)));
    }

    fn count(&self) -> usize {
        self.clients.len()
    }

    fn has(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    fn ahead(&self, client: ClientId) -> u64 {
        self.clients.get(&client).map_or(0, |branch| branch.ahead)
    }

    /// The share of each client, and of each of its requests.
    fn shares(&self, total: Option<f64>) -> Vec<ClientShare> {
        // Clients with the server's ticket share its rate.
        let ticket = |client: &ClientId| matches!(client, ClientId::At(_));
        let of_ticket = self.clients.iter().filter(|(client, _)| ticket(client));
        let most = of_ticket.map(|(_, branch)| branch.most).fold(f64::INFINITY, f64::min);
        let total = match self.clients.keys().any(ticket) {
            true => total.unwrap_or(f64::INFINITY).min(most),
            false => total.unwrap_or(f64::INFINITY),
        };
        let wanted: Vec<Want> = self.clients.values().map(Branch::want).collect();
        let shares = spread(total, &wanted);
        let each = self.clients.iter().zip(shares);
        let of = |((client, branch), bytes): ((&ClientId, &Branch), f64)| ClientShare {
            client: *client,
            bytes,
            flows: branch.shares(bytes),
        };
        each.map(of).collect()
    }
}

impl Branch {
    fn want(&self) -> Want {
        let demand: f64 = self.sessions.values().map(|flows| sum(flows)).sum();
        let demand = if self.waits { f64::INFINITY } else { demand };
        Want { demand: demand.min(self.most), most: self.most }
    }

    fn shares(&self, share: f64) -> Vec<(u64, f64)> {
        let wanted: Vec<Want> = self.sessions.values().map(|flows| Want::of(sum(flows))).collect();
        let of_sessions = spread(share, &wanted);
        let mut shares = Vec::new();
        for (flows, share) in self.sessions.values().zip(of_sessions) {
            // Requests without traffic begin with an even share, which is divided again then.
            let even = share / flows.len().max(1) as f64;
            let moving = flows.iter().filter(|(_, demand)| *demand > 0.0);
            let (ids, wanted): (Vec<u64>, Vec<Want>) =
                moving.map(|(id, demand)| (*id, Want::of(*demand))).unzip();
            shares.extend(ids.into_iter().zip(spread(share, &wanted)));
            let others = flows.iter().filter(|(_, demand)| *demand <= 0.0);
            shares.extend(others.map(|(id, _)| (*id, even)));
        }
        shares
    }
}

fn sum(flows: &[(u64, f64)]) -> f64 {
    flows.iter().map(|(_, demand)| demand).sum()
}

/// A demand, and its bound.
#[derive(Clone, Copy, Debug)]
struct Want {
    demand: f64,
    most: f64,
}

impl Want {
    fn of(demand: f64) -> Self {
        Self { demand, most: f64::INFINITY }
    }
}

/// Divides `total` by the demands. The rest beyond all demands is divided evenly, for demands that
/// grow.
fn spread(total: f64, wanted: &[Want]) -> Vec<f64> {
    if total.is_infinite() {
        return wanted.iter().map(|want| want.most).collect();
    }
    let demands: Vec<f64> = wanted.iter().map(|want| want.demand).collect();
    let mut shares = divide(total, &demands);
    let left = (total - shares.iter().sum::<f64>()).max(0.0);
    let room: Vec<f64> = wanted.iter().zip(&shares).map(|(want, has)| want.most - has).collect();
    for (share, more) in shares.iter_mut().zip(divide(left, &room)) {
        *share += more;
    }
    shares
}

/// `total` divided by these demands (max-min fairness): no part is larger than its demand, and none
/// could be larger without making another one smaller that is no larger itself.
fn divide(total: f64, demands: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    let demand = |at: usize| demands.get(at).copied().unwrap_or(0.0);
    order.sort_by(|a, b| demand(*a).total_cmp(&demand(*b)));
    let (mut shares, mut left) = (vec![0.0; demands.len()], total);
    for (place, at) in order.iter().enumerate() {
        let even = left / (demands.len() - place) as f64;
        let own = demand(*at).min(even);
        left -= own;
        if let Some(share) = shares.get_mut(*at) {
            *share = own;
        }
    }
    shares
}

fn bytes(rate: Rate) -> f64 {
    rate.bytes_per_second() as f64
}

#[cfg(test)]
#[path = "rate_limiter_tests.rs"]
mod tests;
