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
//! police = "20 Mbit, 512 kB"  # a rate and its bucket: what is beyond is dropped at once
//! queue = "bdp"           # "0.5 bdp", "500 kB", "50 ms", "100 packets", "unlimited"
//! codel = "5 ms"          # a target; "5 ms, mark": it marks what is ECN-capable
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
//! outage = "drop"         # any key above but `reorder_by`, `police`, `codel` and `ecn_mark`
//! ```
//!
//! When nothing is said about the queue it is one bandwidth-delay product, and at least 64 packets
//! of 1,500 bytes: a fixed default would silently be the bottleneck of every fast, long path.

mod file;
mod shipped;

pub use file::{Scenario, ScenarioError, load};
pub use shipped::{UnknownName, names};

/// The shipped network of this name; see `scenarios/` of this crate for what each is.
pub fn named(name: &str) -> Result<Scenario, ScenarioError> {
    let scenario = load(text_of(name)?)?;
    Ok(Scenario { name: name.to_owned(), ..scenario })
}

/// The file of the shipped network of this name, for changes before it is read.
pub fn text_of(name: &str) -> Result<&'static str, ScenarioError> {
    Ok(shipped::text_of(name)?)
}

#[cfg(test)]
mod tests;
