//! Sends a file or directory: prints the ticket for the other side; Enter stops it.
use netblt::{Cancel, Observer, Options, Progress, Rendezvous, Source, Ticket, send};

struct Watch;
impl Observer for Watch {
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()> {
        println!("{ticket}");
        Ok(())
    }
    fn progress(&mut self, progress: &Progress) {
        eprint!("\r{} of {} bytes", progress.bytes, progress.total.unwrap_or(0));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = Source::path(std::env::args_os().nth(1).ok_or("what is to be sent?")?);
    let (cancel, options) = (Cancel::default(), Options::default());
    let stop = cancel.clone();
    std::thread::spawn(move || {
        if std::io::stdin().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {
            stop.cancel();
        }
    });
    let summary = send(source, &Rendezvous::Listen, &options, &mut Watch, &cancel)?;
    eprintln!("\n{} bytes, verified: {}", summary.bytes, summary.verified);
    Ok(())
}
