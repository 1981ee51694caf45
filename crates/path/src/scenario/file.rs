//! The format of scenario files, and what its keys mean.

use std::fmt;
use std::time::Duration;

use netblt_proto::units::Rate;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::shipped::UnknownName;
use crate::path::{
    Change, CoDel, Displacement, LinkOptions, MarkAbove, Outage, Policer, QueueLimit,
};
use crate::rng::Probability;
use crate::text::{Decimal, parse_bytes, parse_duration, parse_percent, parse_rate};

/// A schedule longer than this is a slip of the pen, and would take long to go through.
const MAX_CHANGES: u64 = 100_000;

/// A network: a path in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name; empty when it has none of its own.
    pub name: String,
    /// Its description, for people.
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
        /// Its error, and the right form.
        problem: &'static str,
    },
    /// No network of this name is shipped.
    #[error("{0}")]
    Unknown(#[from] UnknownName),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    path: LinkTable,
}

/// `[path]`, `[path.up]` and `[path.down]`. One type for the three, since `flatten` and
/// `deny_unknown_fields` exclude each other; what fits only the first is refused by hand.
#[derive(Clone, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LinkTable {
    rate: Option<Text<Rate>>,
    rtt: Option<Text<Duration>>,
    delay: Option<Text<Duration>>,
    jitter: Option<Text<Duration>>,
    loss: Option<Text<Probability>>,
    loss_burst: Option<u32>,
    reorder: Option<Text<Probability>>,
    reorder_by: Option<Text<Displacement>>,
    duplicate: Option<Text<Probability>>,
    corrupt: Option<Text<Probability>>,
    police: Option<Text<Policer>>,
    queue: Option<Text<QueueText>>,
    codel: Option<Text<CoDel>>,
    ecn_mark: Option<Text<MarkAbove>>,
    mtu: Option<u16>,
    outage: Option<Text<Outage>>,
    up: Option<Box<Self>>,
    down: Option<Box<Self>>,
    schedule: Vec<ChangeTable>,
}

/// `[[path.schedule]]`.
#[derive(Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeTable {
    at: Text<Duration>,
    every: Option<Text<Duration>>,
    until: Option<Text<Duration>>,
    rate: Option<Text<Rate>>,
    rtt: Option<Text<Duration>>,
    delay: Option<Text<Duration>>,
    jitter: Option<Text<Duration>>,
    loss: Option<Text<Probability>>,
    loss_burst: Option<u32>,
    reorder: Option<Text<Probability>>,
    duplicate: Option<Text<Probability>>,
    corrupt: Option<Text<Probability>>,
    queue: Option<Text<QueueText>>,
    mtu: Option<u16>,
    outage: Option<Text<Outage>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Reads a scenario from the text of its file.
pub fn load(text: &str) -> Result<Scenario, ScenarioError> {
    let File { name, about, mut path } = toml::from_str(text)?;
    let (up, down) = (path.up.take(), path.down.take());
    let up = path.direction("path.up", up)?;
    let down = path.direction("path.down", down)?;
    let rtt = up.delay(Direction::Up).saturating_add(down.delay(Direction::Down));
    Ok(Scenario {
        name,
        about: about.trim().to_owned(),
        up: up.options(Direction::Up, rtt)?,
        down: down.options(Direction::Down, rtt)?,
    })
}

fn meaning(key: impl Into<String>, problem: &'static str) -> ScenarioError {
    ScenarioError::Meaning { key: key.into(), problem }
}

impl LinkTable {
    /// This table with the differences of `[path.up]` or `[path.down]`.
    fn direction(&self, key: &str, own: Option<Box<Self>>) -> Result<Self, ScenarioError> {
        let own = own.map_or_else(Self::default, |own| *own);
        if own.rtt.is_some() || own.schedule.iter().any(|change| change.rtt.is_some()) {
            return Err(meaning(format!("{key}.rtt"), "one direction has a `delay`, not an `rtt`"));
        }
        if own.up.is_some() || own.down.is_some() {
            return Err(meaning(key, "a direction has no directions of its own"));
        }
        if self.rtt.is_some() && self.delay.is_some() {
            return Err(meaning("path.rtt", "say either `rtt` or `delay` (one way), not both"));
        }
        let mut schedule = self.schedule.clone();
        schedule.extend(own.schedule);
        Ok(Self {
            rate: own.rate.or(self.rate),
            rtt: self.rtt,
            delay: own.delay.or(self.delay),
            jitter: own.jitter.or(self.jitter),
            loss: own.loss.or(self.loss),
            loss_burst: own.loss_burst.or(self.loss_burst),
            reorder: own.reorder.or(self.reorder),
            reorder_by: own.reorder_by.or(self.reorder_by),
            duplicate: own.duplicate.or(self.duplicate),
            corrupt: own.corrupt.or(self.corrupt),
            police: own.police.or(self.police),
            queue: own.queue.or(self.queue),
            codel: own.codel.or(self.codel),
            ecn_mark: own.ecn_mark.or(self.ecn_mark),
            mtu: own.mtu.or(self.mtu),
            outage: own.outage.or(self.outage),
            up: None,
            down: None,
            schedule,
        })
    }

    fn delay(&self, direction: Direction) -> Duration {
        match (self.delay, self.rtt) {
            (Some(delay), _) => delay.0,
            (None, Some(rtt)) => half(rtt.0, direction),
            (None, None) => Duration::ZERO,
        }
    }

    fn options(self, direction: Direction, rtt: Duration) -> Result<LinkOptions, ScenarioError> {
        let rate = self.rate.map(value);
        if self.loss_burst == Some(0) {
            return Err(meaning("loss_burst", "a run of losses is at least 1 packet long"));
        }
        let mut schedule = Vec::new();
        for table in &self.schedule {
            table.expand(direction, rate, rtt, &mut schedule)?;
        }
        Ok(LinkOptions {
            rate,
            delay: self.delay(direction),
            jitter: self.jitter.map(value).unwrap_or_default(),
            loss: self.loss.map(value).unwrap_or_default(),
            loss_burst: self.loss_burst,
            reorder: self.reorder.map(value).unwrap_or_default(),
            reorder_by: self.reorder_by.map(value).unwrap_or_default(),
            duplicate: self.duplicate.map(value).unwrap_or_default(),
            corrupt: self.corrupt.map(value).unwrap_or_default(),
            policer: self.police.map(value),
            early_drop: None,
            codel: self.codel.map(value),
            queue: match self.queue {
                Some(queue) => queue.0.limit(rate, rtt),
                None => QueueLimit::bdp(rate, rtt),
            },
            ecn_mark: self.ecn_mark.map(value),
            mtu: self.mtu,
            outage: self.outage.map(value).unwrap_or_default(),
            schedule,
        })
    }
}

impl ChangeTable {
    /// Adds this change to `schedule`, as often as it happens.
    fn expand(
        &self,
        direction: Direction,
        rate: Option<Rate>,
        rtt: Duration,
        schedule: &mut Vec<Change>,
    ) -> Result<(), ScenarioError> {
        let delay = self.delay.map(value);
        let change = Change {
            at: self.at.0,
            rate: self.rate.map(value),
            delay: delay.or(self.rtt.map(|rtt| half(rtt.0, direction))),
            jitter: self.jitter.map(value),
            loss: self.loss.map(value),
            loss_burst: self.loss_burst,
            reorder: self.reorder.map(value),
            duplicate: self.duplicate.map(value),
            corrupt: self.corrupt.map(value),
            queue: self.queue.map(|queue| queue.0.limit(self.rate.map(value).or(rate), rtt)),
            mtu: self.mtu,
            outage: self.outage.map(value),
        };
        if change == (Change { at: change.at, ..Change::default() }) {
            return Err(meaning("schedule", "an entry must change something"));
        }
        let times = match (self.every, self.until) {
            (None, None) => 1,
            (Some(every), Some(until)) if !every.0.is_zero() => {
                let span = until.0.saturating_sub(self.at.0).as_nanos();
                u64::try_from(span / every.0.as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
            }
            _ => return Err(meaning("schedule.every", "needs a time above 0 and an `until`")),
        };
        if times > MAX_CHANGES {
            return Err(meaning("schedule.every", "comes more than 100,000 times"));
        }
        let every = self.every.map(value).unwrap_or_default();
        let at = |time: u64| self.at.0.saturating_add(every.saturating_mul(time as u32));
        schedule.extend((0..times).map(|time| Change { at: at(time), ..change.clone() }));
        Ok(())
    }
}

/// One way of a round trip; the two are together exactly the whole.
fn half(rtt: Duration, direction: Direction) -> Duration {
    match direction {
        Direction::Up => rtt / 2,
        Direction::Down => rtt - rtt / 2,
    }
}

/// The length of a queue, which may need the rate and the round trip to be known.
#[derive(Clone, Copy)]
enum QueueText {
    Bdp(Decimal),
    Limit(QueueLimit),
}

impl QueueText {
    fn limit(self, rate: Option<Rate>, rtt: Duration) -> QueueLimit {
        match (self, rate) {
            (Self::Limit(limit), _) => limit,
            (Self::Bdp(_), None) => QueueLimit::Unlimited,
            (Self::Bdp(times), Some(rate)) => {
                QueueLimit::Bytes(times.times(rate.bytes_in(rtt)).unwrap_or(u64::MAX))
            }
        }
    }
}

/// A value written as text with a unit.
#[derive(Clone, Copy)]
struct Text<T>(T);

fn value<T>(text: Text<T>) -> T {
    text.0
}

/// Types that can be parsed from such a text.
trait FromText: Sized {
    fn from_text(text: &str) -> Result<Self, String>;
}

impl<'de, T: FromText> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor(std::marker::PhantomData))
    }
}

struct TextVisitor<T>(std::marker::PhantomData<T>);

impl<T: FromText> Visitor<'_> for TextVisitor<T> {
    type Value = Text<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text with a unit")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        T::from_text(text).map(Text).map_err(E::custom)
    }

    // Numbers go the same way, for the advice that the parsers give about units.
    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        self.visit_str(&number.to_string())
    }
}

impl FromText for Rate {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_rate(text).map_err(|error| error.to_string())
    }
}

impl FromText for Duration {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_duration(text).map_err(|error| error.to_string())
    }
}

impl FromText for Probability {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_percent(text).map_err(|error| error.to_string())
    }
}

impl FromText for Displacement {
    fn from_text(text: &str) -> Result<Self, String> {
        match (packets(text), parse_duration(text)) {
            (Some(packets), _) => Ok(Self::Packets(packets)),
            (None, Ok(time)) => Ok(Self::Time(time)),
            _ => Err(format!("`{text}` is neither a number such as `3 packets` nor a time")),
        }
    }
}

impl FromText for MarkAbove {
    fn from_text(text: &str) -> Result<Self, String> {
        match (parse_bytes(text), parse_duration(text)) {
            (Ok(bytes), _) => Ok(Self::Bytes(bytes)),
            (_, Ok(time)) => Ok(Self::Time(time)),
            _ => Err(format!("`{text}` is neither a size such as 100kB nor a time such as 5ms")),
        }
    }
}

impl FromText for Policer {
    fn from_text(text: &str) -> Result<Self, String> {
        let halves = text.split_once(',');
        let read = halves.and_then(|(rate, bucket)| {
            Some((parse_rate(rate.trim()).ok()?, parse_bytes(bucket.trim()).ok()?))
        });
        match read {
            Some((rate, bucket_bytes)) if rate > Rate::ZERO => Ok(Self { rate, bucket_bytes }),
            _ => Err(format!(
                "`{text}` is no policer: expected a rate above 0 and its bucket, such as \
                 `20 Mbit, 512 kB`"
            )),
        }
    }
}

impl FromText for CoDel {
    fn from_text(text: &str) -> Result<Self, String> {
        let (time, marks) = match text.trim().strip_suffix("mark") {
            Some(time) => (time.trim_end().trim_end_matches(','), true),
            None => (text, false),
        };
        match parse_duration(time.trim()) {
            Ok(target) if !target.is_zero() => Ok(Self { target, marks }),
            _ => Err(format!(
                "`{text}` is no target: expected a time above 0 such as 5ms, or `5ms, mark`"
            )),
        }
    }
}

impl FromText for QueueText {
    fn from_text(text: &str) -> Result<Self, String> {
        let one_bdp = if text.trim() == "bdp" { "1 bdp" } else { text };
        if let Some((number, "bdp")) = Decimal::split(one_bdp.trim()) {
            return Ok(Self::Bdp(number));
        }
        let limit = match (packets(text), parse_bytes(text), parse_duration(text)) {
            _ if text.trim() == "unlimited" => QueueLimit::Unlimited,
            (Some(packets), _, _) => QueueLimit::Packets(packets),
            (None, Ok(bytes), _) => QueueLimit::Bytes(bytes),
            (None, _, Ok(time)) => QueueLimit::Time(time),
            _ => {
                return Err(format!(
                    "`{text}` is no queue: expected `bdp`, `0.5 bdp`, a size such as 500kB, a \
                     time such as 50ms, a number such as `100 packets`, or `unlimited`"
                ));
            }
        };
        Ok(Self::Limit(limit))
    }
}

impl FromText for Outage {
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "drop" => Ok(Self::Drop),
            "hold" => Ok(Self::Hold),
            _ => Err(format!("`{text}` is no outage: expected `none`, `drop` or `hold`")),
        }
    }
}

/// `3 packets`, `1 packet`.
fn packets(text: &str) -> Option<u32> {
    let number = text.trim().trim_end_matches('s').strip_suffix("packet")?;
    number.trim_end().parse().ok()
}
