//! Python's files as streams: anything with `read(n)`, anything with `write(bytes)`. They are
//! called on the transfer's disk thread, with Python's lock; what they raise is kept for the
//! caller.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// What a file raised first, until it is taken.
#[derive(Clone, Default)]
pub(crate) struct Stash(Arc<Mutex<Option<PyErr>>>);

impl Stash {
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Calls Python, and keeps what it raises.
    fn call<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> io::Result<T> {
        // An interpreter that is going away calls nothing any more.
        let Some(result) = Python::try_attach(call) else {
            return Err(io::Error::other("Python is being shut down"));
        };
        result.map_err(|raised| {
            let error = io::Error::other(raised.to_string());
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(raised);
            error
        })
    }
}

/// What a file gives.
pub(crate) struct Stream {
    file: Py<PyAny>,
    stash: Stash,
}

impl Stream {
    pub(crate) fn new(file: Py<PyAny>, stash: Stash) -> Self {
        Self { file, stash }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stash.call(|py| {
            let given = self.file.bind(py).call_method1("read", (into.len(),))?;
            let Ok(given) = given.cast::<PyBytes>() else {
                let kind = given.get_type().name()?;
                let why = format!("read() gave {kind}, and only bytes can be sent");
                return Err(PyTypeError::new_err(why));
            };
            let bytes = given.as_bytes();
            let Some(room) = into.get_mut(..bytes.len()) else {
                return Err(PyOSError::new_err("read(n) gave more than n bytes"));
            };
            room.copy_from_slice(bytes);
            Ok(bytes.len())
        })
    }
}

/// What a file takes.
pub(crate) struct Sink {
    file: Py<PyAny>,
    stash: Stash,
}

impl Sink {
    pub(crate) fn new(file: Py<PyAny>, stash: Stash) -> Self {
        Self { file, stash }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stash.call(|py| {
            let taken = self.file.bind(py).call_method1("write", (PyBytes::new(py, bytes),))?;
            // Some files say how much they took, and others take all.
            match taken.extract::<Option<usize>>() {
                Ok(Some(taken)) => Ok(taken.min(bytes.len())),
                _ => Ok(bytes.len()),
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stash.call(|py| {
            let file = self.file.bind(py);
            if file.hasattr("flush")? {
                file.call_method0("flush")?;
            }
            Ok(())
        })
    }
}
