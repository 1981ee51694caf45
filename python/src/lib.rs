//! What is compiled of the Python package `netblt`: a transfer on a thread of its own, and what
//! goes into it and comes out of it. The words that people use are in `netblt/*.py`.
//!
//! Python's lock is held only to convert; no thread waits with it.

mod client;
mod control;
mod errors;
mod events;
mod files;
mod job;
mod options;

#[pyo3::pymodule]
mod _netblt {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::client::{Call, Remote};
    #[pymodule_export]
    use crate::control::Control;
    #[pymodule_export]
    use crate::events::{Progress, Summary};
    #[pymodule_export]
    use crate::job::Job;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
