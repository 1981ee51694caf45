//! The transition table of the handshake: an active and a passive end in every state, and every
//! input.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::api::{CloseReason, Datagram, Event, RecvMeta};
use crate::config::{Config, Role, Secret};
use crate::endpoint::Endpoint;
use crate::wire::sealed;

const STATES: [&str; 8] =
    ["OPENING", "ANSWERED", "OPEN", "LISTENING", "SLOT", "STANDING", "SILENT", "CLOSED"];
const INPUTS: [&str; 19] = [
    "OPEN",
    "OPEN, the same again",
    "OPEN of another connection",
    "OPEN with a wrong secret",
    "OPEN with another mode",
    "OPEN of another version",
    "OPEN of RFC 998",
    "RESPONSE",
    "RESPONSE forged",
    "COOKIE forged",
    "REFUSED hint",
    "a packet under its keys",
    "a packet under other keys",
    "a packet of a connection not known",
    "UNKNOWN, time and again",
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
    endpoint.handle_datagram(
        now,
        Datagram { from, local: None, meta: RecvMeta::default(), bytes: &mut bytes },
    );
}

/// An endpoint under test, and the packets that its true peer and it exchange.
struct EndpointUnderTest {
    endpoint: Endpoint,
    is_active: bool,
    open: Vec<u8>,
    response: Vec<u8>,
    confirm: Vec<u8>,
    /// The passive end's answer.
    hello: Vec<u8>,
    now: Instant,
}

impl EndpointUnderTest {
    fn in_state(state: &str) -> Self {
        let (a, b) = addresses();
        // The same entropy makes the same packets.
        let mut opener = active(7, Role::Receiver, 1);
        let mut twin = active(7, Role::Receiver, 1);
        let passive = || Endpoint::passive(config(Role::Sender, 7), ms(0), [2; 32]);
        let (mut listener, mut other) = (passive(), passive());
        let open = sent(&mut opener, ms(0)).remove(0);
        sent(&mut twin, ms(0));
        give(&mut other, a, ms(10), &open);
        let response = sent(&mut other, ms(10)).remove(0);
        give(&mut twin, b, ms(20), &response);
        let confirm = sent(&mut twin, ms(20)).remove(0);
        give(&mut other, a, ms(30), &confirm);
        let hello = sent(&mut other, ms(30)).remove(0);
        let is_active = matches!(state, "OPENING" | "ANSWERED" | "OPEN" | "CLOSED");
        if matches!(state, "ANSWERED" | "OPEN") {
            give(&mut opener, b, ms(20), &response);
            sent(&mut opener, ms(20));
        }
        if !matches!(state, "LISTENING") {
            give(&mut listener, a, ms(10), &open);
            sent(&mut listener, ms(10));
        }
        match state {
            "OPEN" => give(&mut opener, b, ms(30), &hello),
            "STANDING" | "SILENT" => give(&mut listener, a, ms(30), &confirm),
            "CLOSED" => opener.quit(ms(20), "enough"),
            _ => {}
        }
        let mut endpoint = if is_active { opener } else { listener };
        // Longer than a peer may be silent before the client gets an event.
        let now = if state == "SILENT" { ms(4000) } else { ms(40) };
        endpoint.handle_timeout(now);
        while endpoint.poll_event().is_some() {}
        sent(&mut endpoint, now);
        Self { endpoint, is_active, open, response, confirm, hello, now }
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
            "OPEN of another version" => {
                let mut open = self.open.clone();
                open[2] = sealed::VERSION + 1;
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
            "a packet under its keys" => self.proof(),
            "a packet of a connection not known" => {
                let mut other = self.proof();
                other[4] ^= 1;
                other
            }
            "a packet under other keys" => {
                let mut forged = self.proof();
                let at = forged.len() - 1;
                forged[at] ^= 1;
                forged
            }
            "garbage" => vec![10; 100],
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
            "UNKNOWN, time and again" => {
                for _ in 0..30 {
                    self.now += Duration::from_millis(100);
                    self.endpoint.handle_timeout(self.now);
                    for packet in sent(&mut self.endpoint, self.now) {
                        let mut unknown = [&packet[..4], &[0; 4], &packet[4..16]].concat();
                        unknown[3] = 13;
                        let (a, b) = addresses();
                        let from = if self.is_active { b } else { a };
                        give(&mut self.endpoint, from, self.now, &unknown);
                    }
                }
            }
            "10 s of ICMP refusals" => {
                for _ in 0..14 {
                    self.now += Duration::from_secs(1);
                    self.endpoint.handle_timeout(self.now);
                    for packet in sent(&mut self.endpoint, self.now) {
                        self.endpoint.handle_unreachable(self.now, &packet);
                    }
                }
            }
            _ => self.endpoint.quit(self.now, "enough"),
        }
    }

    /// The other end's first packet under transport keys.
    fn proof(&self) -> Vec<u8> {
        if self.is_active { self.hello.clone() } else { self.confirm.clone() }
    }

    /// A clear answer to the active end, with the fields an onlooker knows.
    fn reply(&self, kind: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        bytes[2..4].copy_from_slice(&[sealed::VERSION, kind]);
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
            let mut bench = EndpointUnderTest::in_state(state);
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
    insta::assert_snapshot!("handshake", table);
}

#[test]
fn a_handshake_that_the_peers_host_refuses_fails_after_five_seconds() {
    let (mut end, mut now) = (active(7, Role::Receiver, 1), ms(0));
    let closed = loop {
        end.handle_timeout(now);
        for packet in sent(&mut end, now) {
            end.handle_unreachable(now, &packet);
        }
        let closed = std::iter::from_fn(|| end.poll_event()).find_map(|event| match event {
            Event::Closed(reason) => Some(reason),
            _ => None,
        });
        match closed {
            Some(reason) => break reason,
            None => now = end.next_timeout(now).expect("it is not over"),
        }
    };
    assert_eq!(closed, CloseReason::NoAnswer { hint: None, unreachable: true });
    assert_eq!(now, ms(5000));
}
