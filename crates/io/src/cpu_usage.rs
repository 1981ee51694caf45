//! The processor time that a thread wanted: the time that it ran, and the time that it could have
//! run and had to wait, because others ran or its group had used up its quota (a container's).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The shortest interval of a thread's reports: a measurement takes 10 us.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// The calling thread's processor time at the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuUsage(CpuTimes);

#[derive(Clone, Copy, Debug)]
struct CpuTimes {
    ran: Duration,
    waited: Duration,
}

impl CpuUsage {
    pub(crate) fn start() -> Self {
        Self(CpuTimes::now())
    }

    /// For how long the calling thread, which is the one that began, has wanted one since.
    pub(crate) fn wanted(&self) -> Duration {
        let CpuTimes { ran, waited } = self.since();
        ran + waited
    }

    /// For how long it has run.
    pub(crate) fn ran(&self) -> Duration {
        self.since().ran
    }

    /// The wanted time as a share of `elapsed`, or 1 if the thread waited for more than half of it.
    /// A thread that is late so often settles for the work it can do, and sleeps for the rest.
    pub(crate) fn share(&self, elapsed: Duration) -> f64 {
        let CpuTimes { ran, waited } = self.since();
        if waited > elapsed / 2 {
            return 1.0;
        }
        (ran + waited).as_secs_f64() / elapsed.as_secs_f64().max(1e-9)
    }

    fn since(&self) -> CpuTimes {
        let now = CpuTimes::now();
        CpuTimes {
            ran: now.ran.saturating_sub(self.0.ran),
            waited: now.waited.saturating_sub(self.0.waited),
        }
    }
}

impl CpuTimes {
    fn now() -> Self {
        let ran = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(ran.tv_sec).unwrap_or(0);
        let ran = Duration::new(seconds, u32::try_from(ran.tv_nsec).unwrap_or(0));
        Self { ran, waited: waited().unwrap_or_default() }
    }
}

/// The processor time that another thread wanted, as of its last report.
#[derive(Debug, Default)]
pub(crate) struct ThreadCpu {
    nanos: Arc<AtomicU64>,
    before: u64,
}

impl ThreadCpu {
    /// For how long it wanted one since the last [`Self::restart`].
    pub(crate) fn wanted(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed).saturating_sub(self.before))
    }

    /// Starts the count over.
    pub(crate) fn restart(&mut self) {
        self.before = self.nanos.load(Ordering::Relaxed);
    }

    /// The reporter for that thread.
    pub(crate) fn reporter(&self) -> ThreadCpuReporter {
        ThreadCpuReporter { nanos: Arc::clone(&self.nanos), since: None }
    }
}

/// The side of the thread that is asked about.
#[derive(Debug)]
pub(crate) struct ThreadCpuReporter {
    nanos: Arc<AtomicU64>,
    since: Option<(CpuUsage, Instant)>,
}

impl ThreadCpuReporter {
    /// Reports, unless it has just done so. The first call starts the count.
    pub(crate) fn report(&mut self) {
        let Some((processor, reported)) = &mut self.since else {
            self.since = Some((CpuUsage::start(), Instant::now()));
            return;
        };
        if reported.elapsed() >= REPORT_INTERVAL {
            *reported = Instant::now();
            let nanos = u64::try_from(processor.wanted().as_nanos()).unwrap_or(u64::MAX);
            self.nanos.store(nanos, Ordering::Relaxed);
        }
    }
}

/// The second number of `schedstat` for a thread (`sched-stats.rst`): nanoseconds that it waited in
/// a run queue. `None` where the system does not report it.
fn waited() -> Option<Duration> {
    let reported = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    reported.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_uses_processor_time_while_it_works_and_none_while_it_sleeps() {
        let (began, processor) = (Instant::now(), CpuUsage::start());
        while began.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        // Another thread may take the processor away. Where waiting is reported, all of the time
        // was wanted.
        let (wanted, elapsed) = (processor.wanted(), began.elapsed());
        assert!(!wanted.is_zero() && wanted < elapsed * 2, "{wanted:?} of {elapsed:?}");
        if waited().is_some() {
            assert!(wanted > elapsed / 2, "{wanted:?} of {elapsed:?}");
        }
        let (began, processor) = (Instant::now(), CpuUsage::start());
        std::thread::sleep(Duration::from_millis(200));
        assert!(processor.wanted() < began.elapsed());
    }

    #[test]
    fn a_thread_reports_its_processor_time_to_another() {
        let mut usage = ThreadCpu::default();
        let mut reporter = usage.reporter();
        let work = move || {
            let began = Instant::now();
            while began.elapsed() < REPORT_INTERVAL * 3 {
                reporter.report();
            }
            reporter
        };
        let mut reporter = std::thread::spawn(work).join().expect("the thread ends");
        assert!(!usage.wanted().is_zero());
        usage.restart();
        assert!(usage.wanted().is_zero());
        reporter.since = None;
        reporter.report();
        assert!(usage.wanted().is_zero());
    }
}
