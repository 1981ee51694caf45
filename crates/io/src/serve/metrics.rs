//! The counts of a server, in the format of Prometheus, and the small HTTP server that answers it.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::audit::{AuditKind, AuditRecord, Verdict};
use super::jobs::Jobs;
use crate::error::RequestErrorKind;

/// How long a reader may take for its question, and for the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Readers at once.
const READERS: usize = 16;
const THREAD: &str = "netblt-metrics";
/// The longest request that is read.
const MAX_QUESTION: usize = 2048;

const VERDICTS: [&str; 3] = ["done", "denied", "failed"];

/// A server's counts. Cheap to clone, and read from any thread.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<MetricCounts>);

#[derive(Debug, Default)]
struct MetricCounts {
    sessions: AtomicU64,
    /// By request and verdict.
    requests: [[AtomicU64; VERDICTS.len()]; AuditKind::COUNT],
    sent: AtomicU64,
    received: AtomicU64,
    busy: AtomicU64,
    /// Bytes of running transfers.
    moving: AtomicU64,
}

impl Metrics {
    /// The present number of sessions, and the bytes of their running transfers.
    pub(super) fn is_serving(&self, sessions: u64, bytes: u64) {
        self.0.sessions.store(sessions, Ordering::Relaxed);
        self.0.moving.store(bytes, Ordering::Relaxed);
    }

    /// A connection was refused because the server is busy.
    pub(super) fn turned_away(&self) {
        self.0.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// A request has ended.
    pub(super) fn ended(&self, account: &AuditRecord) {
        let verdict = match &account.verdict {
            Verdict::Done => 0,
            Verdict::Denied(what, _) => {
                if *what == RequestErrorKind::Busy {
                    self.turned_away();
                }
                1
            }
            Verdict::Failed(_) => 2,
        };
        let request = AuditKind::all().position(|kind| kind == account.request);
        let counts = request.and_then(|at| self.0.requests.get(at));
        if let Some(count) = counts.and_then(|counts| counts.get(verdict)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let way = match account.request {
            AuditKind::Receive => &self.0.received,
            AuditKind::Request(_) | AuditKind::None => &self.0.sent,
        };
        way.fetch_add(account.bytes, Ordering::Relaxed);
    }

    /// All of it, in Prometheus's text format.
    pub fn text(&self) -> String {
        let counts = &*self.0;
        let mut text = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: &AtomicU64| {
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        };
        one("netblt_sessions", "gauge", "Sessions that are being served.", &counts.sessions);
        one("netblt_moving_bytes", "gauge", "File bytes that these have moved.", &counts.moving);
        let sent = "File bytes, and bytes of answers, sent by sessions that are over.";
        one("netblt_sent_bytes_total", "counter", sent, &counts.sent);
        let received = "File bytes stored by sessions that are over.";
        one("netblt_received_bytes_total", "counter", received, &counts.received);
        let busy = "Connections refused because the server was busy.";
        one("netblt_busy_total", "counter", busy, &counts.busy);
        let name = "netblt_requests_total";
        let _ = writeln!(text, "# HELP {name} Requests that are over.\n# TYPE {name} counter");
        for (kind, counts) in AuditKind::all().zip(&counts.requests) {
            let request = kind.name();
            for (verdict, count) in VERDICTS.iter().zip(counts) {
                let labels = format!("request=\"{request}\",verdict=\"{verdict}\"");
                let _ = writeln!(text, "{name}{{{labels}}} {}", count.load(Ordering::Relaxed));
            }
        }
        text
    }

    /// Answers on this port of loopback (0: any), on threads of its own that live as long as the
    /// process; where it does. A reader that takes its time keeps none of the others waiting: of
    /// more than 16 at once the rest is hung up on. Errors are those of binding.
    pub fn answer_on(&self, port: u16) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let (metrics, readers) = (self.clone(), Jobs::new(READERS));
        let answer = move || {
            for stream in listener.incoming().flatten() {
                let Some(reader) = readers.begin() else { continue };
                let metrics = metrics.clone();
                let answer = move || {
                    // A reader that hangs up before the end did not want it.
                    let _ = metrics.answer(stream);
                    drop(reader);
                };
                // Without a thread there is no answer, and the reader may ask again.
                let _ = std::thread::Builder::new().name(THREAD.to_owned()).spawn(answer);
            }
        };
        std::thread::Builder::new().name(THREAD.to_owned()).spawn(answer)?;
        Ok(address)
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let (mut question, mut piece) = (Vec::new(), [0; 512]);
        let until = Instant::now() + PATIENCE;
        while !question.windows(4).any(|end| end == b"\r\n\r\n") {
            // For the whole request, however many pieces it comes in.
            let left = until.saturating_duration_since(Instant::now());
            stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            if left.is_zero() {
                return Ok(());
            }
            let read = stream.read(&mut piece)?;
            question.extend_from_slice(piece.get(..read).unwrap_or_default());
            if read == 0 || question.len() > MAX_QUESTION {
                return Ok(());
            }
        }
        let (status, body) = match question.starts_with(b"GET /metrics ") {
            true => ("200 OK", self.text()),
            false => ("404 Not Found", "It is at /metrics.\n".to_owned()),
        };
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::RequestKind;

    fn ask(address: SocketAddr, question: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(question.as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }

    fn account(request: AuditKind, verdict: Verdict) -> AuditRecord {
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let (name, path, elapsed) = (String::new(), Vec::new(), Duration::ZERO);
        let (target, names, names_omitted) = (Vec::new(), Vec::new(), 0);
        AuditRecord {
            peer,
            name,
            request,
            path,
            target,
            names,
            names_omitted,
            bytes: 7,
            elapsed,
            verdict,
        }
    }

    #[test]
    fn every_kind_of_request_is_counted() {
        let metrics = Metrics::default();
        for request in AuditKind::all() {
            metrics.ended(&account(request, Verdict::Done));
        }
        let text = metrics.text();
        for word in AuditKind::all().map(AuditKind::name) {
            let line = format!("netblt_requests_total{{request=\"{word}\",verdict=\"done\"}} 1");
            assert!(text.lines().any(|one| one == line), "no {line}");
        }
    }

    #[test]
    fn a_slow_metrics_reader_keeps_no_other_waiting() {
        let metrics = Metrics::default();
        let address = metrics.answer_on(0).expect("a port");
        let slow: Vec<TcpStream> =
            (0..READERS - 1).map(|_| TcpStream::connect(address).expect("connected")).collect();
        for mut stream in &slow {
            stream.write_all(b"GET /met").expect("asked");
        }
        let answer = ask(address, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        // They still wait: what they were asked for was not taken for a whole question.
        for mut stream in &slow {
            stream.write_all(b"rics HTTP/1.1\r\n\r\n").expect("asked");
        }
    }

    #[test]
    fn every_count_is_in_the_answer() {
        let metrics = Metrics::default();
        let address = metrics.answer_on(0).expect("a port");
        metrics.is_serving(2, 1000);
        metrics.ended(&account(AuditKind::Request(RequestKind::Get), Verdict::Done));
        metrics.ended(&account(AuditKind::Receive, Verdict::Failed("x".to_owned())));
        metrics.ended(&account(
            AuditKind::Request(RequestKind::Put),
            Verdict::Denied(RequestErrorKind::Busy, "x".to_owned()),
        ));
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        for line in [
            "netblt_sessions 2",
            "netblt_moving_bytes 1000",
            "netblt_sent_bytes_total 14",
            "netblt_received_bytes_total 7",
            "netblt_busy_total 1",
            "netblt_requests_total{request=\"get\",verdict=\"done\"} 1",
            "netblt_requests_total{request=\"receive\",verdict=\"failed\"} 1",
            "netblt_requests_total{request=\"put\",verdict=\"denied\"} 1",
            "netblt_requests_total{request=\"stat\",verdict=\"done\"} 0",
        ] {
            assert!(answer.lines().any(|one| one == line), "no {line} in {answer}");
        }
        assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        // A question without an end is not listened to.
        let mut endless = TcpStream::connect(address).expect("connected");
        let _ = endless.write_all("x".repeat(10_000).as_bytes());
        let mut answer = Vec::new();
        let _ = endless.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
}
