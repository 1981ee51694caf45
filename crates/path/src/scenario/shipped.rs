//! The networks that come with this crate.

use std::fmt;

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

impl std::error::Error for UnknownName {}

/// The file of the network of this name.
pub(super) fn text_of(name: &str) -> Result<&'static str, UnknownName> {
    let found = SHIPPED.iter().find(|(shipped, _)| *shipped == name);
    found.map(|(_, text)| *text).ok_or_else(|| UnknownName(name.to_owned()))
}

/// The names of all shipped networks, in alphabetical order.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*]
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
