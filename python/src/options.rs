//! The options of a transfer, as the attributes of Python's `netblt.Options`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use netblt::{
    Extras, Family, FecPercent, FecPolicy, FixedRate, Overwrite, ParallelStreams, Policy, Rate,
    Resume,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::control::Control;

/// See `netblt/_options.py`, which says what each means.
#[derive(FromPyObject)]
pub(crate) struct Options {
    bind: Option<String>,
    port: u16,
    advertise: Vec<String>,
    ip_version: Option<u8>,
    mtu: Option<u16>,
    death_timer: f64,
    wait: Option<f64>,
    policy: String,
    rate: Option<u64>,
    fec: Spent,
    streams: Spread,
    path_cache: bool,
    overwrite: bool,
    atomic: bool,
    resume: String,
    verify: bool,
    preserve: bool,
    keep_times: bool,
    owner: bool,
    xattrs: bool,
    acls: bool,
    pub(crate) exclude: Vec<OsString>,
    pub(crate) follow: bool,
    pub(crate) allow_changes: bool,
    rename: Option<OsString>,
    max_files: Option<u64>,
    max_bytes: Option<u64>,
    manifest: Option<PathBuf>,
    trace: Option<PathBuf>,
    buffer_bytes: Option<u32>,
    buffers: Option<u32>,
    buffer_memory: Option<u64>,
}

/// What is spent on repair packets: a word, or percent.
#[derive(FromPyObject)]
enum Spent {
    Percent(i64),
    Word(String),
}

/// Over how many connections: a word, or a number.
#[derive(FromPyObject)]
enum Spread {
    Count(i64),
    Word(String),
}

impl Options {
    /// The library's options; `ValueError` for a value that is none of them.
    pub(crate) fn into_library(self, control: Option<&Control>) -> PyResult<netblt::Options> {
        let mut options = netblt::Options::default();
        options.control = control.map(|control| control.0.clone());
        options.settings.policy = policy(&self.policy, self.rate)?;
        options.settings.fec = fec(&self.fec)?;
        options.settings.streams = streams(&self.streams)?;
        options.settings.resume = resume(&self.resume)?;
        options.settings.family = family(self.ip_version)?;
        options.settings.death_timer = seconds("death_timer", self.death_timer)?;
        options.network.wait = self.wait.map(|wait| seconds("wait", wait)).transpose()?;
        options.network.bind = self.bind.map(address).transpose()?;
        options.network.port = self.port;
        options.network.advertise = self.advertise;
        options.network.mtu = self.mtu;
        options.settings.path_cache = self.path_cache;
        options.settings.overwrite =
            if self.overwrite { Overwrite::Always } else { Overwrite::Never };
        options.settings.atomic = self.atomic;
        options.settings.verify = self.verify;
        options.settings.preserve = self.preserve;
        options.settings.keep_times = self.keep_times;
        options.settings.extras =
            Extras { owner: self.owner, xattrs: self.xattrs, acls: self.acls };
        options.rename = self.rename;
        options.settings.max_files = self.max_files.unwrap_or(options.settings.max_files);
        options.settings.max_bytes = self.max_bytes;
        options.manifest = self.manifest;
        options.trace = self.trace;
        options.buffers.bytes = self.buffer_bytes.unwrap_or(options.buffers.bytes);
        options.buffers.count = self.buffers.unwrap_or(options.buffers.count);
        let unsaid = if self.buffers.is_some() { 0 } else { options.buffers.memory };
        options.buffers.memory = self.buffer_memory.unwrap_or(unsaid);
        Ok(options)
    }
}

/// A policy by its name; `rate` in bits a second.
pub(crate) fn policy(name: &str, rate: Option<u64>) -> PyResult<Policy> {
    let rate = rate.map(Rate::from_bits_per_second);
    if rate.is_some_and(|rate| rate == Rate::ZERO) {
        return Err(PyValueError::new_err("rate: at least 8 bits a second, or None"));
    }
    match (name, rate) {
        ("fair", ceiling) => Ok(Policy::Fair { ceiling }),
        ("background", ceiling) => Ok(Policy::Background { ceiling }),
        ("aggressive", ceiling) => Ok(Policy::Aggressive { ceiling }),
        ("cubic", ceiling) => Ok(Policy::Cubic { ceiling }),
        ("fixed", rate) => {
            let pace = rate.and_then(FixedRate::rate).map(Policy::Fixed);
            pace.ok_or_else(|| PyValueError::new_err("policy \"fixed\" needs a rate"))
        }
        _ => Err(PyValueError::new_err(format!(
            "policy: {name:?} is not fair, background, aggressive, cubic or fixed"
        ))),
    }
}

fn fec(spent: &Spent) -> PyResult<FecPolicy> {
    let share = |percent: i64| u8::try_from(percent).ok().and_then(FecPercent::percent);
    match spent {
        Spent::Word(word) if word == "auto" => Ok(FecPolicy::Auto),
        Spent::Word(word) if word == "never" => Ok(FecPolicy::Never),
        Spent::Word(word) => {
            Err(PyValueError::new_err(format!("fec: {word:?} is not auto, never or a percentage")))
        }
        Spent::Percent(percent) => share(*percent).map(FecPolicy::Share).ok_or_else(|| {
            PyValueError::new_err(format!("fec: {percent} is not 1 to {} percent", FecPercent::MAX))
        }),
    }
}

fn streams(spread: &Spread) -> PyResult<ParallelStreams> {
    let count =
        |count: i64| u8::try_from(count).ok().filter(|n| (1..=ParallelStreams::MAX).contains(n));
    match spread {
        Spread::Word(word) if word == "auto" => Ok(ParallelStreams::Auto),
        Spread::Word(word) => {
            Err(PyValueError::new_err(format!("streams: {word:?} is not auto or a number")))
        }
        Spread::Count(streams) => count(*streams).map(ParallelStreams::Most).ok_or_else(|| {
            PyValueError::new_err(format!(
                "streams: {streams} is not 1 to {}",
                ParallelStreams::MAX
            ))
        }),
    }
}

fn resume(name: &str) -> PyResult<Resume> {
    match name {
        "auto" => Ok(Resume::Auto),
        "never" => Ok(Resume::Never),
        "verify" => Ok(Resume::Verify),
        _ => Err(PyValueError::new_err(format!("resume: {name:?} is not auto, never or verify"))),
    }
}

fn family(version: Option<u8>) -> PyResult<Family> {
    match version {
        None => Ok(Family::Any),
        Some(4) => Ok(Family::V4),
        Some(6) => Ok(Family::V6),
        Some(other) => Err(PyValueError::new_err(format!("ip_version: {other} is not 4 or 6"))),
    }
}

fn address(text: String) -> PyResult<IpAddr> {
    text.parse().map_err(|_| PyValueError::new_err(format!("bind: {text:?} is no IP address")))
}

fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    let options = Duration::try_from_secs_f64(seconds);
    options.map_err(|error| PyValueError::new_err(format!("{name}: {seconds}: {error}")))
}
