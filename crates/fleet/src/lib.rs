//! A tree that is too large for one pair of machines: it is cut into chunks, and a task of its own
//! puts each of them on one of a pool of servers (`netblt serve`).
//!
//! All state is in a directory, the *run* (`docs/guide/fleets.md`): [`plan`](plan::plan) makes it,
//! [`run_chunk`](chunk::run_chunk) does one chunk of it, and everything else reads the records of
//! those. An engine (Slurm, Dask, a loop on this machine, a person) calls the second and looks at
//! its result. Nothing here schedules beyond that.

pub mod chunk;
mod claim;
pub mod dask;
mod error;
pub mod finish;
pub mod list;
pub mod local;
mod names;
pub mod plan;
pub mod pool;
mod range_record;
pub mod record;
pub mod run;
#[cfg(test)]
mod scale;
pub mod slurm;
pub mod survey;
pub mod timeline;
mod wait;

pub use self::error::Error;
pub use self::run::Run;

/// Chunks of one array of tasks at most: Slurm's default limit (`MaxArraySize` 1001).
pub const ARRAY: u64 = 1000;
