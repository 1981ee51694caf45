//! Random numbers of the system.

use crate::error::Error;

/// 32 bytes that were never used before.
pub(crate) fn entropy() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Socket {
        what: "the system gives no random numbers".to_owned(),
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(bytes)
}
