//! Networks as files, one format for the simulator, the relay and the benches.
//!
//! ```toml
//! about = "What this is, and where its numbers come from"
//!
//! [path]                  # both directions
//! rate = "200 Mbit"       # none: no limit
//! rtt = "100 ms"          # split evenly, or `delay` one way
//! jitter = "2 ms"         # wanders from 0 to this, one way; never reorders
//! loss = "1 %"
//! loss_burst = 5          # mean run of losses, in packets
//! reorder = "0.1 %"
//! reorder_by = "3 packets"  # or a time
//! duplicate = "0.01 %"
//! corrupt = "1 ppm"
//! queue = "bdp"           # "0.5 bdp", "500 kB", "50 ms", "100 packets", "unlimited"
//! ecn_mark = "100 kB"     # or a time
//! mtu = 1500
//! outage = "none"         # "drop", "hold"
//!
//! [path.up]               # from the side that connects, towards its target
//! rate = "20 Mbit"        # what differs in this direction
//!
//! [[path.schedule]]       # also [[path.up.schedule]], [[path.down.schedule]]
//! at = "10 s"
//! every = "15 s"          # again and again...
//! until = "10 min"        # ...up to here
//! outage = "drop"         # any key above but `reorder_by` and `ecn_mark`
//! ```
//!
//! When nothing is said about the queue it is one bandwidth-delay product, and at least 64 packets
//! of 1,500 bytes: a fixed default would silently be the bottleneck of every fast, long path.

mod file;

use std::fmt;
use std::time::Duration;

use crate::path::LinkOptions;

/// A network: a path in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What it is called; empty when it has no name of its own.
    pub name: String,
    /// What it is, for people.
    pub about: String,
    /// From the side that connects towards its target.
    pub up: LinkOptions,
    /// The way back.
    pub down: LinkOptions,
}

impl Scenario {
    /// Round trip of an unloaded path, without jitter, before anything on the schedule happens.
    pub fn rtt(&self) -> Duration {
        self.up.delay.saturating_add(self.down.delay)
    }
}

/// Why a text is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It is no TOML, or a key or a value is none that scenarios have.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// Keys that are fine each by itself, but not together.
    #[error("{key}: {problem}")]
    Meaning {
        /// The key, such as `path.rtt`.
        key: String,
        /// What is wrong with it, and what would be right.
        problem: &'static str,
    },
    /// No network of this name is shipped.
    #[error("{0}")]
    Unknown(UnknownName),
}

/// A name that no shipped network has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName(String);

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no network is called `{}`; there are", self.0)?;
        for (i, name) in names().enumerate() {
            write!(f, "{} {name}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Reads a scenario from the text of its file.
pub fn load(text: &str) -> Result<Scenario, ScenarioError> {
    file::load(text)
}

/// The shipped network of this name; see `scenarios/` of this crate for what each is.
pub fn named(name: &str) -> Result<Scenario, ScenarioError> {
    let scenario = load(text_of(name)?)?;
    Ok(Scenario { name: name.to_owned(), ..scenario })
}

/// The file of the shipped network of this name, for those who want to change something about it
/// before it is read.
pub fn text_of(name: &str) -> Result<&'static str, ScenarioError> {
    let found = SHIPPED.iter().find(|(shipped, _)| *shipped == name);
    let unknown = || ScenarioError::Unknown(UnknownName(name.to_owned()));
    found.map(|(_, text)| *text).ok_or_else(unknown)
}

/// The names of all shipped networks, in alphabetical order.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../scenarios/", $name, ".toml")))),*]
    };
}

const SHIPPED: &[(&str, &str)] = shipped![
    "bufferbloat",
    "demo",
    "geo-satellite",
    "lan",
    "leo-satellite",
    "lossy-wifi",
    "lte",
    "nistnet",
    "nistnet-loss",
    "ornl-cern",
    "ornl-lbl",
    "transatlantic-10g",
    "transpacific",
    "wideband",
];

#[cfg(test)]
mod tests;
