//! Hints at options of the program that would help. Messages of the library name no options.

use std::io::ErrorKind;

use netblt::{Error, LimitedBy, Warning};
use netblt_proto::api::CloseReason;
use netblt_proto::config::Wire;

/// A hint after an error, to be appended to it.
pub fn on_error(error: &Error) -> &'static str {
    match error {
        Error::Exists(_) => " (use --overwrite always to replace it)",
        Error::DatagramSize { .. } => "; use a smaller --mtu or --packet-size",
        Error::Socket { source, .. } if source.kind() == ErrorKind::AddrInUse => {
            "; choose another one (--port, of cp --udp-port)"
        }
        Error::OutOfReach { .. } => "; check --bind, -4 and -6",
        Error::Memory { .. } => "; use fewer or smaller ones (--memory, --buffers, --buffer-size)",
        Error::TooManyRemovals { .. } => {
            "; --max-delete allows more, and -n --max-delete 100% lists them"
        }
        Error::TooMuch { what: "bytes", .. } => "; --max-size takes more, if the sender says so",
        Error::TooMuch { .. } => "; --max-files takes more",
        Error::Ended(CloseReason::Stalled(_)) => "; a smaller --mtu on both sides would show it",
        Error::Connect { wire, reason, .. } => on_silence(*wire, reason),
        _ => "",
    }
}

/// A likely reason for the missing answer.
fn on_silence(wire: Wire, reason: &CloseReason) -> &'static str {
    match reason {
        CloseReason::NoAnswer { .. } | CloseReason::Unreachable if wire == Wire::Rfc998 => {
            "; does the other side wait there for RFC 998, with --raw-ip on both sides or on none \
             and at these ports, and do firewalls let it through?"
        }
        CloseReason::NoAnswer { hint: Some(hint), .. } => on_hint(hint),
        CloseReason::NoAnswer { unreachable: true, .. } | CloseReason::Unreachable => {
            "; is the other side still waiting, and is this its present ticket?"
        }
        CloseReason::NoAnswer { .. } => {
            "; is the other side still waiting, and do firewalls let UDP through to that port? A \
             router in front of it must forward the port, and --advertise name its address"
        }
        _ => "",
    }
}

/// A hint from the text of the other side's refusal, which is not authenticated. These texts are
/// those of netblt. The hint tells a wrong ticket from a wrong key.
fn on_hint(hint: &str) -> &'static str {
    if hint.contains("does not know your key") {
        "; most likely your key (-i) was rejected: your public line is not in the list of its \
         keys, or that was not read again"
    } else if hint.contains("by their keys, not by a ticket") {
        "; ask without a ticket, with a key of your own (netblt keygen, -i)"
    } else if hint.contains("by a ticket, not by keys") {
        "; name its ticket with --ticket-file or in NETBLT_TICKET"
    } else {
        "; is this the ticket that the other side shows now? Each run makes a new one"
    }
}

/// A hint after a warning, to be appended to it.
pub fn on_warning(warning: &Warning) -> String {
    match warning {
        Warning::DatagramSize { .. } => "; use a smaller --mtu or --packet-size".to_owned(),
        Warning::PacketSize { limit, .. } => format!(": if nothing moves, use --mtu {limit}"),
        Warning::LeftOut(what) if what.ends_with("exists there already") => {
            "; --overwrite always replaces it".to_owned()
        }
        _ => String::new(),
    }
}

/// One sentence, the same at both ends: what limited a transfer, and what would have to change for
/// it to go faster.
pub fn on_limit(limited_by: LimitedBy) -> &'static str {
    match limited_by {
        LimitedBy::Path => {
            "The path: it carried no more than this. The page of `--report FILE.html` names the \
             cause, such as other traffic, a policer or random loss."
        }
        LimitedBy::SenderDisk => {
            "The sender's disk or pipe: it gave data no faster; a faster disk would help."
        }
        LimitedBy::ReceiverDisk => {
            "The receiver's disk or pipe: it took data no faster; a faster disk would help."
        }
        LimitedBy::ReceiverBuffers => {
            "The receiver's buffers: the path holds more than they do; --memory or --buffers gives \
             it more, on both sides."
        }
        LimitedBy::ReceiverSocket => {
            "The receiver's socket buffer: its system gives little; `sysctl -w \
             net.core.rmem_max=4194304` there, by root, gives it enough."
        }
        LimitedBy::SenderCpu => {
            "The sender's processor: it was busy, or held back (a container's quota), all the \
             time; larger packets (--mtu), or less else to do, would help."
        }
        LimitedBy::ReceiverCpu => {
            "The receiver's processor: it was busy, or held back (a container's quota), all the \
             time; larger packets (--mtu), or less else to do, would help."
        }
        LimitedBy::RateCap => {
            "The rate, the burst values or a pause that was asked for: a higher --rate may go \
             faster."
        }
        LimitedBy::RoundTrips => {
            "Nothing: it was over before it got up to speed; more in one transfer goes faster."
        }
        _ => "Something that has no sentence of its own here.",
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn advice_names_options_where_they_help() {
        let connect = |wire, reason| Error::Connect { peer: String::new(), wire, reason };
        let silence = CloseReason::NoAnswer { hint: None, unreachable: false };
        assert!(on_error(&connect(Wire::Sealed, silence.clone())).contains("--advertise"));
        assert!(on_error(&connect(Wire::Rfc998, silence)).contains("--raw-ip"));
        let hinted =
            |hint: &str| CloseReason::NoAnswer { hint: Some(hint.into()), unreachable: false };
        for (hint, advice) in [
            ("the server does not know your key, or has another one", "your key (-i) was rejected"),
            ("this end knows its peers by their keys, not by a ticket", "netblt keygen"),
            ("this end knows its peer by a ticket, not by keys", "--ticket-file"),
            ("the ticket's secret is not the one expected here", "each run makes a new one"),
        ] {
            let advice_given = on_error(&connect(Wire::Sealed, hinted(hint))).to_lowercase();
            assert!(advice_given.contains(advice), "{hint}: {advice_given}");
        }
        assert!(on_error(&Error::Exists("x".into())).contains("--overwrite always"));
        let source = || io::Error::from(ErrorKind::AddrInUse);
        let taken = Error::Socket { what: String::new(), source: source() };
        assert!(on_error(&taken).contains("choose another one (--port"));
        assert!(on_error(&Error::DatagramSize { bytes: 9000, limit: None }).contains("--mtu"));
        let warning = Warning::PacketSize { bytes: 1500, limit: 1400 };
        assert_eq!(on_warning(&warning), ": if nothing moves, use --mtu 1400");
        assert_eq!(on_error(&Error::Interrupted), "");
        let left_out = |why: &str| on_warning(&Warning::LeftOut(format!("a: {why}")));
        assert_eq!(left_out("exists there already"), "; --overwrite always replaces it");
        assert_eq!(left_out("Permission denied"), "");
    }
}
