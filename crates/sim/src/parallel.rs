//! Runs that have nothing to do with each other, on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The results of `run` for each of `jobs`, in their order, whichever thread had them.
pub fn map<J: Sync, R: Clone + Default + Send>(
    jobs: &[J],
    threads: usize,
    run: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let results = Mutex::new(vec![R::default(); jobs.len()]);
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((at, job)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, jobs.get(at)?)))
        {
            let result = run(job);
            let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(place) = results.get_mut(at) {
                *place = result;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
