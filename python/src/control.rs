//! What changes a transfer while it runs.

use netblt::Rate;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::options::policy;

/// Changes transfers from any thread while they run: all that it was given to.
#[pyclass(frozen, module = "netblt")]
#[derive(Default)]
pub(crate) struct Control(pub(crate) netblt::Control);

#[pymethods]
impl Control {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Never faster than so many bits a second; `None`: no ceiling.
    #[pyo3(signature = (rate, /))]
    fn set_rate(&self, rate: Option<u64>) -> PyResult<()> {
        let rate = rate.map(Rate::from_bits_per_second);
        if rate == Some(Rate::ZERO) {
            let why = "rate: at least 8 bits a second, or None; pause() stops everything";
            return Err(PyValueError::new_err(why));
        }
        self.0.set_rate(rate);
        Ok(())
    }

    /// How a sender chooses its rate from now on.
    #[pyo3(signature = (name, /, rate = None))]
    fn set_policy(&self, name: &str, rate: Option<u64>) -> PyResult<()> {
        self.0.set_policy(policy(name, rate)?);
        Ok(())
    }

    /// Nothing moves until `resume()`; the connection stays.
    fn pause(&self) {
        self.0.pause();
    }

    /// Goes on.
    fn resume(&self) {
        self.0.resume();
    }

    /// Whether it is paused.
    #[getter]
    fn paused(&self) -> bool {
        self.0.is_paused()
    }
}
