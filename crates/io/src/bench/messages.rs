//! The client messages of a test (`docs/protocol §8.6`), in the texts that RFC 998 leaves to
//! clients: the ends exchange values beyond the parameters of OPEN.

use std::fmt;
use std::time::Duration;

use crate::fields::Fields;

/// The application of these messages.
const NAME: &str = "netblt bench";
/// The fields of a request, and of a result.
const BYTES: &str = "bytes";
const MILLIS: &str = "ms";
const DATA_TIMEOUTS: &str = "data-timeouts";
/// A server sends no longer than this for anyone.
const MAX_TIME: Duration = Duration::from_secs(86_400);

/// How much to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// This many bytes.
    Bytes(u64),
    /// New buffers start for this long. Those in progress are then finished.
    Time(Duration),
}

/// The load that a sending server is to send, in the client string of OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRequest {
    /// How much.
    pub load: Load,
}

impl TestRequest {
    /// The load that a client string requests. A peer that receives and names no load gets
    /// `otherwise`.
    pub fn parse(client: &str, otherwise: Load) -> Self {
        let fields = Fields::of(NAME, client).unwrap_or_default();
        let load = match (fields.only(BYTES), fields.only(MILLIS)) {
            (Some(bytes), None) => Load::Bytes(bytes),
            (None, Some(millis)) => Load::Time(Duration::from_millis(millis).min(MAX_TIME)),
            _ => otherwise,
        };
        Self { load }
    }
}

impl fmt::Display for TestRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.load {
            Load::Bytes(bytes) => write!(f, "{NAME} {BYTES}={bytes}"),
            Load::Time(time) => write!(f, "{NAME} {MILLIS}={}", time.as_millis()),
        }
    }
}

/// The receiver's result of a test, in the text of a verified DONE message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TestResult {
    /// How often its data timers ran out.
    pub(super) data_timeouts: u64,
}

impl TestResult {
    /// Parses the text of a DONE message, if it is a result.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(Self { data_timeouts: Fields::of(NAME, text)?.only(DATA_TIMEOUTS)? })
    }
}

impl fmt::Display for TestResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} {DATA_TIMEOUTS}={}", self.data_timeouts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_parsed_and_other_text_is_none() {
        let other = Load::Bytes(7);
        for load in [Load::Bytes(0), Load::Bytes(u64::MAX), Load::Time(Duration::from_secs(3))] {
            assert_eq!(
                TestRequest::parse(&TestRequest { load }.to_string(), other),
                TestRequest { load }
            );
        }
        let odd = ["", "cat", "netblt bench", "netblt bench bytes=-1", "netblt bench bytes=1 ms=2"];
        for client in odd {
            assert_eq!(TestRequest::parse(client, other), TestRequest { load: other }, "{client}");
        }
        let long = TestRequest::parse("netblt bench ms=99999999999999", other);
        assert_eq!(long, TestRequest { load: Load::Time(MAX_TIME) });
    }

    #[test]
    fn a_result_is_understood_and_fields_that_are_new_are_passed_over() {
        let result = TestResult { data_timeouts: 7 };
        assert_eq!(result.to_string(), "netblt bench data-timeouts=7");
        assert_eq!(TestResult::parse(&result.to_string()), Some(result));
        let newer = "netblt bench data-timeouts=7 naps=3";
        assert_eq!(TestResult::parse(newer), Some(result));
        let odd = [
            "",
            "data timeouts: 7",
            "netblt bench",
            "netblt bench ",
            "netblt bench data-timeouts=",
            "netblt bench data-timeouts=+7",
            "netblt bench data-timeouts=7  naps=3",
            "netblt bench data-timeouts=7 data-timeouts=7",
            "netblt bench Naps=3 data-timeouts=7",
            "netblt benchdata-timeouts=7",
        ];
        for text in odd {
            assert_eq!(TestResult::parse(text), None, "{text}");
        }
    }
}
