//! The table of opening: an active and a passive end in every state, and every input.

use std::net::SocketAddr;

use super::*;
use crate::config::{Config, Role, Secret};
use crate::endpoint::Endpoint;
use crate::machine::Datagram;

const STATES: [&str; 6] = ["OPENING", "OPEN", "LISTENING", "SLOT", "STANDING", "CLOSED"];
const INPUTS: [&str; 17] = [
    "OPEN",
    "OPEN, the same again",
    "OPEN of another connection",
    "OPEN with a wrong secret",
    "OPEN with another mode",
    "OPEN of version 7",
    "OPEN of RFC 998",
    "RESPONSE",
    "RESPONSE forged",
    "COOKIE forged",
    "REFUSED hint",
    "a packet under its keys",
    "a packet under other keys",
    "garbage",
    "tries used up",
    "10 s of ICMP refusals",
    "the client quits",
];

fn addresses() -> (SocketAddr, SocketAddr) {
    (([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into())
}

fn config(role: Role, secret: u8) -> Config {
    Config {
        secret: Some(Secret([secret; 32])),
        cipher: Cipher::Aes256Gcm,
        ..Config::new(Wire::Sealed, role)
    }
}

fn active(secret: u8, role: Role, entropy: u8) -> Endpoint {
    Endpoint::active(config(role, secret), addresses().1, ms(0), [entropy; 32])
}

/// Everything the endpoint wants to send now.
fn sent(endpoint: &mut Endpoint, now: Instant) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut batch = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(now, &mut batch) {
        all.extend(batch.chunks(transmit.segment).map(<[u8]>::to_vec));
        batch.clear();
    }
    all
}

fn give(endpoint: &mut Endpoint, from: SocketAddr, now: Instant, bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    endpoint.handle_datagram(now, Datagram { from, ecn: None, bytes: &mut bytes });
}

/// An endpoint under test, and its true partner with what that one said.
struct Bench {
    endpoint: Endpoint,
    is_active: bool,
    partner: Endpoint,
    open: Vec<u8>,
    response: Vec<u8>,
    confirm: Vec<u8>,
    now: Instant,
}

impl Bench {
    fn in_state(state: &str) -> Self {
        let (a, b) = addresses();
        let mut opener = active(7, Role::Receiver, 1);
        let mut listener = Endpoint::passive(config(Role::Sender, 7), ms(0), [2; 32]);
        let open = sent(&mut opener, ms(0)).remove(0);
        let is_active = matches!(state, "OPENING" | "OPEN" | "CLOSED");
        let mut twin = Endpoint::passive(config(Role::Sender, 7), ms(0), [2; 32]);
        let first = if state == "LISTENING" { &mut twin } else { &mut listener };
        give(first, a, ms(10), &open);
        let response = sent(first, ms(10)).remove(0);
        let mut prober = active(7, Role::Receiver, 1);
        sent(&mut prober, ms(0));
        give(&mut prober, b, ms(20), &response);
        let confirm = sent(&mut prober, ms(20)).remove(0);
        match state {
            "OPEN" => {
                give(&mut opener, b, ms(20), &response);
                sent(&mut opener, ms(20));
            }
            "STANDING" => give(&mut listener, a, ms(30), &confirm),
            "CLOSED" => opener.quit(ms(20), "enough"),
            _ => {}
        }
        let (mut endpoint, partner) =
            if is_active { (opener, listener) } else { (listener, opener) };
        while endpoint.poll_event().is_some() {}
        sent(&mut endpoint, ms(40));
        Self { endpoint, is_active, partner, open, response, confirm, now: ms(40) }
    }

    fn apply(&mut self, input: &str) {
        let (a, b) = addresses();
        let from = if self.is_active { b } else { a };
        let bytes = match input {
            "OPEN" | "OPEN, the same again" => self.open.clone(),
            "OPEN of another connection" => {
                sent(&mut active(7, Role::Receiver, 9), ms(0)).remove(0)
            }
            "OPEN with a wrong secret" => sent(&mut active(8, Role::Receiver, 9), ms(0)).remove(0),
            "OPEN with another mode" => sent(&mut active(7, Role::Sender, 9), ms(0)).remove(0),
            "OPEN of version 7" => {
                let mut open = self.open.clone();
                open[2] = 7;
                open
            }
            "OPEN of RFC 998" => {
                let config = Config::new(Wire::Rfc998, Role::Receiver);
                sent(&mut Endpoint::active(config, b, ms(0), [1; 32]), ms(0)).remove(0)
            }
            "RESPONSE" => self.response.clone(),
            "RESPONSE forged" => {
                let mut forged = self.response.clone();
                forged[60] ^= 1;
                forged
            }
            "COOKIE forged" => self.reply(12, 64),
            "REFUSED hint" => {
                let mut refused = self.reply(10, 18 + 3);
                refused[17] = 3;
                refused[18..21].copy_from_slice(b"no!");
                refused.extend([0; 16]);
                refused
            }
            "a packet under its keys" => self.confirm.clone(),
            "a packet under other keys" => {
                let mut forged = self.confirm.clone();
                let at = forged.len() - 1;
                forged[at] ^= 1;
                forged
            }
            "garbage" => vec![6; 100],
            other => return self.apply_other(other),
        };
        give(&mut self.endpoint, from, self.now, &bytes);
        if input == "OPEN, the same again" {
            give(&mut self.endpoint, from, self.now, &bytes);
        }
    }

    fn apply_other(&mut self, input: &str) {
        match input {
            "tries used up" => {
                for _ in 0..40 {
                    self.now += Duration::from_secs(1);
                    sent(&mut self.endpoint, self.now);
                    self.endpoint.handle_timeout(self.now);
                }
            }
            "10 s of ICMP refusals" => {
                for _ in 0..11 {
                    self.now += Duration::from_secs(1);
                    self.endpoint.handle_unreachable(self.now);
                    sent(&mut self.endpoint, self.now);
                    self.endpoint.handle_timeout(self.now);
                }
            }
            _ => self.endpoint.quit(self.now, "enough"),
        }
        let _ = &self.partner;
    }

    /// A clear answer to the active end, with the fields an onlooker knows.
    fn reply(&self, kind: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        bytes[2..4].copy_from_slice(&[6, kind]);
        bytes[4..8].copy_from_slice(&self.open[8..12]);
        bytes[12..16].copy_from_slice(&self.open[12..16]);
        bytes
    }
}

#[test]
fn every_state_against_every_input() {
    let mut table = String::new();
    for state in STATES {
        for input in INPUTS {
            let mut bench = Bench::in_state(state);
            bench.apply(input);
            let mut outputs: Vec<String> = std::iter::from_fn(|| bench.endpoint.poll_event())
                .map(|e| describe_event(&e))
                .collect();
            outputs.extend(
                sent(&mut bench.endpoint, bench.now)
                    .iter()
                    .map(|d| format!("sends type {} ({} bytes)", d[3], d.len())),
            );
            let dropped = bench.endpoint.stats(bench.now).datagrams_dropped;
            let next = if dropped > 0 { "dropped" } else { "" };
            line(&mut table, state, input, next, &outputs);
        }
    }
    insta::assert_snapshot!("opening", table);
}
