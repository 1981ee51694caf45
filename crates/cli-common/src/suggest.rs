//! Suggestions for a mistyped option or command: the one that takes the fewest keystrokes to get
//! to.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// No option's name is longer. Longer words are not compared.
const LONGEST: usize = 40;

/// Names the nearest option or command in an error about one that does not exist. `args` are the
/// command line's.
pub(crate) fn nearest(error: &mut Error, command: &mut Command, args: &[OsString]) {
    let is_option = match error.kind() {
        ErrorKind::UnknownArgument => true,
        ErrorKind::InvalidSubcommand => false,
        _ => return,
    };
    let wrong = if is_option { ContextKind::InvalidArg } else { ContextKind::InvalidSubcommand };
    let Some(ContextValue::String(word)) = error.get(wrong) else { return };
    command.build();
    let command = innermost(command, args);
    if is_option {
        let Some(word) = word.strip_prefix("--") else { return };
        let options = command.get_arguments().filter(|arg| !arg.is_hide_set());
        let names = options.filter_map(|arg| arg.get_long());
        if let Some(name) = among(word, names) {
            let name = ContextValue::String(format!("--{name}"));
            error.insert(ContextKind::SuggestedArg, name);
            // Hardly anybody means to pass it as a value.
            error.remove(ContextKind::Suggested);
        }
    } else {
        let names = command.get_subcommands().filter(|command| !command.is_hide_set());
        if let Some(name) = among(word, names.map(Command::get_name)) {
            let name = ContextValue::Strings(vec![name.to_owned()]);
            error.insert(ContextKind::SuggestedSubcommand, name);
        }
    }
}

/// The subcommand that the words lead to.
fn innermost<'a>(mut command: &'a Command, args: &[OsString]) -> &'a Command {
    for word in args.iter().skip(1) {
        match command.find_subcommand(word) {
            Some(subcommand) => command = subcommand,
            // Commands come before their options and arguments.
            None => break,
        }
    }
    command
}

/// The first of the nearest names, unless a third of the word would have to be another.
fn among<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let far = (word.chars().count() / 3).max(1);
    let near = names.map(|name| (distance(word, name), name));
    near.min_by_key(|(distance, _)| *distance).filter(|found| found.0 <= far).map(|found| found.1)
}

/// Letters to add, drop, change or swap with their neighbour to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![(0..=to.len()).collect::<Vec<_>>()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let differ = usize::from(from[i - 1] != to[j - 1]);
            let mut least =
                (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + differ);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    /// Options as `netblt send` and `netblt-lab emulate relay` have them.
    const SEND: [&str; 30] = [
        "to",
        "exclude",
        "ticket-stdin",
        "rate",
        "policy",
        "protocol",
        "port",
        "bind",
        "advertise",
        "netblt-port",
        "netblt-peer-port",
        "mtu",
        "death-timer",
        "wait",
        "buffer-size",
        "buffers",
        "memory",
        "streams",
        "burst-size",
        "burst-interval",
        "client",
        "wire",
        "trace",
        "packet-size",
        "checksum",
        "raw-ip",
        "json",
        "quiet",
        "progress",
        "report",
    ];
    const RELAY: [&str; 12] = [
        "rate",
        "up-rate",
        "loss",
        "loss-burst",
        "up-loss-burst",
        "reorder",
        "reorder-by",
        "up-reorder",
        "up-reorder-by",
        "mtu",
        "up-mtu",
        "down-mtu",
    ];

    fn program() -> Command {
        let option = |name: &'static str| Arg::new(name).long(name);
        let send = Command::new("send").arg(Arg::new("FILE")).args(SEND.map(option));
        let relay = Command::new("relay").args(RELAY.map(option));
        let emulate = Command::new("emulate").subcommand(relay);
        Command::new("netblt").subcommands([send, emulate, Command::new("simulate")])
    }

    fn suggestion(args: &[&str]) -> String {
        let mut command = program();
        let mut error = command.clone().try_get_matches_from(args).expect_err("a mistake");
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        nearest(&mut error, &mut command, &args);
        error.to_string()
    }

    #[test]
    fn the_nearest_option_is_named() {
        for (args, meant) in [
            (["netblt", "send", "x", "--buffer"], "--buffers"),
            (["netblt", "send", "x", "--burst-sise"], "--burst-size"),
            (["netblt", "send", "x", "--netblt-prot"], "--netblt-port"),
            (["netblt", "send", "x", "--netblt-peerport"], "--netblt-peer-port"),
            (["netblt", "emulate", "relay", "--loss_burst"], "--loss-burst"),
            (["netblt", "emulate", "relay", "--up-reorderby"], "--up-reorder-by"),
            (["netblt", "emulate", "relay", "--upmtu"], "--up-mtu"),
        ] {
            let text = suggestion(&args);
            assert!(text.contains(&format!("a similar argument exists: '{meant}'\n")), "{text}");
        }
        let far = suggestion(&["netblt", "send", "x", "--compression-level"]);
        assert!(!far.contains("similar"), "{far}");
    }

    #[test]
    fn the_nearest_command_is_named() {
        let text = suggestion(&["netblt", "simulat"]);
        assert!(text.contains("a similar subcommand exists: 'simulate'\n"), "{text}");
        let text = suggestion(&["netblt", "emulate", "rely"]);
        assert!(text.contains("a similar subcommand exists: 'relay'\n"), "{text}");
    }

    #[test]
    fn one_wrong_letter_leads_back_to_every_option() {
        for name in SEND.iter().filter(|name| name.len() > 4) {
            for at in 0..name.len() - 1 {
                let mut letters: Vec<char> = name.chars().collect();
                letters.swap(at, at + 1);
                let swapped: String = letters.iter().collect();
                letters.remove(at);
                let dropped: String = letters.iter().collect();
                for wrong in [swapped, dropped] {
                    let found = among(&wrong, SEND.iter().copied()).expect(&wrong);
                    assert!(distance(&wrong, found) <= 2, "{wrong} is not {found}");
                    let is_nearest = distance(&wrong, found) <= distance(&wrong, name);
                    assert!(is_nearest, "{wrong}: {found}, not {name}");
                }
            }
        }
    }
}
