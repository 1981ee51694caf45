//! The link model in real time between two network namespaces: a bad network for any program at
//! all. It needs root on Linux; elsewhere the crate is empty.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod netns;
#[cfg(target_os = "linux")]
mod packet;
#[cfg(target_os = "linux")]
pub mod tun;
