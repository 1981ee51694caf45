//! What the calling end requests of the other one beyond OPEN's parameters, in their client string.

use std::fmt;
use std::time::Duration;

/// Every request begins with these words.
const NAME: &str = "netblt bench";
/// A server sends no longer than this for anyone.
const MAX_TIME: Duration = Duration::from_secs(86_400);

/// How much to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// This many bytes.
    Bytes(u64),
    /// New buffers are begun for this long; what is under way then is finished.
    Time(Duration),
}

/// How much a server that is to send shall send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestRequest {
    /// How much.
    pub load: Load,
}

impl TestRequest {
    /// What a client string asks for, if it is a request; a stranger who reads without one gets
    /// `otherwise`.
    pub fn parse(client: &str, otherwise: Load) -> Self {
        let load = client.strip_prefix(NAME).and_then(|rest| {
            let (what, number) = rest.trim_start().split_once('=')?;
            let number = number.parse::<u64>().ok()?;
            match what {
                "bytes" => Some(Load::Bytes(number)),
                "ms" => Some(Load::Time(Duration::from_millis(number).min(MAX_TIME))),
                _ => None,
            }
        });
        Self { load: load.unwrap_or(otherwise) }
    }
}

impl fmt::Display for TestRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.load {
            Load::Bytes(bytes) => write!(f, "{NAME} bytes={bytes}"),
            Load::Time(time) => write!(f, "{NAME} ms={}", time.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_understood_and_anything_else_is_none() {
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
}
