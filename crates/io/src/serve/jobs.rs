//! The threads that perform requests, as many at once as there may be requests. A thread counts
//! until it ends, whatever has become of its request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The threads that there are, and may be.
#[derive(Debug)]
pub(super) struct Jobs {
    most: usize,
    running: Arc<AtomicUsize>,
}

/// One of them, until this goes.
#[derive(Debug)]
pub(super) struct Job(Arc<AtomicUsize>);

impl Jobs {
    pub(super) fn new(most: usize) -> Self {
        Self { most, running: Arc::default() }
    }

    /// One more, if there may be.
    pub(super) fn begin(&self) -> Option<Job> {
        let more = |running: usize| (running < self.most).then_some(running + 1);
        let taken = self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Job(Arc::clone(&self.running)))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_than_may_be_and_each_counts_until_it_ends() {
        let jobs = Jobs::new(2);
        let (one, two) = (jobs.begin(), jobs.begin());
        assert!(one.is_some() && two.is_some() && jobs.begin().is_none());
        drop(one);
        assert!(jobs.begin().is_some());
        drop(two);
    }
}
