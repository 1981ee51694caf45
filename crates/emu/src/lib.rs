//! The link model in real time: `relay` is a bad network that needs no
//! privileges, for any UDP program; `tun` is one between two network namespaces, for any program
//! at all, and needs root on Linux.

#![forbid(unsafe_code)]

pub mod capture;
#[cfg(target_os = "linux")]
pub mod netns;
mod packet;
#[cfg(unix)]
pub mod relay;
#[cfg(target_os = "linux")]
pub mod tun;
