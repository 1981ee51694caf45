//! The answers to one OPEN (`docs/protocol §4.3`): a replay of them in any order must not
//! make an active end seal two packets under one number of one pair of keys.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use netblt_proto::api::{Datagram, RecvMeta};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::wire::sealed::{self, PacketType};

const NOW: Instant = Instant::EPOCH;

fn config(role: Role) -> Config {
    Config { secret: Some(Secret([7; 32])), ..Config::new(Wire::Sealed, role) }
}

fn server() -> SocketAddr {
    ([198, 51, 100, 1], 1).into()
}

fn deliver(end: &mut Endpoint, mut bytes: Vec<u8>) {
    let (from, meta) = (server(), RecvMeta::default());
    end.handle_datagram(NOW, Datagram { from, local: None, meta, bytes: &mut bytes });
}

/// The packets that leave now.
fn sent(end: &mut Endpoint) -> Vec<Vec<u8>> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while let Some(transmit) = end.poll_transmit(NOW, &mut batch) {
        all.extend(batch.chunks(transmit.segment).map(<[u8]>::to_vec));
        batch.clear();
    }
    all
}

/// A listener that was started again and again has answered one OPEN as often, each time under keys
/// of its own.
fn answers(open: &[u8], count: u8) -> Vec<Vec<u8>> {
    let answer = |seed| {
        let mut end = Endpoint::passive(config(Role::Sender), NOW, [seed; 32]);
        deliver(&mut end, open.to_vec());
        sent(&mut end).remove(0)
    };
    (0..count).map(answer).collect()
}

#[test]
fn an_answer_displaced_by_others_is_not_accepted_again() {
    let mut end = Endpoint::active(config(Role::Receiver), server(), NOW, [9; 32]);
    end.tell(NOW, b"what is here");
    (0..4).for_each(|_| end.offer(NOW, Buffer::new((1 << 20) + 8192)));
    let open = sent(&mut end).remove(0);
    assert_eq!(sealed::kind_of(&open), Some(PacketType::Open));
    let answers = answers(&open, 40);
    let mut sealed_under = BTreeSet::new();
    let mut count = 0;
    for round in 0..3 {
        for answer in &answers {
            deliver(&mut end, answer.clone());
            for packet in sent(&mut end) {
                // Connection id and number: what makes a nonce under the keys of one answer.
                assert!(sealed_under.insert(packet[4..16].to_vec()), "twice, in round {round}");
                count += 1;
            }
        }
    }
    assert!(count >= answers.len() * 2, "each was confirmed: {count}");
}
