//! Tokio's readers and writers as sources and destinations (feature `tokio`).
//!
//! A [`Transfer`](crate::Transfer) itself is a future for any runtime, and needs no feature. The
//! streams here run on the transfer's disk thread, which waits for the runtime. No thread of the
//! runtime waits for a transfer.
//!
//! ```
//! use netblt::{Cancel, Event, Options, Rendezvous, Transfer};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut options = Options::default();
//!     options.network.bind = Some([127, 0, 0, 1].into());
//!     let source = netblt::tokio::source("greeting", &b"hello"[..]);
//!     let mut sending =
//!         Transfer::send(source, Rendezvous::Listen, options.clone(), Cancel::default())?;
//!     let Some(Event::Listening(ticket)) = sending.event().await else {
//!         return Err(sending.await.expect_err("it did not listen").into());
//!     };
//!     let (writer, _reader) = tokio::io::duplex(64);
//!     let there = Rendezvous::Connect(ticket);
//!     let destination = netblt::tokio::destination(writer);
//!     let receiving = Transfer::receive(destination, there, options, Cancel::default())?;
//!     let (sent, received) = tokio::join!(sending, receiving);
//!     assert!(sent?.verified && received?.bytes == 5);
//!     Ok(())
//! }
//! ```

use std::ffi::OsString;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Poll, ready};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::runtime::Handle;

use crate::destination::Destination;
use crate::options::Source;

/// The content of `reader`, sent under this name, like [`Source::reader`]. When the transfer ends
/// before it, `reader` is dropped at its next read.
///
/// # Panics
///
/// Outside of a runtime of Tokio's.
pub fn source(
    name: impl Into<OsString>,
    reader: impl AsyncRead + Send + Unpin + 'static,
) -> Source {
    Source::reader(name, Waited { runtime: Handle::current(), stream: reader })
}

/// Into `writer`, as [`Destination::writer`]. It is shut down when all is written.
///
/// # Panics
///
/// Outside of a runtime of Tokio's.
pub fn destination(writer: impl AsyncWrite + Send + Unpin + 'static) -> Destination {
    Destination::writer(Waited { runtime: Handle::current(), stream: writer })
}

/// A stream that the runtime moves, for a thread that waits.
struct Waited<T> {
    runtime: Handle,
    stream: T,
}

impl<T: AsyncRead + Unpin> Read for Waited<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Self { runtime, stream } = self;
        runtime.block_on(poll_fn(|context| {
            let mut room = ReadBuf::new(into);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut room))?;
            Poll::Ready(Ok(room.filled().len()))
        }))
    }
}

impl<T: AsyncWrite + Unpin> Write for Waited<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { runtime, stream } = self;
        runtime.block_on(poll_fn(|context| Pin::new(&mut *stream).poll_write(context, bytes)))
    }

    /// Called once all is written.
    fn flush(&mut self) -> io::Result<()> {
        let Self { runtime, stream } = self;
        runtime.block_on(poll_fn(|context| Pin::new(&mut *stream).poll_shutdown(context)))
    }
}
