//! A contest on real kernels: the same file over the same emulated path by netblt, by the
//! re-creations of other protocols on its packets, by TCP, and by the tools that are here.
//!
//! From the ground up, and each module uses only those above it:
//!
//! * `process`: a program in one of the two hosts, its certain end, and its processor time;
//! * `testbed`: the two hosts and the path between them for one run, and the path's counts;
//! * [`rival`]: a program that takes part: what it needs, how both its sides are started, and how
//!   it shows that everything has arrived;
//! * `single_run`: one run of one rival;
//! * [`contest`]: all of them, several times, in turn; the medians;
//! * [`page`]: the result as text and as HTML.
//!
//! Nothing here changes the machine outside of the two network namespaces and of one temporary
//! directory, and both are gone when it ends.

#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

pub mod contest;
pub mod page;
mod process;
pub mod rival;
mod single_run;
mod testbed;
