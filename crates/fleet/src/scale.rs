//! Two large centres in virtual time, all from a seed: 64 nodes a side, ten million files, Slurm.
//! The cutting, the order of hosts and the arrays are those of the product. The assumptions and
//! measurements are constants here, as in docs/results/fleets.md.

use std::collections::VecDeque;

use crate::ARRAY;
use crate::plan::Limits;
use crate::pool::Pool;
use crate::slurm::{Array, arrays, tasks};

const NODES: u64 = 64;
const FILES: u64 = 10_000_000;
/// Sizes are log-normal, 13 MB in the middle: about 100 MB in the mean, none larger than a chunk.
/// Others are to a terabyte.
const MIDDLE: f64 = 16.4;
const SPREAD: f64 = 2.0;
const LARGEST: [f64; 2] = [1e11, 1e12];
/// The rate of a server's link, in bits a second. A node of this side has one task.
const SERVER: f64 = 25e9;
/// Slurm's guide to high throughput: 500 simple jobs a second, again and again.
const DISPATCHES: f64 = 500.0;
/// slurm.conf, `batch_sched_delay`: so long may the scheduling of a job be delayed.
const DELAY: f64 = 3.0;
/// How long a requeued job waits.
const REQUEUED: f64 = 120.0;
/// One task of this many is killed, somewhere on its way, and sends that part again.
const KILLED: u64 = 100;
const AGAIN: f64 = 8.0 * 8e6;
/// Measured: files planned a second, a task's time beside that of its bytes (100 ms round trip),
/// and the time for each file.
const PLANNED: f64 = 100_000.0;
const TASK: f64 = 2.0;
/// The delay until other tasks see the server of a task.
const RECORD_DELAY: f64 = 2.5;
const FILE: f64 = 50e-6;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1, never 0.
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Box and Muller's.
    fn size(&mut self, largest: f64) -> u64 {
        let (radius, angle) = ((-2.0 * self.share().ln()).sqrt(), self.share());
        let normal = radius * (std::f64::consts::TAU * angle).cos();
        (MIDDLE + SPREAD * normal).exp().min(largest) as u64
    }
}

/// A plan of all those files: files and bytes of each chunk.
fn planned(limits: Limits, largest: f64, random: &mut Random) -> Vec<(u64, u64)> {
    let (mut chunks, mut open) = (Vec::new(), (0, 0));
    for _ in 0..FILES {
        let bytes = random.size(largest);
        if limits.is_alone(bytes) {
            // The file counts with the first of its ranges.
            let ranges = limits.ranges(bytes).into_iter().map(|range| range.length);
            chunks.extend((0..).zip(ranges).map(|(at, length)| (u64::from(at == 0), length)));
            continue;
        }
        if !limits.has_room(open.0, open.1, bytes) {
            chunks.push(std::mem::take(&mut open));
        }
        open = (open.0 + 1, open.1 + bytes);
    }
    chunks.push(open);
    chunks
}

/// A task at work.
struct Flow {
    lane: usize,
    chunk: u64,
    server: usize,
    /// When it had chosen that.
    chosen: f64,
    /// Bits to go until it ends or is killed, and those behind that.
    left: f64,
    rest: f64,
}

/// Chunks that wait for a place of a lane, each not before its time.
struct Lane {
    places: u64,
    waiting: VecDeque<(f64, u64, f64)>,
}

struct World<'a> {
    chunks: &'a [(u64, u64)],
    pool: Pool,
    /// Bits a second of each task.
    share: f64,
    random: Random,
    now: f64,
    dispatched: f64,
    /// Tasks that were started and do not send yet.
    starting: Vec<(f64, Flow)>,
    flows: Vec<Flow>,
}

impl World<'_> {
    fn start(&mut self, lane: usize, (ready, chunk, bits): (f64, u64, f64)) {
        let begins = self.now.max(ready).max(self.dispatched + 1.0 / DISPATCHES);
        self.dispatched = self.dispatched.max(begins);
        let (files, bytes) = self.chunks[chunk as usize];
        let is_new = bits == bytes as f64 * 8.0;
        let turn = u64::from(!is_new);
        let id = *blake3::hash(&chunk.to_be_bytes()).as_bytes();
        let chosen = begins + DELAY;
        let starting = self.starting.iter().map(|(_, flow)| flow);
        let recorded: Vec<&Flow> = starting
            .chain(&self.flows)
            .filter(|flow| flow.chosen + RECORD_DELAY <= chosen)
            .collect();
        let tasks = |host: &str| {
            recorded.iter().filter(|flow| self.pool.hosts[flow.server] == host).count()
        };
        let host = self.pool.order(&id, turn, tasks)[0];
        let server = self.pool.hosts.iter().position(|one| one == host).expect("of the pool");
        let is_killed = is_new && self.random.next().is_multiple_of(KILLED);
        let left = if is_killed { bits * self.random.share() } else { bits };
        let rest = if is_killed { bits - left + AGAIN } else { 0.0 };
        let sends = chosen + TASK + files as f64 * FILE;
        self.starting.push((sends, Flow { lane, chunk, server, chosen, left, rest }));
    }

    fn fill(&mut self, lanes: &mut [Lane]) {
        for (at, lane) in lanes.iter_mut().enumerate() {
            while lane.places > 0 && !lane.waiting.is_empty() {
                let is_ready = |one: &&(f64, u64, f64)| one.0 <= self.now;
                let first = lane.waiting.iter().find(is_ready).map(|one| one.1);
                let next = lane.waiting.iter().position(|one| Some(one.1) == first).unwrap_or(0);
                let next = lane.waiting.remove(next).expect("it is there");
                lane.places -= 1;
                self.start(at, next);
            }
        }
    }

    fn rates(&self) -> Vec<f64> {
        let mut guests = vec![0.0; self.pool.hosts.len()];
        self.flows.iter().for_each(|flow| guests[flow.server] += 1.0);
        let rate = |flow: &Flow| self.share.min(SERVER / guests[flow.server]);
        self.flows.iter().map(rate).collect()
    }

    /// Until the next task begins to send, ends or is killed. Returns those that have ended.
    fn step(&mut self) -> Vec<Flow> {
        let rates = self.rates();
        let ends = self.flows.iter().zip(&rates).map(|(flow, rate)| flow.left / rate);
        let begins = self.starting.iter().map(|(at, _)| at - self.now);
        let passes = ends.chain(begins).fold(f64::INFINITY, f64::min).max(0.0);
        self.now += passes;
        self.flows.iter_mut().zip(&rates).for_each(|(flow, rate)| flow.left -= rate * passes);
        let begun = self.starting.extract_if(.., |(at, _)| *at <= self.now + 1e-9);
        self.flows.extend(begun.map(|(_, flow)| flow));
        // A bit is less than any clock sees.
        self.flows.extract_if(.., |flow| flow.left < 1.0).collect()
    }
}

/// Seconds until all chunks are there. A lane's arrays run as one. With `barriers` each begins when
/// all before it have ended.
fn run(chunks: &[(u64, u64)], arrays: &[Array], share: f64, barriers: bool) -> f64 {
    let hosts = (0..NODES).map(|at| format!("dtn{at}")).collect();
    let mut world = World {
        chunks,
        pool: Pool { hosts, ..Pool::default() },
        share,
        random: Random(2),
        now: 0.0,
        dispatched: 0.0,
        starting: Vec::new(),
        flows: Vec::new(),
    };
    let rounds: Vec<&[Array]> = if barriers { arrays.chunks(1).collect() } else { vec![arrays] };
    for arrays in rounds {
        let count = arrays.iter().map(|array| array.lane).max().unwrap_or(0) + 1;
        let empty = || Lane { places: 0, waiting: VecDeque::new() };
        let mut lanes: Vec<Lane> = (0..count).map(|_| empty()).collect();
        for array in arrays {
            let lane = &mut lanes[array.lane as usize];
            lane.places = array.at_once;
            let bits = |chunk: u64| chunks[chunk as usize].1 as f64 * 8.0;
            lane.waiting.extend(tasks(array).into_iter().map(|chunk| (0.0, chunk, bits(chunk))));
        }
        world.fill(&mut lanes);
        while !world.flows.is_empty() || !world.starting.is_empty() {
            for over in world.step() {
                let lane = &mut lanes[over.lane];
                lane.places += 1;
                if over.rest > 0.0 {
                    lane.waiting.push_front((world.now + REQUEUED, over.chunk, over.rest));
                }
            }
            world.fill(&mut lanes);
        }
        assert!(lanes.iter().all(|lane| lane.waiting.is_empty()));
    }
    world.now
}

/// The additional time as a share of that of the bytes alone. Prints it, too.
fn overhead(chunks: &[(u64, u64)], lanes: &[Array], wan: f64) -> f64 {
    let bits: f64 = chunks.iter().map(|(_, bytes)| *bytes as f64 * 8.0).sum();
    let taken = run(chunks, lanes, wan / NODES as f64, false) + FILES as f64 / PLANNED;
    let (ideal, wan) = (bits / wan, wan / 1e9);
    let over = taken / ideal - 1.0;
    println!("{wan:.0} Gbit/s: ideal {ideal:.0} s, taken {taken:.0} s, {:.2} %", over * 100.0);
    // No flow is faster than the path.
    assert!(over > 0.0, "{over}");
    over
}

#[test]
fn planning_starting_and_ourselves_take_less_than_two_hundredths() {
    let limits = Limits { bytes: 100_000_000_000, items: 100_000 };
    for largest in LARGEST {
        let chunks = planned(limits, largest, &mut Random(1));
        assert_eq!(chunks.iter().map(|(files, _)| files).sum::<u64>(), FILES);
        let lanes = arrays(&(0..chunks.len() as u64).collect::<Vec<_>>(), NODES);
        let bytes: u64 = chunks.iter().map(|(_, bytes)| bytes).sum();
        let most = chunks.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0) as f64 / 1e9;
        let terabytes = bytes as f64 / 1e12;
        println!(
            "{} chunks to {most:.0} GB, {terabytes:.1} TB, {} arrays",
            chunks.len(),
            lanes.len()
        );
        let over = [100e9, 200e9, 400e9].map(|wan| overhead(&chunks, &lanes, wan));
        assert!(over[0] < 0.02 || largest > LARGEST[0], "{over:?}");
    }
}

/// With faster paths and larger chunks, each chunk takes as long, and there are as many if there is
/// as much more data. At 400 Gbit/s four tasks fill a server's link, and none has five.
#[test]
fn on_faster_paths_larger_chunks_of_more_data_take_no_more() {
    for times in [2, 4] {
        let limits = Limits { bytes: times * 100_000_000_000, items: 100_000 };
        let (mut random, mut chunks, mut open) = (Random(1), Vec::new(), (0, 0));
        for _ in 0..FILES {
            let bytes = random.size(LARGEST[0]) * times;
            if !limits.has_room(open.0, open.1, bytes) {
                chunks.push(std::mem::take(&mut open));
            }
            open = (open.0 + 1, open.1 + bytes);
        }
        chunks.push(open);
        let lanes = arrays(&(0..chunks.len() as u64).collect::<Vec<_>>(), NODES);
        let over = overhead(&chunks, &lanes, times as f64 * 100e9);
        assert!(over < 0.02, "{over}");
    }
}

#[test]
fn arrays_one_after_the_other_would_leave_places_empty() {
    let chunks = vec![(1000, 100_000_000_000); 10_000];
    let all: Vec<u64> = (0..10_000).collect();
    let chain: Vec<Array> =
        all.chunks(ARRAY as usize).flat_map(|some| arrays(some, NODES)).collect();
    let (wan, lanes) = (100e9, arrays(&all, NODES));
    let [chain, lanes] = [(chain, true), (lanes, false)]
        .map(|(arrays, barriers)| run(&chunks, &arrays, wan / NODES as f64, barriers));
    println!("one after the other {chain:.0} s, at once {lanes:.0} s");
    assert!(lanes * 1.02 < chain, "{lanes} {chain}");
}
