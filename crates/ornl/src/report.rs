//! Every row of the review beside its simulated run, and programs without a row on the same path.

use std::time::Duration;

use netblt_proto::config::EmulatedProtocol;
use netblt_sim::parallel;

use crate::contest::{Entry, Sample, Trial, best};
use crate::rows::{Row, rows};

/// Seeds. With random loss, a review row and a NETBLT row are the mean over all of them, any other
/// row is the run of the first; without loss all seeds give the same.
pub const SEEDS: std::ops::RangeInclusive<u64> = 1..=3;
/// Tolerance of a rate against the published one, in tenths of a per cent.
pub const TOLERANCE: i64 = 100;

/// The three conditions of section 4.3: from memory, the same with packets dropped, and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Disk to disk.
    pub file: bool,
    /// Packets are dropped.
    pub loss: bool,
}

impl Setting {
    /// In the review's order.
    pub const ALL: [Self; 3] = [
        Self { file: false, loss: false },
        Self { file: false, loss: true },
        Self { file: true, loss: true },
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match (self.file, self.loss) {
            (false, false) => "memory to memory, no loss",
            (false, true) => "memory to memory, 0.0107 % lost",
            (true, _) => "a file, 0.0107 % lost",
        }
    }
}

/// A run, and the row of the review that it is compared with, if there is one.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The row.
    pub row: Option<Row>,
    /// The run.
    pub trial: Trial,
    /// The mean of its runs.
    pub sample: Sample,
}

impl Compared {
    /// Error of the rate against the published one, in tenths of a per cent, rounded.
    pub fn error(&self) -> Option<i64> {
        let theirs = self.row.as_ref()?.bits_per_second as i64;
        let over = (self.sample.bits_per_second as i64 - theirs) * 1000;
        Some((over + over.signum() * (theirs / 2)) / theirs.max(1))
    }

    /// The rate relative to the most that the link could carry of NETBLT's packets, in tenths of a
    /// per cent.
    pub fn of_best(&self) -> u64 {
        self.sample.bits_per_second * 1000 / best(self.trial.loss).bits_per_second().max(1)
    }
}

/// One condition: the rows of the review in its order, then the programs without a row.
#[derive(Clone, Debug)]
pub struct Table {
    /// The condition.
    pub setting: Setting,
    /// Its rows.
    pub rows: Vec<Compared>,
}

/// Runs everything, on `threads` threads.
pub fn tables(threads: usize) -> Vec<Table> {
    let all: Vec<(Option<Row>, Trial)> = Setting::ALL.into_iter().flat_map(trials).collect();
    let jobs: Vec<(Trial, u64)> = all.iter().flat_map(|(_, trial)| runs(trial)).collect();
    let samples = parallel::map(&jobs, threads, |(trial, seed)| trial.run(*seed));
    let mut samples = samples.into_iter();
    let mut compared = all.into_iter().map(|(row, trial)| {
        let count = runs(&trial).count();
        Compared { row, trial, sample: mean(samples.by_ref().take(count).collect()) }
    });
    let table = |setting| {
        let count = trials(setting).len();
        Table { setting, rows: compared.by_ref().take(count).collect() }
    };
    Setting::ALL.map(table).into()
}

/// The rows that are not simulated: those over the Internet.
pub fn others() -> Vec<Row> {
    rows().into_iter().filter(|row| !row.is_modelled()).collect()
}

fn runs(trial: &Trial) -> impl Iterator<Item = (Trial, u64)> + use<> {
    let trial = *trial;
    let several = trial.loss && (Entry::is_reviewed(trial.entry) || trial.entry == Entry::Ours);
    let last = if several { *SEEDS.end() } else { *SEEDS.start() };
    (*SEEDS.start()..=last).map(move |seed| (trial, seed))
}

/// The runs under one condition.
pub fn trials(setting: Setting) -> Vec<(Option<Row>, Trial)> {
    let Setting { file, loss } = setting;
    let trial = |entry| Trial { entry, file, loss };
    let own = rows().into_iter().filter_map(|row| {
        let here = row.is_modelled() && row.file == file && row.has_loss() == loss;
        let entry = Entry::of(row.application).filter(|_| here)?;
        Some((Some(row), trial(entry)))
    });
    let mut all: Vec<_> = own.collect();
    let tcp = |streams, tuned| Entry::Tcp { streams, tuned };
    let more = match file {
        // GridFTP's streams, with Linux 2.4's TCP.
        true => vec![Entry::Ours, tcp(3, false), tcp(1, false)],
        false => vec![
            Entry::Ours,
            tcp(1, true),
            tcp(1, false),
            tcp(3, false),
            Entry::Later(EmulatedProtocol::Udt),
            Entry::Later(EmulatedProtocol::Cubic),
            Entry::Later(EmulatedProtocol::HighSpeed),
            Entry::Later(EmulatedProtocol::Scalable),
        ],
    };
    all.extend(more.into_iter().map(|entry| (None, trial(entry))));
    all
}

/// The mean of every figure, rounded.
fn mean(samples: Vec<Sample>) -> Sample {
    let count = samples.len().max(1) as u64;
    let of =
        |figure: fn(&Sample) -> u64| (samples.iter().map(figure).sum::<u64>() + count / 2) / count;
    Sample {
        bits_per_second: of(|s| s.bits_per_second),
        lost: of(|s| s.lost),
        really_lost: of(|s| s.really_lost),
        resent: of(|s| s.resent),
        sent: of(|s| s.sent),
        received: of(|s| s.received),
        duplicates: of(|s| s.duplicates),
        restarts: of(|s| s.restarts),
        time: Duration::from_nanos(of(|s| s.time.as_nanos() as u64)),
        problem: samples.iter().find_map(|sample| sample.problem.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_test_network_is_run() {
        let all: Vec<_> = Setting::ALL.into_iter().flat_map(trials).collect();
        assert_eq!(all.iter().filter(|(row, _)| row.is_some()).count(), 15);
        assert_eq!(others().len(), 27);
        let error = |ours, theirs| {
            let (row, trial) = all[0].clone();
            let row = row.map(|row| Row { bits_per_second: theirs, ..row });
            let sample = Sample { bits_per_second: ours, ..Sample::default() };
            Compared { row, trial, sample }.error()
        };
        assert_eq!((error(90, 100), error(1_004, 1_000)), (Some(-100), Some(4)));
    }
}
