//! The programs that `benches/speed` sets beside netblt, each as a pair of ends:
//!
//!     rivals blaster|tls|quinn serve ADDRESS [--packet BYTES]
//!     rivals blaster|tls|quinn call ADDRESS --megabytes N [--packet BYTES]
//!
//! A server says `listening`, serves one transfer and ends; the caller sends. Whoever receives prints
//! `bytes=N seconds=S`, from the first byte to the last, and the blaster's `lost=N` besides. No end
//! outlives [`LONGEST`].

mod blaster;
mod quic;
mod tls;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// What an end takes at most, so that none is left behind.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// What goes wrong is told and ends the program.
pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// What a pair of ends is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub(crate) address: SocketAddr,
    /// What to send, in bytes; the server is not asked.
    pub(crate) bytes: u64,
    /// The UDP payload of a whole packet, in bytes.
    pub(crate) packet: usize,
}

/// What a receiver has to tell.
pub(crate) fn tell(bytes: u64, took: Duration, lost: Option<u64>) {
    let lost = lost.map(|lost| format!(" lost={lost}")).unwrap_or_default();
    println!("bytes={bytes} seconds={:.6}{lost}", took.as_secs_f64());
}

fn main() -> ExitCode {
    std::thread::spawn(|| {
        std::thread::sleep(LONGEST);
        eprintln!("rivals: not over after {} s", LONGEST.as_secs());
        std::process::exit(1);
    });
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rivals: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Outcome {
    let [who, end, address, options @ ..] = words else {
        return Err("rivals blaster|tls|quinn serve|call ADDRESS".into());
    };
    let mut task = Task { address: address.parse()?, bytes: 1 << 30, packet: 1472 };
    for option in options.chunks(2) {
        match option {
            [name, value] if name == "--megabytes" => task.bytes = value.parse::<u64>()? << 20,
            [name, value] if name == "--packet" => task.packet = value.parse()?,
            _ => return Err(format!("{option:?}?").into()),
        }
    }
    match (who.as_str(), end.as_str()) {
        ("blaster", "serve") => blaster::serve(task),
        ("blaster", "call") => blaster::call(task),
        ("tls", "serve") => tls::serve(task),
        ("tls", "call") => tls::call(task),
        ("quinn", "serve") => quic::serve(task),
        ("quinn", "call") => quic::call(task),
        _ => Err(format!("{who} {end}?").into()),
    }
}
