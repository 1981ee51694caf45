//! Everyone on every path, several times in turn, and the medians.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use netblt_path::rng::Rng;
use netblt_path::scenario::{self, Scenario};
use netblt_proto::units::Rate;

use crate::rival::{Rival, all};
use crate::single_run::{Abort, Run, Task};
pub use crate::testbed::Room;

/// By default the link is busy for this long at its full rate.
const FILL: Duration = Duration::from_secs(4);
/// The size of the file on a path without a rate.
const UNLIMITED_BYTES: u64 = 1 << 30;

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `netblt`.
    pub netblt: PathBuf,
    /// Bytes of the file; none: four seconds of the link's rate.
    pub bytes: Option<u64>,
    /// Runs of each, at least 1.
    pub runs: u32,
    /// A run that takes longer is ended, and reported as such.
    pub longest: Duration,
    /// From which the path's faults are drawn; each run has its own.
    pub seed: u64,
}

/// The medians of one rival's runs on one path.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The program.
    pub rival: Rival,
    /// How many runs count, and how many there were.
    pub counted: (usize, usize),
    /// The figures; none if no run counts.
    pub figures: Option<Figures>,
    /// Why the last run that does not count does not.
    pub problem: Option<String>,
}

/// Medians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Bits of the file a second, from the start of the near program to the verified end.
    pub goodput: Rate,
    /// The slowest and the fastest run.
    pub least: Rate,
    /// See there.
    pub most: Rate,
    /// Bytes of the file that came.
    pub bytes: u64,
    /// Bytes of IP packets that entered the path, in both directions.
    pub wire_bytes: u64,
    /// Packets that entered it towards the far side.
    pub packets: u64,
    /// Packets lost to the full queue, and at random.
    pub lost_to_queue: u64,
    /// See there.
    pub lost_at_random: u64,
    /// Time of processors, sending and receiving side.
    pub cpu: [Option<Duration>; 2],
    /// The queue of a run: mean and maximum.
    pub queue_mean: Duration,
    /// See there.
    pub queue_most: Duration,
    /// Parts of a million of all packets that this machine delivered more than a millisecond late:
    /// the worst run.
    pub late_ppm: u64,
}

/// One path.
#[derive(Clone, Debug)]
pub struct Table {
    /// The path.
    pub path: Scenario,
    /// Bytes of the file.
    pub bytes: u64,
    /// The programs that took part.
    pub rows: Vec<Row>,
    /// The programs that did not, and why.
    pub missing: Vec<(String, String)>,
}

/// The contest's end before its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// It was to end.
    Stopped,
    /// Something could not be made, and why.
    Start(String),
}

/// The default paths: one without loss, the same with losses, and one with a queue that is four
/// times too long.
pub fn usual_paths() -> Vec<Scenario> {
    [
        ("100 Mbit/s, 70 ms", "rate = \"100 Mbit\"\nrtt = \"70 ms\"\nmtu = 1500\n"),
        (
            "100 Mbit/s, 70 ms, 0.1 % lost",
            "rate = \"100 Mbit\"\nrtt = \"70 ms\"\nloss = \"0.1 %\"\nmtu = 1500\n",
        ),
        (
            "50 Mbit/s, 40 ms, a queue of four products",
            "rate = \"50 Mbit\"\nrtt = \"40 ms\"\nqueue = \"4 bdp\"\nmtu = 1500\n",
        ),
    ]
    .into_iter()
    .filter_map(|(name, text)| {
        let path = scenario::load(&format!("[path]\n{text}")).ok()?;
        Some(Scenario { name: name.to_owned(), ..path })
    })
    .collect()
}

/// Runs the comparison on all `paths`, with the programs named in `wanted`. `progress` is called
/// with each result; `stop` ends it.
pub fn run(
    paths: Vec<Scenario>,
    wanted: &dyn Fn(&str) -> bool,
    options: &Options,
    progress: &mut dyn FnMut(&str),
    stop: &AtomicBool,
) -> Result<Vec<Table>, Failure> {
    let start = |what: &str, error: io::Error| Failure::Start(format!("{what}: {error}"));
    let room = Room::new().map_err(|error| start("a temporary directory", error))?;
    let mut tables = Vec::new();
    for path in paths {
        let name = if path.name.is_empty() { described(&path) } else { path.name.clone() };
        let path = Scenario { name, ..path };
        let bytes = options.bytes.unwrap_or_else(|| fill(path.up.rate));
        write_noise(&room, bytes, options.seed).map_err(|error| start("a file to send", error))?;
        tables.push(on_path(path, bytes, &room, wanted, options, (progress, stop))?);
    }
    Ok(tables)
}

/// A path without a name.
fn described(path: &Scenario) -> String {
    let rate = path.up.rate.map_or("no limit".to_owned(), |rate| format!("{} Mbit/s", rate.mbps()));
    let mut name = format!("{rate}, {} ms", path.rtt().as_micros() as f64 / 1000.0);
    if !path.up.loss.is_never() {
        name += &format!(", {} % lost", f64::from(path.up.loss.ppb()) / 1e7);
    }
    name
}

fn fill(rate: Option<Rate>) -> u64 {
    rate.map_or(UNLIMITED_BYTES, |rate| rate.bytes_in(FILL)).max(1)
}

type Watch<'a> = (&'a mut dyn FnMut(&str), &'a AtomicBool);

fn on_path(
    path: Scenario,
    bytes: u64,
    room: &Room,
    wanted: &dyn Fn(&str) -> bool,
    options: &Options,
    (progress, stop): Watch<'_>,
) -> Result<Table, Failure> {
    let (mut rivals, mut missing) = (Vec::new(), Vec::new());
    for rival in all().into_iter().filter(|rival| wanted(&rival.name)) {
        match rival.missing(path.up.rate) {
            Some(why) => missing.push((rival.name.clone(), why)),
            None => rivals.push(rival),
        }
    }
    let mut runs: Vec<Vec<Run>> = rivals.iter().map(|_| Vec::new()).collect();
    // In turn: a machine is never the same twice.
    for round in 0..options.runs.max(1) {
        for (rival, runs) in rivals.iter().zip(&mut runs) {
            let task = Task {
                path: &path,
                room,
                netblt: &options.netblt,
                seed: options.seed + u64::from(round),
                bytes,
                longest: options.longest,
                stop,
            };
            let run = task.run(rival).map_err(|halt| match halt {
                Abort::Stopped => Failure::Stopped,
                Abort::Network(why) => Failure::Start(format!("no network: {why}")),
            })?;
            progress(&described_run(&path, rival, &run, round + 1, options.runs));
            runs.push(run);
        }
    }
    let rows = rivals.into_iter().zip(runs).map(|(rival, runs)| row(rival, &runs)).collect();
    Ok(Table { path, bytes, rows, missing })
}

fn described_run(path: &Scenario, rival: &Rival, run: &Run, round: u32, rounds: u32) -> String {
    let came = match &run.problem {
        Some(problem) => problem.clone(),
        None => {
            format!("{:.1} Mbit/s in {:.2} s", goodput(run).mbps(), run.time.as_secs_f64())
        }
    };
    format!("{}: {}, {round} of {rounds}: {came}", path.name, rival.name)
}

fn goodput(run: &Run) -> Rate {
    Rate::over(run.bytes, run.time)
}

fn row(rival: Rival, runs: &[Run]) -> Row {
    let counted: Vec<&Run> = runs.iter().filter(|run| run.problem.is_none()).collect();
    let problem = runs.iter().rev().find_map(|run| run.problem.clone());
    Row {
        rival,
        counted: (counted.len(), runs.len()),
        figures: (!counted.is_empty()).then(|| figures(&counted)),
        problem,
    }
}

fn figures(runs: &[&Run]) -> Figures {
    let rates = || runs.iter().map(|run| goodput(run));
    let cpu = |side: usize| {
        let known: Option<Vec<Duration>> = runs.iter().map(|run| run.cpu[side]).collect();
        known.map(|known| median(known.into_iter()))
    };
    let none = Rate::from_bits_per_second(0);
    Figures {
        goodput: median(rates()),
        least: rates().min().unwrap_or(none),
        most: rates().max().unwrap_or(none),
        bytes: median(runs.iter().map(|run| run.bytes)),
        wire_bytes: median(runs.iter().map(|run| run.seen.wire_bytes)),
        packets: median(runs.iter().map(|run| run.seen.packets)),
        lost_to_queue: median(runs.iter().map(|run| run.seen.lost_to_queue)),
        lost_at_random: median(runs.iter().map(|run| run.seen.lost_at_random)),
        cpu: [cpu(0), cpu(1)],
        queue_mean: median(runs.iter().map(|run| run.seen.queue_mean)),
        queue_most: median(runs.iter().map(|run| run.seen.queue_most)),
        late_ppm: runs
            .iter()
            .map(|run| run.seen.late * 1_000_000 / run.seen.all.max(1))
            .max()
            .unwrap_or_default(),
    }
}

/// The middle one, of an even number the lower of the two.
fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values[(values.len() - 1) / 2]
}

/// A file that nothing can make smaller.
fn write_noise(room: &Room, bytes: u64, seed: u64) -> io::Result<()> {
    let mut random = Rng::named(seed, "compare");
    let mut file = fs::File::create(room.source())?;
    let (mut left, mut block) = (bytes, vec![0; 1 << 16]);
    while left > 0 {
        random.fill(&mut block);
        let part = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.write_all(&block[..part])?;
        left -= part as u64;
    }
    file.flush()
}

/// The machine, in a line: figures of two machines have little to do with each other.
pub fn machine() -> String {
    let system = rustix::system::uname();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?").to_owned();
    format!("Linux {}, {cores} processors, load {load}", system.release().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: u64, problem: Option<&str>) -> Run {
        Run {
            time: Duration::from_secs(seconds),
            bytes: 1_000_000,
            cpu: [Some(Duration::from_secs(seconds)), None],
            problem: problem.map(str::to_owned),
            ..Run::default()
        }
    }

    #[test]
    fn medians_are_of_the_runs_that_count() {
        let rival = all().remove(0);
        let runs = [run(4, None), run(1, None), run(100, Some("broke")), run(2, None)];
        let row = row(rival.clone(), &runs);
        assert_eq!((row.counted, row.problem.as_deref()), ((3, 4), Some("broke")));
        let figures = row.figures.expect("three runs");
        assert_eq!(figures.goodput.bits_per_second(), 4_000_000);
        assert_eq!(figures.least.bits_per_second(), 2_000_000);
        assert_eq!(figures.most.bits_per_second(), 8_000_000);
        assert_eq!(figures.cpu, [Some(Duration::from_secs(2)), None]);
        let none = super::row(rival, &runs[2..3]);
        assert_eq!((none.counted, none.figures), ((0, 1), None));
    }

    #[test]
    fn a_path_has_the_values_in_its_name() {
        let paths = usual_paths();
        assert_eq!(paths.len(), 3);
        assert!(paths.iter().all(|path| path.name.starts_with(&format!(
            "{:.0} Mbit/s, {} ms",
            path.up.rate.map_or(0.0, Rate::mbps),
            path.rtt().as_millis()
        ))));
        assert_eq!(fill(paths[0].up.rate), 50_000_000);
        let names: Vec<String> = paths.iter().map(described).collect();
        let expected = ["100 Mbit/s, 70 ms", "100 Mbit/s, 70 ms, 0.1 % lost", "50 Mbit/s, 40 ms"];
        assert_eq!(names, expected);
    }
}
