//! How much of a processor a thread wanted: the time that it ran, and the time that it could have
//! run and was not let, since others did, or since its group had used up what it may (a container's
//! quota).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How often a thread tells what it wanted, at most: asking takes 10 us.
const TELLING: Duration = Duration::from_millis(50);

/// What the calling thread had wanted when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor(Wanted);

#[derive(Clone, Copy, Debug)]
struct Wanted {
    ran: Duration,
    waited: Duration,
}

impl Processor {
    pub(crate) fn start() -> Self {
        Self(Wanted::now())
    }

    /// For how long the calling thread, which is the one that began, has wanted one since.
    pub(crate) fn wanted(&self) -> Duration {
        let Wanted { ran, waited } = self.since();
        ran + waited
    }

    /// For how long it has run.
    pub(crate) fn ran(&self) -> Duration {
        self.since().ran
    }

    /// What it has wanted as a share of `elapsed`; all of it if more than half was spent waiting:
    /// who is late so often settles for what it can do, and sleeps for the rest.
    pub(crate) fn share(&self, elapsed: Duration) -> f64 {
        let Wanted { ran, waited } = self.since();
        if waited > elapsed / 2 {
            return 1.0;
        }
        (ran + waited).as_secs_f64() / elapsed.as_secs_f64().max(1e-9)
    }

    fn since(&self) -> Wanted {
        let now = Wanted::now();
        Wanted {
            ran: now.ran.saturating_sub(self.0.ran),
            waited: now.waited.saturating_sub(self.0.waited),
        }
    }
}

impl Wanted {
    fn now() -> Self {
        let ran = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(ran.tv_sec).unwrap_or(0);
        let ran = Duration::new(seconds, u32::try_from(ran.tv_nsec).unwrap_or(0));
        Self { ran, waited: waited().unwrap_or_default() }
    }
}

/// What another thread wanted, as far as it has told.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    nanos: Arc<AtomicU64>,
    before: u64,
}

impl Heard {
    /// For how long it wanted one since the last [`Self::restart`].
    pub(crate) fn wanted(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed).saturating_sub(self.before))
    }

    /// What it wanted until now does not count.
    pub(crate) fn restart(&mut self) {
        self.before = self.nanos.load(Ordering::Relaxed);
    }

    /// What the thread that is asked about needs to tell it.
    pub(crate) fn teller(&self) -> Teller {
        Teller { nanos: Arc::clone(&self.nanos), since: None }
    }
}

/// The side of the thread that is asked about.
#[derive(Debug)]
pub(crate) struct Teller {
    nanos: Arc<AtomicU64>,
    since: Option<(Processor, Instant)>,
}

impl Teller {
    /// Tells it, unless that was just done. The first call begins.
    pub(crate) fn tell(&mut self) {
        let Some((processor, told)) = &mut self.since else {
            self.since = Some((Processor::start(), Instant::now()));
            return;
        };
        if told.elapsed() >= TELLING {
            *told = Instant::now();
            let nanos = u64::try_from(processor.wanted().as_nanos()).unwrap_or(u64::MAX);
            self.nanos.store(nanos, Ordering::Relaxed);
        }
    }
}

/// The second of the numbers that Linux tells of a thread (`sched-stats.rst`): nanoseconds that it
/// waited in a run queue. Where nobody tells it, none.
fn waited() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_wants_one_while_it_works_and_none_while_it_sleeps() {
        let (began, processor) = (Instant::now(), Processor::start());
        while began.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        // Whoever takes it away meanwhile: where that is told, all of the time was wanted.
        let (wanted, elapsed) = (processor.wanted(), began.elapsed());
        assert!(!wanted.is_zero() && wanted < elapsed * 2, "{wanted:?} of {elapsed:?}");
        if waited().is_some() {
            assert!(wanted > elapsed / 2, "{wanted:?} of {elapsed:?}");
        }
        let (began, processor) = (Instant::now(), Processor::start());
        std::thread::sleep(Duration::from_millis(200));
        assert!(processor.wanted() < began.elapsed());
    }

    #[test]
    fn a_thread_tells_another_what_it_wanted() {
        let mut heard = Heard::default();
        let mut teller = heard.teller();
        let work = move || {
            let began = Instant::now();
            while began.elapsed() < TELLING * 3 {
                teller.tell();
            }
            teller
        };
        let mut teller = std::thread::spawn(work).join().expect("told");
        assert!(!heard.wanted().is_zero());
        heard.restart();
        assert!(heard.wanted().is_zero());
        teller.since = None;
        teller.tell();
        assert!(heard.wanted().is_zero());
    }
}
