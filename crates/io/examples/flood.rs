//! Floods a listening port, to see what that does to a transfer: the figures of
//! `docs/results/hardening.md`. For ports of your own.
//!
//!     flood ADDRESS KIND PACKETS_A_SECOND SECONDS [TICKET]
//!
//! KIND: `random` bytes, `byte` (one), `half` (OPENs with a wrong MAC), `open` (replays of one true
//! OPEN, made with TICKET), `sealed` (packets of connections that nobody knows). It sends from 64
//! ports and tells how many bytes left and how many came back.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use netblt::Ticket;
use netblt_proto::config::{Config, Role, Wire};
use netblt_proto::endpoint::Endpoint;

const PORTS: usize = 64;
/// Packets are sent in volleys this far apart.
const VOLLEY: Duration = Duration::from_millis(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, kind, rate, seconds, rest @ ..] = args.as_slice() else {
        return Err("flood ADDRESS KIND PACKETS_A_SECOND SECONDS [TICKET]".into());
    };
    let (target, rate): (SocketAddr, f64) = (address.parse()?, rate.parse()?);
    let lasts = Duration::from_secs_f64(seconds.parse()?);
    let ticket = rest.first().map(|text| text.parse::<Ticket>()).transpose()?;
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sockets: Result<Vec<UdpSocket>, _> = (0..PORTS).map(|_| UdpSocket::bind(any)).collect();
    let sockets = sockets?;
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    let template = template(kind, target, ticket)?;
    let (mut sent, mut sent_bytes, mut back, mut back_bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
    let (start, mut noise) = (Instant::now(), blake3::Hasher::new().finalize_xof());
    let mut answer = [0; 2048];
    while start.elapsed() < lasts {
        let due = (start.elapsed().as_secs_f64() * rate) as u64;
        while sent < due {
            let mut packet = template.clone();
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

/// What every packet is made from.
fn template(
    kind: &str,
    target: SocketAddr,
    ticket: Option<Ticket>,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut config = Config::new(Wire::Sealed, Role::Sender);
    config.secret = ticket.map(|ticket| ticket.secret);
    let mut open = Vec::new();
    let now = netblt_proto::time::Instant::EPOCH;
    Endpoint::active(config, target, now, [7; 32]).poll_transmit(now, &mut open);
    Ok(match kind {
        "byte" => vec![7],
        "random" => vec![0; 1200],
        "half" | "open" => open,
        "sealed" => {
            open[3] = 9;
            open
        }
        _ => return Err("a kind of flood that is not known".into()),
    })
}
