//! Floods a listening port, to see what that does to a transfer: the figures of
//! `docs/results/hardening.md`. For ports of your own.
//!
//!     flood ADDRESS KIND PACKETS_A_SECOND SECONDS [TICKET | KEY_FILE SERVER_KEY]
//!
//! KIND: `random` bytes, `byte` (one), `half` (OPENs with a wrong MAC), `open` (replays of one true
//! OPEN, made with TICKET or with a key that the server knows), `strange` (those of 64 keys that it
//! does not know), `sealed` (packets of unknown connections). It sends from 64 ports and
//! tells how many bytes left and how many came back.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use netblt::Ticket;
use netblt::keys::{file, line};
use netblt_proto::config::{Config, Identity, PublicKey, Role, StaticKey, Wire};
use netblt_proto::endpoint::Endpoint;

const PORTS: usize = 64;
/// Packets are sent in volleys this far apart.
const VOLLEY: Duration = Duration::from_millis(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, kind, rate, seconds, rest @ ..] = args.as_slice() else {
        let usage = "flood ADDRESS KIND PACKETS_A_SECOND SECONDS [TICKET | KEY_FILE SERVER_KEY]";
        return Err(usage.into());
    };
    let (target, rate): (SocketAddr, f64) = (address.parse()?, rate.parse()?);
    let lasts = Duration::from_secs_f64(seconds.parse()?);
    let caller = match rest {
        [] => Caller::Unknown,
        [ticket] => Caller::Ticket(ticket.parse()?),
        [key, server, ..] => Caller::Key(file::read(key.as_ref())?, line::public_key(server)?),
    };
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sockets: Result<Vec<UdpSocket>, _> = (0..PORTS).map(|_| UdpSocket::bind(any)).collect();
    let sockets = sockets?;
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    let templates = templates(kind, target, &caller)?;
    let (mut sent, mut sent_bytes, mut back, mut back_bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
    let (start, mut noise) = (Instant::now(), blake3::Hasher::new().finalize_xof());
    let mut answer = [0; 2048];
    while start.elapsed() < lasts {
        let due = (start.elapsed().as_secs_f64() * rate) as u64;
        while sent < due {
            let mut packet = templates[sent as usize % templates.len()].clone();
            // Each is another, where that makes a difference.
            match kind.as_str() {
                "random" => noise.fill(&mut packet),
                "half" => noise.fill(&mut packet[50..]),
                "sealed" => noise.fill(&mut packet[4..]),
                _ => {}
            }
            let socket = &sockets[sent as usize % PORTS];
            if socket.send_to(&packet, target).is_ok() {
                sent_bytes += packet.len() as u64;
            }
            sent += 1;
        }
        for socket in &sockets {
            while let Ok(len) = socket.recv(&mut answer) {
                back += 1;
                back_bytes += len as u64;
            }
        }
        std::thread::sleep(VOLLEY);
    }
    println!("{kind}: {sent} packets, {sent_bytes} bytes out");
    println!("{back} packets, {back_bytes} bytes back");
    Ok(())
}

/// By what the OPENs prove themselves.
enum Caller {
    Unknown,
    Ticket(Ticket),
    Key(StaticKey, PublicKey),
}

/// What the packets are made from, in turn.
fn templates(
    kind: &str,
    target: SocketAddr,
    caller: &Caller,
) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let open = |identity: Option<Identity>| {
        let mut config = Config::new(Wire::Sealed, Role::Sender);
        if let Caller::Ticket(ticket) = caller {
            config.secret = Some(ticket.secret.clone());
        }
        config.identity = identity;
        let mut open = Vec::new();
        let now = netblt_proto::time::Instant::EPOCH;
        Endpoint::active(config, target, now, [7; 32]).poll_transmit(now, &mut open);
        open
    };
    let own = match caller {
        Caller::Key(own, server) => Some(Identity::client(own.clone(), *server)?),
        _ => None,
    };
    Ok(match kind {
        "byte" => vec![vec![7]],
        "random" => vec![vec![0; 1200]],
        "half" | "open" => vec![open(own)],
        "strange" => {
            let Caller::Key(_, server) = caller else {
                return Err("strangers call a server whose key is known".into());
            };
            let keys = (1..=64).map(|byte| StaticKey::from_bytes([byte; 32]));
            let identities: Result<Vec<_>, _> =
                keys.map(|key| Identity::client(key, *server)).collect();
            identities?.into_iter().map(|identity| open(Some(identity))).collect()
        }
        "sealed" => {
            let mut packet = open(own);
            packet[3] = 9;
            vec![packet]
        }
        _ => return Err("a kind of flood that is not known".into()),
    })
}
