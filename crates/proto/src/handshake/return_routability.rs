//! Return routability (RFC 6275 §5.2.5) on `rfc998` (`docs/protocol §2.3`): a number in the
//! client string of RESPONSE, which the next OPEN returns in its own.

use crate::config::Config;
use crate::limits::MAX_CLIENT;
use crate::wire::data_overhead;
use crate::wire::packet::{Parameters, TransferMode};

/// Name of the field, with the space before it.
const FIELD: &str = " proof=";
/// Bytes that a client string of this program always has in RESPONSE.
const MAX_CLIENT_BYTES: usize = 44;
/// Data bytes of a packet, and packets of a buffer, for a peer that must be validated by coins: a
/// few requests make room for a packet, a buffer or two are proof, and data timers are short.
const UNVALIDATED_PACKET_BYTES: u32 = 512;
const UNVALIDATED_PACKETS: u32 = 33;

/// The OPEN that returns the passive end's number.
#[derive(Clone, Debug)]
pub(crate) struct ProofEcho {
    /// The number.
    pub(crate) proof: u32,
    /// The packet.
    pub(crate) open: Vec<u8>,
}

/// `client` with the proof, or the proof without it where it would be too long.
pub(super) fn with(client: &str, proof: u32, most: usize) -> String {
    let long = format!("{client}{FIELD}{proof}");
    if long.len() <= most.min(MAX_CLIENT) { long } else { format!("netblt{FIELD}{proof}") }
}

/// The client string of the RESPONSE to an OPEN of so many bytes, with the proof if there is to be
/// one. Of three times the OPEN, half at least is left for what follows.
pub(super) fn answer(client: &str, proof: Option<u32>, bytes: usize) -> String {
    let most = (bytes / 2).max(MAX_CLIENT_BYTES);
    match proof {
        Some(proof) => with(client, proof, most),
        None if client.len() > most => String::new(),
        None => client.to_owned(),
    }
}

/// Whether the author of this proposal will return the number.
pub(super) fn is_to_be_expected(proposal: &Parameters) -> bool {
    proposal.client.starts_with("netblt")
}

/// Negotiates the parameters. A receiver that is not validated, and will not return the number,
/// gets small packets and buffers, so that coins validate it soon.
pub(super) fn negotiate(
    config: &Config,
    proposal: &Parameters,
) -> Result<Parameters, &'static str> {
    let shows_it = proposal.mode == TransferMode::Write || is_to_be_expected(proposal);
    if shows_it || !config.validate_addresses {
        return super::negotiate(config, proposal);
    }
    // The bursts of a fixed rate depend on the packet size.
    let most = UNVALIDATED_PACKET_BYTES + data_overhead(config.wire);
    let narrow = Config { datagram_bytes: config.datagram_bytes.min(most), ..config.clone() };
    let settled = super::negotiate(&narrow, proposal)?;
    let buffer_bytes = settled.buffer_bytes.min(settled.packet_bytes * UNVALIDATED_PACKETS);
    Ok(Parameters { buffer_bytes, ..settled })
}

/// The proof in a client string, if there is one and no other.
pub(super) fn of(client: &str) -> Option<u32> {
    let (_, field) = client.split_once(FIELD)?;
    field.bytes().all(|byte| byte.is_ascii_digit()).then(|| field.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_is_the_last_field_and_a_number() {
        assert_eq!(of(&with("netblt 1.0", u32::MAX, 400)), Some(u32::MAX));
        assert_eq!(with(&"x".repeat(60), 7, 60), "netblt proof=7");
        for text in ["", "proof=7", "netblt proof=", "netblt proof=+7", "a proof=7 b", "a proof=x"]
        {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(of("a proof=4294967296"), None);
    }
}
