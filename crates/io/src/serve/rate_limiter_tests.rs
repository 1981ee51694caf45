//! The limiter in virtual time: clients of every kind, honest and not, and what each of them has.

use super::*;

const TICK: Duration = Duration::from_millis(10);
const BUFFER: u64 = 128 << 10;

/// What a client asks, again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// It is sent so many bytes by each request; of how many is known or not.
    Fetch { bytes: u64, known: bool },
    /// It sends so many bytes with each, as fast as its share.
    Put(u64),
    /// The same as fast as its link is, and breaks off after a part of it.
    Flood(u64),
    /// It takes so many bytes a second of what it is sent.
    Slow(u64),
}

/// Requests of one kind in one session.
#[derive(Clone, Debug)]
struct Crowd {
    client: ClientId,
    session: u64,
    kind: Kind,
    count: usize,
    /// When it begins.
    from: Instant,
    /// Between two requests, in ticks.
    idle: u32,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Ask {
    id: u64,
    moved: u64,
    ahead: u64,
    /// Bytes of the share that it has not used up.
    credit: f64,
    rests: u32,
}

struct World {
    limiter: RateLimiter,
    most: BTreeMap<ClientId, Rate>,
    now: Instant,
    next: u64,
    crowds: Vec<(Crowd, Vec<Ask>)>,
    /// What each crowd has moved by each tick.
    moved: Vec<Vec<u64>>,
}

fn rate(megabits: u64) -> Rate {
    Rate::from_bits_per_second(megabits * 1_000_000)
}

fn key(number: u8) -> ClientId {
    ClientId::Key([number; 32])
}

fn crowd(client: ClientId, session: u64, kind: Kind, count: usize) -> Crowd {
    Crowd { client, session, kind, count, from: Instant::EPOCH, idle: 0 }
}

impl World {
    fn new(total: Option<Rate>, crowds: Vec<Crowd>) -> Self {
        let moved = vec![Vec::new(); crowds.len()];
        let crowds = crowds.into_iter().map(|crowd| (crowd, Vec::new())).collect();
        let limiter = RateLimiter::new(total);
        Self { limiter, most: BTreeMap::new(), now: Instant::EPOCH, next: 1, crowds, moved }
    }

    fn run(mut self, seconds: u64) -> Self {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.tick();
        }
        self
    }

    fn tick(&mut self) {
        self.now += TICK;
        if self.limiter.measure(self.now) {
            self.limiter.divide(self.now);
        }
        for at in 0..self.crowds.len() {
            let (crowd, mut asks) = self.crowds[at].clone();
            while self.now >= crowd.from && asks.len() < crowd.count {
                let id = self.next;
                self.next += 1;
                asks.push(Ask { id, moved: 0, ahead: 0, credit: 0.0, rests: 0 });
                self.open(&crowd, id);
            }
            let mut sum = self.moved[at].last().copied().unwrap_or(0);
            for ask in &mut asks {
                sum += self.turn(&crowd, ask);
            }
            self.moved[at].push(sum);
            self.crowds[at].1 = asks;
        }
    }

    fn open(&mut self, crowd: &Crowd, id: u64) {
        let most = self.most.get(&crowd.client).copied();
        let place = RequestOrigin { client: crowd.client, session: crowd.session, most };
        self.limiter.open(self.now, id, place);
        self.see(crowd, &Ask { id, moved: 0, ahead: 0, credit: 0.0, rests: 0 });
        self.limiter.divide(self.now);
    }

    fn see(&mut self, crowd: &Crowd, ask: &Ask) {
        let total = match crowd.kind {
            Kind::Fetch { bytes, known } => known.then_some(bytes),
            Kind::Put(bytes) | Kind::Flood(bytes) => Some(bytes),
            Kind::Slow(_) => None,
        };
        let seen = FlowCounts { moved: ask.moved, ahead: ask.ahead, total, moves: true };
        self.limiter.see(self.now, ask.id, seen);
    }

    /// What a request moves in a tick.
    fn turn(&mut self, crowd: &Crowd, ask: &mut Ask) -> u64 {
        if ask.rests > 0 {
            ask.rests -= 1;
            if ask.rests == 0 {
                ask.id = self.next;
                self.next += 1;
                (ask.moved, ask.ahead, ask.credit) = (0, 0, 0.0);
                self.open(crowd, ask.id);
            }
            return 0;
        }
        let share = self.limiter.share(ask.id).map_or(1e9, |rate| rate.bytes_per_second() as f64);
        ask.credit = (ask.credit + share * TICK.as_secs_f64()).min((share * 0.02).max(1500.0));
        let (bytes, most) = match crowd.kind {
            Kind::Fetch { bytes, .. } => (bytes, ask.credit as u64),
            Kind::Put(bytes) => (bytes, (ask.credit as u64).min(ask.ahead)),
            Kind::Flood(bytes) => (bytes, ask.ahead),
            Kind::Slow(speed) => (u64::MAX, (ask.credit as u64).min(speed / 100)),
        };
        let more = most.min(bytes - ask.moved);
        ask.moved += more;
        ask.credit -= more as f64;
        ask.ahead = ask.ahead.saturating_sub(more);
        self.see(crowd, ask);
        if matches!(crowd.kind, Kind::Put(_) | Kind::Flood(_)) {
            while ask.ahead < 4 * BUFFER && self.limiter.grant(self.now, ask.id, BUFFER) {
                ask.ahead += BUFFER;
            }
        }
        if ask.moved >= bytes {
            self.limiter.close(self.now, ask.id);
            self.limiter.divide(self.now);
            ask.rests = crowd.idle + 1;
        }
        more
    }

    /// What the crowds of a client moved within a spell that ends now, in bytes a second.
    fn had(&self, client: ClientId, from: u64, to: u64) -> f64 {
        let own = self.crowds.iter().zip(&self.moved).filter(|((of, _), _)| of.client == client);
        own.map(|(_, moved)| (moved[to as usize * 100 - 1] - moved[from as usize * 100]) as f64)
            .sum::<f64>()
            / (to - from) as f64
    }

    /// The most that all of these moved within any two seconds, in bytes a second.
    fn peak(&self, of: impl Fn(ClientId) -> bool) -> f64 {
        let own = |at: usize| {
            let own =
                self.crowds.iter().zip(&self.moved).filter(|((crowd, _), _)| of(crowd.client));
            own.map(|(_, moved)| moved[at]).sum::<u64>()
        };
        let all: Vec<u64> = (0..self.moved[0].len()).map(own).collect();
        all.windows(201).map(|of| of[200] - of[0]).max().unwrap_or(0) as f64 / 2.0
    }
}

#[test]
fn the_rate_is_divided_evenly() {
    let all = f64::INFINITY;
    assert_eq!(divide(90.0, &[all, all, all]), [30.0, 30.0, 30.0]);
    assert_eq!(divide(90.0, &[all, 10.0, all]), [40.0, 10.0, 40.0]);
    assert_eq!(divide(90.0, &[5.0, 10.0, 20.0]), [5.0, 10.0, 20.0]);
    assert_eq!(divide(90.0, &[40.0, 10.0, 60.0]), [40.0, 10.0, 40.0]);
    assert_eq!(divide(90.0, &[]), [0.0; 0]);
    for count in 1..20u32 {
        let demands: Vec<f64> = (0..count).map(|n| f64::from(n * 7 % 11)).collect();
        let shares = divide(30.0, &demands);
        assert!(shares.iter().sum::<f64>() <= 30.0 + 1e-9);
        assert!(shares.iter().zip(&demands).all(|(share, demand)| share <= demand));
    }
}

#[test]
fn unused_rate_goes_to_clients_that_may_have_more() {
    let want = |demand, most| Want { demand, most };
    let free = f64::INFINITY;
    assert_eq!(spread(90.0, &[want(10.0, free), want(20.0, free)]), [40.0, 50.0]);
    assert_eq!(spread(90.0, &[want(10.0, 10.0), want(20.0, free)]), [10.0, 80.0]);
    assert_eq!(spread(90.0, &[want(10.0, 12.0), want(20.0, 21.0)]), [12.0, 21.0]);
    assert_eq!(spread(f64::INFINITY, &[want(10.0, 12.0), want(1.0, free)]), [12.0, free]);
}

#[test]
fn clients_are_distinguished_by_key_or_network() {
    let at = |text: &str| ClientId::at(text.parse().unwrap());
    assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
    assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
    assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
}

/// Bytes a second of 20 Mbit/s.
const ALL: f64 = 2_500_000.0;

#[test]
fn a_client_is_not_starved_by_one_that_asks_again_and_again() {
    let big = Kind::Fetch { bytes: 1 << 40, known: true };
    for again in [
        Kind::Fetch { bytes: 1 << 20, known: true },
        Kind::Fetch { bytes: 1 << 20, known: false },
        Kind::Fetch { bytes: 300, known: true },
        Kind::Put(1 << 20),
        Kind::Put(1000),
        Kind::Flood(1 << 20),
        Kind::Flood(BUFFER - 1),
        Kind::Slow(10_000),
    ] {
        for (sessions, count) in [(1, 1), (1, 16), (20, 2)] {
            for mine in [big, Kind::Put(1 << 40)] {
                let mut crowds = vec![crowd(key(1), 1, mine, 1)];
                crowds.extend((0..sessions).map(|n| crowd(key(2), 2 + n, again, count)));
                let world = World::new(Some(rate(20)), crowds).run(12);
                let had = world.had(key(1), 5, 12);
                assert!(had >= ALL * 0.475, "{again:?} {sessions} {count} {mine:?}: {had}");
            }
        }
    }
}

#[test]
fn a_clients_small_requests_do_not_starve_its_large_one() {
    let big = Kind::Fetch { bytes: 1 << 40, known: true };
    let small = Kind::Fetch { bytes: 2000, known: true };
    let mine = vec![crowd(key(1), 1, big, 1), crowd(key(1), 1, small, 16)];
    let other = crowd(key(2), 2, big, 1);
    let world = World::new(Some(rate(20)), [mine, vec![other]].concat()).run(12);
    let had = world.had(key(1), 5, 12);
    assert!(had >= ALL * 0.475, "{had}");
}

#[test]
fn a_client_has_its_unused_share_again_within_seconds() {
    let big = Kind::Fetch { bytes: 1 << 40, known: false };
    let mut late = crowd(key(1), 1, big, 1);
    late.from = Instant::EPOCH + Duration::from_secs(10);
    let crowds = vec![crowd(key(1), 1, Kind::Slow(5000), 1), late, crowd(key(2), 2, big, 4)];
    let world = World::new(Some(rate(20)), crowds).run(20);
    let (before, after) = (world.had(key(2), 5, 10), world.had(key(1), 12, 20));
    assert!(before >= ALL * 0.93, "what is unused is others': {before}");
    assert!(after >= ALL * 0.475, "{after}");
}

#[test]
fn both_rates_bound_uploads_and_downloads() {
    for kind in
        [Kind::Put(8 << 20), Kind::Put(100_000), Kind::Fetch { bytes: 1 << 20, known: true }]
    {
        for (sessions, count) in [(1, 1), (1, 16), (8, 2)] {
            let crowds: Vec<Crowd> = (0..sessions).map(|n| crowd(key(2), n, kind, count)).collect();
            let mut world = World::new(Some(rate(20)), crowds);
            world.most.insert(key(2), rate(5));
            let world = world.run(15);
            let (peak, had) = (world.peak(|_| true), world.had(key(2), 5, 15));
            assert!(peak <= ALL / 4.0 * 1.05, "{kind:?} {sessions} {count}: {peak}");
            assert!(had >= ALL / 4.0 * 0.9, "{kind:?} {sessions} {count}: {had}");
            let crowds: Vec<Crowd> =
                (0..sessions).map(|n| crowd(key(n as u8), n, kind, count)).collect();
            let world = World::new(Some(rate(20)), crowds).run(15);
            let peak = world.peak(|_| true);
            assert!(peak <= ALL * 1.05, "{kind:?} {sessions} {count}: {peak}");
        }
    }
}

/// It can send at once what it is granted ahead, and no more than its share in the mean, however
/// often it breaks off and begins again.
#[test]
fn a_client_that_ignores_its_share_is_granted_no_more() {
    for bytes in [1 << 30, BUFFER * 2, BUFFER - 1, 1000] {
        let mut world = World::new(None, vec![crowd(key(1), 1, Kind::Flood(bytes), 64)]);
        world.most.insert(key(1), rate(8));
        let world = world.run(30);
        let had = world.had(key(1), 0, 30);
        let most = 1_000_000.0 + (1_000_000.0 + BUFFER as f64) / 30.0;
        assert!(had <= most * 1.02, "{bytes}: {had}");
    }
}

#[test]
fn puts_of_a_client_are_granted_in_turn() {
    let crowds =
        vec![crowd(key(1), 1, Kind::Put(1 << 40), 2), crowd(key(1), 2, Kind::Put(1 << 40), 14)];
    let mut world = World::new(None, crowds);
    world.most.insert(key(1), rate(8));
    let world = world.run(60);
    let of = |at: usize| world.crowds[at].1.iter().map(|ask| ask.moved);
    let (two, fourteen): (u64, u64) = (of(0).sum(), of(1).sum());
    assert!(two.abs_diff(fourteen) < (two + fourteen) / 10, "sessions alike: {two} {fourteen}");
    let (least, most) = (of(1).min().unwrap(), of(1).max().unwrap());
    assert!(most <= least + 2 * BUFFER, "requests alike: {least} {most}");
}

/// Mixes of everything: all together and each key keep to their rates, and each client that can use
/// it has an even share within five seconds.
#[test]
fn in_every_mix_rates_are_kept_and_shares_even() {
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    let mut roll = |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    for mix in 0..16 {
        let clients = 2 + roll(4);
        let mut crowds = Vec::new();
        for client in 0..clients {
            for session in 0..1 + roll(4) {
                let kind = match roll(5) {
                    0 => Kind::Fetch { bytes: 200 + roll(5000), known: true },
                    1 => Kind::Fetch { bytes: 100_000 + roll(1 << 21), known: roll(2) == 0 },
                    2 => Kind::Put(1000 + roll(1 << 22)),
                    3 => Kind::Slow(1000 + roll(20_000)),
                    _ => Kind::Fetch { bytes: 1 << 40, known: true },
                };
                let mut one =
                    crowd(key(client as u8), client * 10 + session, kind, 1 + roll(8) as usize);
                one.idle = roll(20) as u32;
                crowds.push(one);
            }
        }
        // The first one can use whatever it is given.
        crowds.push(crowd(key(0), 9, Kind::Fetch { bytes: 1 << 40, known: false }, 1));
        let case = format!("mix {mix}: {crowds:?}");
        let mut world = World::new(Some(rate(20)), crowds);
        world.most.insert(key(1), rate(2));
        let world = world.run(12);
        let (all, one) = (world.peak(|_| true), world.peak(|of| of == key(1)));
        assert!(all <= ALL * 1.05, "{all} {case}");
        assert!(one <= ALL / 10.0 * 1.05, "{one} {case}");
        let (had, even) = (world.had(key(0), 5, 12), ALL / clients as f64);
        assert!(had >= even * 0.95, "{had} of {even} {case}");
    }
}
