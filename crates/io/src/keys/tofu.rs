//! Trust on first use: the known key of a server, or the one that it offers the first time.

use netblt_proto::api::CloseReason;
use netblt_proto::config::{Identity, PublicKey, StaticKey};

use super::known::KnownServers;
use crate::error::{Error, OptionsError};
use crate::ticket::Rendezvous;

/// How a server's key came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownSince {
    /// It was known before.
    Before,
    /// The server offered it now, and it is known from now on. Show its fingerprint.
    Now,
}

/// The key of the server at `host:port`: the known one, or the one from `ask`, which is known from
/// then on.
pub fn server_key(
    server: &str,
    known: &mut KnownServers,
    ask: impl FnOnce() -> Result<PublicKey, Error>,
) -> Result<(PublicKey, KnownSince), Error> {
    match known.find(server) {
        Some(key) => Ok((key, KnownSince::Before)),
        None => {
            let key = ask()?;
            known.pin(server, key)?;
            Ok((key, KnownSince::Now))
        }
    }
}

/// How to call the server at `host:port` that has the key `server_key`, by the key `own`.
pub fn call(server: &str, own: StaticKey, server_key: PublicKey) -> Result<Rendezvous, Error> {
    let identity = Identity::client(own, server_key).map_err(|_| OptionsError::NoKey)?;
    Ok(Rendezvous::Call { addresses: vec![server.to_owned()], identity })
}

/// Explains an error of a connection: if the peer did not prove to be the server, and the server
/// now offers another key than the known one, the error is about the key.
pub fn explain(
    error: Error,
    server: &str,
    known: &KnownServers,
    ask: impl FnOnce() -> Result<PublicKey, Error>,
) -> Error {
    let unproved = matches!(
        &error,
        Error::Connect { reason: CloseReason::NoAnswer { hint: Some(_), .. }, .. }
    );
    let offered = if unproved { ask().ok() } else { None };
    match offered.map(|key| known.judge(server, key)) {
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
        let found = server_key("host:1", &mut known, || Ok(key(1)));
        assert_eq!(found.unwrap(), (key(1), KnownSince::Now));
        let found = server_key("host:1", &mut known, || panic!("it is known"));
        assert_eq!(found.unwrap(), (key(1), KnownSince::Before));
        let found = server_key("other:1", &mut known, || Err(Error::Interrupted));
        assert!(matches!(found, Err(Error::Interrupted)));
        assert_eq!(known.find("other:1"), None);
    }

    #[test]
    fn an_opening_that_fails_for_a_changed_key_names_the_key() {
        let place = tempfile::tempdir().unwrap();
        let mut known = KnownServers::read(&place.path().join("known")).unwrap();
        known.pin("host:1", key(1)).unwrap();
        let failed = |hint: Option<&str>| Error::Connect {
            peer: "host:1".to_owned(),
            wire: Wire::Sealed,
            reason: CloseReason::NoAnswer { hint: hint.map(str::to_owned), unreachable: false },
        };
        let changed = explain(failed(Some("no")), "host:1", &known, || Ok(key(2)));
        assert!(matches!(changed, Error::ServerKey { .. }), "{changed:?}");
        for (error, offered) in [
            (failed(Some("no")), Ok(key(1))),
            (failed(Some("no")), Err(Error::Interrupted)),
            (failed(None), Ok(key(2))),
        ] {
            let same = explain(error, "host:1", &known, || offered);
            assert!(matches!(same, Error::Connect { .. }), "{same:?}");
        }
    }

    #[test]
    fn an_invalid_server_key_is_refused_before_a_connection() {
        let own = StaticKey::from_bytes([1; 32]);
        assert!(call("host:1", own.clone(), PublicKey([0; 32])).is_err());
        let called = call("host:1", own, key(2)).unwrap();
        assert!(matches!(called, Rendezvous::Call { addresses, .. } if addresses == ["host:1"]));
    }
}
