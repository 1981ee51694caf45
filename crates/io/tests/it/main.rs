//! The library over real sockets. The tests are one program, which is linked once and runs them
//! side by side. Those that need the process or the machine for themselves are other programs.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without fails the test")]

#[path = "../serving/mod.rs"]
mod serving;

mod bench;
mod branches;
mod control;
mod face;
mod floors;
mod hostile;
mod loopback;
mod parallel_streams;
mod ranges;
mod rebind;
mod roots;
mod serve;
mod serve_parallel_streams;
mod support;
mod verbs;
