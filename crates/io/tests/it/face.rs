//! The library as its users meet it: its words, its examples, what they can tell it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use netblt::{Cancel, Error, Options, Rendezvous, Source, Ticket};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(under: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(under).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Whether a line of code, not of a comment, has something in it that looks like an option.
fn names_an_option(line: &str) -> bool {
    let code = line.split_once("// ").map_or(line, |(code, _)| code);
    let is_comment = code.trim_start().starts_with("//");
    let after = |(at, _): (usize, &str)| code[at + 2..].chars().next();
    !is_comment
        && code.match_indices("--").any(|m| after(m).is_some_and(|c| c.is_ascii_alphabetic()))
}

#[test]
fn no_message_names_an_option_of_a_program() {
    assert!(names_an_option("    \"use a smaller --mtu\""));
    assert!(!names_an_option("/// like `--mtu`") && !names_an_option("a - -b; i -- "));
    let mut files = Vec::new();
    sources(&here().join("src"), &mut files);
    assert!(files.len() > 30, "{}", files.len());
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        for (i, line) in text.lines().enumerate() {
            assert!(!names_an_option(line), "{}:{}: {line}", path.display(), i + 1);
        }
    }
}

#[test]
fn a_walk_through_files_can_be_cancelled() {
    struct Ignored;
    impl netblt::Observer for Ignored {
        fn listening(&mut self, _: &Ticket) -> std::io::Result<()> {
            panic!("it listens before it has looked at the files");
        }
    }
    let from = tempfile::tempdir().unwrap();
    for i in 0..1000 {
        fs::write(from.path().join(i.to_string()), "").unwrap();
    }
    let cancel = Cancel::default();
    cancel.cancel();
    let (source, options) = (Source::path(from.path()), Options::default());
    let sent = netblt::send(source, &Rendezvous::Listen, &options, &mut Ignored, &cancel);
    assert!(matches!(sent, Err(Error::Interrupted)), "{sent:?}");
}

#[test]
fn repair_packets_are_refused_where_there_are_none() {
    struct Ignored;
    impl netblt::Observer for Ignored {}
    let from = tempfile::tempdir().unwrap();
    fs::write(from.path().join("data"), "data").unwrap();
    let mut options = Options::new(netblt::Wire::Rfc998);
    options.settings.fec = netblt::FecPolicy::Share(netblt::FecPercent::percent(5).unwrap());
    let (source, cancel) = (Source::path(from.path().join("data")), Cancel::default());
    let no_peer = Rendezvous::Active("127.0.0.1:9".to_owned());
    let sent = netblt::send(source, &no_peer, &options, &mut Ignored, &cancel);
    let refused = Error::Options(netblt::OptionsError::Repair).to_string();
    assert_eq!(sent.unwrap_err().to_string(), refused);
}

#[test]
fn the_guide_shows_the_example() {
    let guide = fs::read_to_string(here().join("../../docs/guide/library.md")).unwrap();
    let example = fs::read_to_string(here().join("examples/send.rs")).unwrap();
    let code = example.split_once('\n').unwrap().1.trim();
    assert!(guide.contains(code), "library.md does not show examples/send.rs as it is");
    let used = code.lines().filter(|line| line.starts_with("use ")).count();
    assert_eq!(used, 1, "one use of the one crate");
}

/// An example, built if it was not yet.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    if !path.exists() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--examples"])
            .current_dir(here())
            .status();
        assert!(built.unwrap().success());
    }
    Command::new(path)
}

/// Ends with the test, however that ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_examples_send_and_receive() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(from.path().join("data"), vec![7; 300_000]).unwrap();
    let mut sender = example("send");
    sender.arg(from.path().join("data")).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut sender = Process(sender.stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(sender.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut ticket: Ticket = line.parse().unwrap();
    // Wherever else it listens, it does so on loopback.
    let port = ticket.addresses[0].rsplit_once(':').unwrap().1.to_owned();
    ticket.addresses = vec![format!("127.0.0.1:{port}")];
    let mut receiver = example("receive");
    let received = receiver.arg(ticket.to_string()).arg(to.path()).output().unwrap();
    assert!(received.status.success(), "{received:?}");
    assert!(sender.0.wait().unwrap().success());
    let mut said = String::new();
    sender.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("300000 bytes, verified: true"), "{said}");
    assert_eq!(fs::read(to.path().join("data")).unwrap(), vec![7; 300_000]);
}
