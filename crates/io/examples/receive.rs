//! Receives into a directory what the side that printed the ticket sends.
use netblt::{Cancel, Destination, Observer, Options, Progress, Rendezvous, receive};

struct Watch;
impl Observer for Watch {
    fn progress(&mut self, progress: &Progress) {
        eprint!("\r{} bytes", progress.bytes);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let ticket = arguments.next().ok_or("a ticket, please, and perhaps a directory")?.parse()?;
    let destination = Destination::directory(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let (rendezvous, cancel) = (Rendezvous::Connect(ticket), Cancel::default());
    let summary = receive(destination, &rendezvous, &Options::default(), &mut Watch, &cancel)?;
    eprintln!("\n{} files, verified: {}", summary.files, summary.verified);
    Ok(())
}
