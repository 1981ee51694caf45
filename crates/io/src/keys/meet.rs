//! Whose key a client calls: the one that is known, or the one that is told the first time.

use netblt_proto::api::Reason;
use netblt_proto::config::{Identity, PublicKey, StaticKey};

use super::known::KnownServers;
use crate::error::{Error, OptionsError};
use crate::ticket::Rendezvous;

/// How a server's key came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It was known before.
    Before,
    /// It was told just now, and is known from now on: its fingerprint is to be shown.
    Now,
}

/// The key of the server at `host:port`: the known one, or the one that `ask` tells, which is known
/// from then on.
pub fn server_key(
    server: &str,
    known: &mut KnownServers,
    ask: impl FnOnce() -> Result<PublicKey, Error>,
) -> Result<(PublicKey, Met), Error> {
    match known.find(server) {
        Some(key) => Ok((key, Met::Before)),
        None => {
            let key = ask()?;
            known.pin(server, key)?;
            Ok((key, Met::Now))
        }
    }
}

/// How to call the server at `host:port` that has the key `server_key`, by the key `own`.
pub fn call(server: &str, own: StaticKey, server_key: PublicKey) -> Result<Rendezvous, Error> {
    let identity = Identity::client(own, server_key).map_err(|_| OptionsError::NoKey)?;
    Ok(Rendezvous::Call { addresses: vec![server.to_owned()], identity })
}

/// What an error of a call comes to: if nobody proved to be the server, and somebody there says to
/// have another key than the known one, that is the reason.
pub fn explain(
    error: Error,
    server: &str,
    known: &KnownServers,
    ask: impl FnOnce() -> Result<PublicKey, Error>,
) -> Error {
    let unproved =
        matches!(&error, Error::Connect { reason: Reason::NoAnswer { hint: Some(_), .. }, .. });
    let told = if unproved { ask().ok() } else { None };
    match told.map(|told| known.judge(server, told)) {
        Some(Err(changed)) => changed,
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use netblt_proto::config::Wire;

    use super::*;

    fn key(byte: u8) -> PublicKey {
        StaticKey::from_bytes([byte; 32]).public()
    }

    #[test]
    fn a_server_is_asked_once() {
        let place = tempfile::tempdir().unwrap();
        let mut known = KnownServers::read(&place.path().join("known")).unwrap();
        let told = server_key("host:1", &mut known, || Ok(key(1)));
        assert_eq!(told.unwrap(), (key(1), Met::Now));
        let told = server_key("host:1", &mut known, || panic!("it is known"));
        assert_eq!(told.unwrap(), (key(1), Met::Before));
        let told = server_key("other:1", &mut known, || Err(Error::Interrupted));
        assert!(matches!(told, Err(Error::Interrupted)));
        assert_eq!(known.find("other:1"), None);
    }

    #[test]
    fn an_opening_that_fails_for_a_changed_key_says_so() {
        let place = tempfile::tempdir().unwrap();
        let mut known = KnownServers::read(&place.path().join("known")).unwrap();
        known.pin("host:1", key(1)).unwrap();
        let failed = |hint: Option<&str>| Error::Connect {
            peer: "host:1".to_owned(),
            wire: Wire::Sealed,
            reason: Reason::NoAnswer { hint: hint.map(str::to_owned), unreachable: false },
        };
        let changed = explain(failed(Some("no")), "host:1", &known, || Ok(key(2)));
        assert!(matches!(changed, Error::ServerKey { .. }), "{changed:?}");
        for (error, told) in [
            (failed(Some("no")), Ok(key(1))),
            (failed(Some("no")), Err(Error::Interrupted)),
            (failed(None), Ok(key(2))),
        ] {
            let same = explain(error, "host:1", &known, || told);
            assert!(matches!(same, Error::Connect { .. }), "{same:?}");
        }
    }

    #[test]
    fn nobody_is_called_by_a_key_that_is_none() {
        let own = StaticKey::from_bytes([1; 32]);
        assert!(call("host:1", own.clone(), PublicKey([0; 32])).is_err());
        let called = call("host:1", own, key(2)).unwrap();
        assert!(matches!(called, Rendezvous::Call { addresses, .. } if addresses == ["host:1"]));
    }
}
