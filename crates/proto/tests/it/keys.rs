//! Openings by static keys (`docs/protocol §4.8, §4.9`): which keys are let in, which are not,
//! and what that costs.

use std::net::SocketAddr;
use std::sync::Arc;

use netblt_proto::api::{CloseReason, Datagram, Event, RecvMeta};
use netblt_proto::config::{
    AuthorizedKeys, Config, Identity, PublicKey, Role, Secret, StaticKey, Wire,
};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::listener::PassiveListener;
use netblt_proto::time::Instant;
use netblt_proto::wire::sealed::{self, PacketType};

const SERVER: u8 = 99;

fn key(byte: u8) -> StaticKey {
    StaticKey::from_bytes([byte; 32])
}

fn public(byte: u8) -> PublicKey {
    key(byte).public()
}

fn authorized(clients: &[u8]) -> Arc<AuthorizedKeys> {
    let clients: Vec<PublicKey> = clients.iter().map(|byte| public(*byte)).collect();
    let (authorized, none) = AuthorizedKeys::new(key(SERVER), &clients);
    assert!(none.is_empty());
    Arc::new(authorized)
}

fn config(role: Role, identity: Identity) -> Config {
    Config {
        identity: Some(identity),
        cipher: Cipher::Aes256Gcm,
        ..Config::new(Wire::Sealed, role)
    }
}

fn by_ticket(role: Role) -> Config {
    Config { identity: None, secret: Some(Secret([7; 32])), ..config(role, serving(&[])) }
}

fn serving(clients: &[u8]) -> Identity {
    Identity::server(authorized(clients))
}

/// A client with this key that calls the server with that one.
fn caller(own: u8, server: u8, entropy: u8) -> Endpoint {
    let identity = Identity::client(key(own), public(server)).expect("a key");
    Endpoint::active(config(Role::Sender, identity), there(), ms(0), [entropy; 32])
}

fn server(clients: &[u8]) -> Endpoint {
    Endpoint::passive(config(Role::Receiver, serving(clients)), ms(0), [200; 32])
}

fn listener(clients: &[u8], entropy: u8) -> PassiveListener {
    PassiveListener::new(config(Role::Receiver, serving(clients)), [entropy; 32])
}

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

fn here() -> SocketAddr {
    ([192, 0, 2, 1], 1).into()
}

fn there() -> SocketAddr {
    ([198, 51, 100, 1], 1).into()
}

fn sent(end: &mut Endpoint, now: Instant) -> Vec<Vec<u8>> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while let Some(transmit) = end.poll_transmit(now, &mut batch) {
        all.extend(batch.chunks(transmit.segment).map(<[u8]>::to_vec));
        batch.clear();
    }
    all
}

fn give(end: &mut Endpoint, now: Instant, from: SocketAddr, bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    end.handle_datagram(
        now,
        Datagram { from, local: None, meta: RecvMeta::default(), bytes: &mut bytes },
    );
}

/// Delivers a packet to a listener: the end that opened, and the answers.
fn deliver(
    listener: &mut PassiveListener,
    now: Instant,
    from: SocketAddr,
    bytes: &[u8],
) -> (Option<Endpoint>, Vec<Vec<u8>>) {
    let mut bytes = bytes.to_vec();
    let datagram = Datagram { from, local: None, meta: RecvMeta::default(), bytes: &mut bytes };
    let end = listener.handle_datagram(now, datagram);
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while listener.poll_transmit(&mut batch).is_some() {
        all.push(std::mem::take(&mut batch));
    }
    (end, all)
}

fn kinds(packets: &[Vec<u8>]) -> Vec<PacketType> {
    packets.iter().map(|bytes| sealed::kind_of(bytes).expect("one of ours")).collect()
}

/// Exchanges packets until neither end has more to send at once.
fn exchange(active: &mut Endpoint, passive: &mut Endpoint, now: Instant) {
    for _ in 0..20 {
        let (out, back) = (sent(active, now), sent(passive, now));
        out.iter().for_each(|bytes| give(passive, now, here(), bytes));
        back.iter().for_each(|bytes| give(active, now, there(), bytes));
    }
}

fn opened(end: &mut Endpoint) -> bool {
    std::iter::from_fn(|| end.poll_event()).any(|event| matches!(event, Event::Opened { .. }))
}

/// The close reason of an opening that gets only `answers`.
fn end_of(mut active: Endpoint, answers: &[Vec<u8>]) -> CloseReason {
    for second in 0..40 {
        let now = ms(second * 1000);
        sent(&mut active, now);
        answers.iter().for_each(|bytes| give(&mut active, now, there(), bytes));
        active.handle_timeout(now);
        while let Some(event) = active.poll_event() {
            if let Event::Closed(reason) = event {
                return reason;
            }
        }
    }
    panic!("it has no end");
}

#[test]
fn each_end_learns_the_peers_key() {
    let (mut active, mut passive) = (caller(2, SERVER, 1), server(&[1, 2, 3]));
    assert_eq!(passive.peer_key(), None);
    exchange(&mut active, &mut passive, ms(10));
    assert!(opened(&mut active) && opened(&mut passive));
    assert_eq!(active.peer_key(), Some(public(SERVER)));
    assert_eq!(passive.peer_key(), Some(public(2)));
}

#[test]
fn a_listener_knows_the_key_of_each_client() {
    let mut listener = listener(&[1, 2, 3], 200);
    for own in [3, 1, 2] {
        let mut active = caller(own, SERVER, own);
        let open = sent(&mut active, ms(0)).remove(0);
        let (_, cookie) = deliver(&mut listener, ms(1), here(), &open);
        assert_eq!(kinds(&cookie), [PacketType::Cookie]);
        assert!(cookie[0].len() <= open.len());
        give(&mut active, ms(2), there(), &cookie[0]);
        let open = sent(&mut active, ms(2)).remove(0);
        let (_, response) = deliver(&mut listener, ms(3), here(), &open);
        assert_eq!(kinds(&response), [PacketType::Response]);
        give(&mut active, ms(4), there(), &response[0]);
        let confirm = sent(&mut active, ms(4)).remove(0);
        let end = deliver(&mut listener, ms(5), here(), &confirm).0.expect("it is open");
        assert_eq!(end.peer_key(), Some(public(own)));
    }
}

#[test]
fn a_server_with_another_key_opens_nothing() {
    let (mut active, mut passive) = (caller(2, SERVER + 1, 1), server(&[2]));
    let open = sent(&mut active, ms(0)).remove(0);
    give(&mut passive, ms(1), here(), &open);
    let refusal = sent(&mut passive, ms(1));
    assert_eq!(kinds(&refusal), [PacketType::Refused]);
    assert!(refusal[0].len() <= open.len());
    let CloseReason::NoAnswer { hint: Some(hint), .. } = end_of(caller(2, SERVER + 1, 1), &refusal)
    else {
        panic!("a hint, and no more");
    };
    assert_eq!(hint, "the server does not know your key, or has another one");
}

/// The refusal is the same for every mistake in an OPEN and is no longer than the OPEN. The
/// listener keeps no state for it.
#[test]
fn an_unknown_key_gets_a_uniform_refusal_and_leaves_no_state() {
    let unknown = sent(&mut caller(4, SERVER, 1), ms(0)).remove(0);
    let mut forged = sent(&mut caller(2, SERVER, 2), ms(0)).remove(0);
    forged[1190] ^= 1;
    let mut other = sent(&mut caller(2, SERVER, 3), ms(0)).remove(0);
    other[300] ^= 1;
    let mut passive = server(&[1, 2, 3]);
    let mut refusals = Vec::new();
    for open in [&unknown, &forged, &other] {
        give(&mut passive, ms(1), here(), open);
        let answers = sent(&mut passive, ms(1));
        assert_eq!(kinds(&answers), [PacketType::Refused]);
        assert!(answers[0].len() <= open.len());
        assert_eq!(passive.connection_ids().count(), 0);
        refusals.push(answers[0][16..].to_vec());
    }
    assert!(refusals.iter().all(|text| *text == refusals[0]));
    // The same OPENs as they were made are let in, if they may be.
    forged[1190] ^= 1;
    give(&mut passive, ms(2), here(), &forged);
    assert_eq!(kinds(&sent(&mut passive, ms(2))), [PacketType::Response]);
}

#[test]
fn a_removed_key_opens_nothing_more_and_its_open_connection_stays() {
    let (mut active, mut passive) = (caller(2, SERVER, 1), server(&[1, 2]));
    exchange(&mut active, &mut passive, ms(10));
    assert!(opened(&mut passive));
    passive.authorize(authorized(&[1]));
    exchange(&mut active, &mut passive, ms(20));
    assert_eq!(passive.peer_key(), Some(public(2)), "what is open stays");
    let again = sent(&mut caller(2, SERVER, 9), ms(30)).remove(0);
    give(&mut passive, ms(9000), here(), &again);
    let answers = sent(&mut passive, ms(9000));
    let refused =
        answers.iter().filter(|bytes| sealed::kind_of(bytes) == Some(PacketType::Refused));
    assert_eq!(refused.count(), 1);
    assert!(!kinds(&answers).contains(&PacketType::Response));
}

#[test]
fn an_opening_under_way_is_dropped_when_its_key_is_removed() {
    for (left, opens) in [(&[1, 2][..], true), (&[1][..], false)] {
        let (mut active, mut passive) = (caller(2, SERVER, 1), server(&[1, 2]));
        let open = sent(&mut active, ms(0)).remove(0);
        give(&mut passive, ms(1), here(), &open);
        let response = sent(&mut passive, ms(1)).remove(0);
        passive.authorize(authorized(left));
        give(&mut active, ms(2), there(), &response);
        let confirm = sent(&mut active, ms(2)).remove(0);
        give(&mut passive, ms(3), here(), &confirm);
        assert_eq!(opened(&mut passive), opens);
    }
}

/// An attacker that saw an opening can send it again, to the same listener or to a restarted one,
/// from any address. That opens nothing, and never draws more bytes than it has.
#[test]
fn a_replayed_opening_opens_nothing() {
    let (mut active, mut passive) = (caller(2, SERVER, 1), server(&[2]));
    let open = sent(&mut active, ms(0)).remove(0);
    give(&mut passive, ms(1), here(), &open);
    let response = sent(&mut passive, ms(1)).remove(0);
    give(&mut active, ms(2), there(), &response);
    let confirm = sent(&mut active, ms(2)).remove(0);
    give(&mut passive, ms(3), here(), &confirm);
    assert!(opened(&mut passive));
    let elsewhere: SocketAddr = ([203, 0, 113, 9], 9).into();
    give(&mut passive, ms(4), elsewhere, &open);
    let answers = sent(&mut passive, ms(4));
    assert!(!kinds(&answers).contains(&PacketType::Response));

    let mut restarted = Endpoint::passive(config(Role::Receiver, serving(&[2])), ms(0), [201; 32]);
    let mut bytes = 0;
    for bytes_of in [&open, &confirm, &open, &confirm] {
        give(&mut restarted, ms(5), elsewhere, bytes_of);
        bytes += bytes_of.len();
    }
    let answers = sent(&mut restarted, ms(5));
    assert!(answers.iter().map(Vec::len).sum::<usize>() <= bytes);
    assert!(!opened(&mut restarted));
    assert_eq!(restarted.peer_key(), None);
}

/// A ticket's opening is not a key's, nor the other way round, whatever is changed on the way.
#[test]
fn tickets_and_keys_do_not_open_each_other() {
    let mut ticket = Endpoint::active(by_ticket(Role::Sender), there(), ms(0), [1; 32]);
    let by_ticket_open = sent(&mut ticket, ms(0)).remove(0);
    let by_key_open = sent(&mut caller(2, SERVER, 1), ms(0)).remove(0);
    let cases = [
        (&by_ticket_open, server(&[2]), "this end knows its peers by their keys, not by a ticket"),
        (
            &by_key_open,
            Endpoint::passive(by_ticket(Role::Receiver), ms(0), [2; 32]),
            "this end knows its peer by a ticket, not by keys",
        ),
    ];
    for (open, mut passive, words) in cases {
        give(&mut passive, ms(1), here(), open);
        let answers = sent(&mut passive, ms(1));
        assert_eq!(kinds(&answers), [PacketType::Refused]);
        let refused = sealed::parse_refused(&answers[0]).expect("a REFUSED");
        assert_eq!((refused.reason, refused.mac), (words.as_bytes(), [0; 16]));
        let mut changed = open.clone();
        changed[0] ^= 1;
        give(&mut passive, ms(2), here(), &changed);
        assert!(!kinds(&sent(&mut passive, ms(2))).contains(&PacketType::Response));
    }
}

#[test]
fn short_openings_by_keys_are_the_same_openings() {
    let mut active = caller(2, SERVER, 1);
    let whole = sent(&mut active, ms(0)).remove(0);
    active.handle_timeout(ms(600));
    let short = sent(&mut active, ms(600)).remove(0);
    assert_eq!((whole.len(), short.len()), (1200, 620));
    let mut passive = server(&[2]);
    give(&mut passive, ms(601), here(), &short);
    let answers = sent(&mut passive, ms(601));
    assert_eq!(kinds(&answers), [PacketType::Response]);
    assert!(answers[0].len() <= short.len());
    give(&mut passive, ms(602), here(), &whole);
    assert_eq!(sent(&mut passive, ms(602)), answers, "and has the same answer");
}

/// 20,000 OPENs that are forged, with ids that are known and with others, make no handshake, and as
/// many true ones no more than there are tokens.
#[test]
fn a_flood_computes_no_more_handshakes_than_it_may() {
    let mut listener = listener(&[1, 2], 200);
    let mut forged = sent(&mut caller(2, SERVER, 1), ms(0)).remove(0);
    for n in 0..20_000_u32 {
        forged[100..104].copy_from_slice(&n.to_be_bytes());
        if n % 2 == 0 {
            forged[50..54].copy_from_slice(&n.to_be_bytes());
        }
        let now = Instant::from_nanos(u64::from(n) * 50_000);
        let (end, answers) = deliver(&mut listener, now, here(), &forged);
        assert!(end.is_none() && kinds(&answers) == [PacketType::Refused]);
    }

    let identity = Identity::client(key(2), public(SERVER)).expect("a key");
    let (mut responses, mut nothing) = (0, 0);
    for n in 0..920_u32 {
        // Half are for others, and of these each has a few.
        let from = if n < 900 { here() } else { ([198, 51, 100, 7], 9).into() };
        let mut entropy = [0; 32];
        entropy[..4].copy_from_slice(&n.to_be_bytes());
        let config = config(Role::Sender, identity.clone());
        let mut active = Endpoint::active(config, there(), ms(2000), entropy);
        let open = sent(&mut active, ms(2000)).remove(0);
        let (_, cookie) = deliver(&mut listener, ms(2000), from, &open);
        give(&mut active, ms(2000), there(), &cookie[0]);
        let open = sent(&mut active, ms(2000)).remove(0);
        match &deliver(&mut listener, ms(2000), from, &open).1[..] {
            [] => nothing += 1,
            answers => responses += usize::from(kinds(answers) == [PacketType::Response]),
        }
    }
    assert_eq!((responses, nothing), (256 + 8, 920 - 264));
}

/// A flood of openings by one key does not displace those of another.
#[test]
fn a_flood_by_one_key_does_not_displace_the_openings_of_others() {
    let mut listener = listener(&[1, 2], 200);
    let mut answered = |own: u8, n: u32| {
        let mut entropy = [own; 32];
        entropy[..4].copy_from_slice(&n.to_be_bytes());
        let identity = Identity::client(key(own), public(SERVER)).expect("a key");
        let config = config(Role::Sender, identity);
        let mut active = Endpoint::active(config, there(), ms(0), entropy);
        for _ in 0..2 {
            for open in sent(&mut active, ms(0)) {
                for answer in deliver(&mut listener, ms(0), here(), &open).1 {
                    give(&mut active, ms(0), there(), &answer);
                }
            }
        }
        sent(&mut active, ms(0)).pop()
    };
    let confirm = answered(1, 0).expect("it was answered");
    (0..400).for_each(|n| _ = answered(2, n));
    assert!(deliver(&mut listener, ms(1), here(), &confirm).0.is_some());
}

#[test]
fn a_server_sends_its_key_to_any_client_unless_it_is_hidden() {
    let who = sealed::build_who([5; 12]);
    let mut passive = server(&[]);
    give(&mut passive, ms(1), here(), &who);
    let answers = sent(&mut passive, ms(1));
    assert_eq!(kinds(&answers), [PacketType::Key]);
    assert!(answers[0].len() < who.len());
    assert_eq!(sealed::parse_key(&answers[0]), Ok(([5; 12], public(SERVER))));
    let (_, answers) = deliver(&mut listener(&[1], 200), ms(1), here(), &who);
    assert_eq!(sealed::parse_key(&answers[0]), Ok(([5; 12], public(SERVER))));

    let hidden = AuthorizedKeys::new(key(SERVER), &[]).0.hidden();
    let hidden = config(Role::Receiver, Identity::server(Arc::new(hidden)));
    for config in [hidden, by_ticket(Role::Receiver)] {
        let mut passive = Endpoint::passive(config, ms(0), [2; 32]);
        give(&mut passive, ms(1), here(), &who);
        assert!(sent(&mut passive, ms(1)).is_empty());
    }
    // An answer draws no answer.
    let mut passive = server(&[]);
    give(&mut passive, ms(1), here(), &answers[0]);
    assert!(sent(&mut passive, ms(1)).is_empty());
}

/// A REFUSED that the server proves ends an opening at once; one that is forged does not.
#[test]
fn refusals_are_proven_under_the_key_of_the_two() {
    let mut both_send = config(Role::Sender, serving(&[2]));
    both_send.cipher = Cipher::Aes256Gcm;
    let mut passive = Endpoint::passive(both_send, ms(0), [2; 32]);
    let mut active = caller(2, SERVER, 1);
    let open = sent(&mut active, ms(0)).remove(0);
    give(&mut passive, ms(1), here(), &open);
    let refused = sent(&mut passive, ms(1)).remove(0);
    let mut forged = refused.clone();
    let at = forged.len() - 1;
    forged[at] ^= 1;
    give(&mut active, ms(2), there(), &forged);
    active.handle_timeout(ms(2));
    assert!(active.poll_event().is_none());
    give(&mut active, ms(3), there(), &refused);
    active.handle_timeout(ms(3));
    let expected = Event::Closed(CloseReason::Refused("both ends want to send".to_owned()));
    assert_eq!(
        active.poll_event().map(|event| format!("{event:?}")),
        Some(format!("{expected:?}"))
    );
}
