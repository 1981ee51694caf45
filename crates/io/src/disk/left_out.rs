//! The list of files that a receiver has left out, in its verdict (`docs/protocol §8.6`): all of
//! their numbers, or none where there are too many. It comes from a peer: an invalid list is none.

use netblt_proto::wire::packet::{LEFT_OUT, Verdict};

/// How the list begins, and how it ends.
const BEGIN: &str = "(files ";
const END: &str = ") ";
/// Longest list: the names of the first are to find room behind it.
const MAX_TEXT: usize = 200;
/// Most numbers that are gathered for one.
pub(crate) const MAX_NUMBERS: usize = 4096;

/// The numbers of files that are not at the receiver, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Absent(Vec<(u64, u64)>);

impl Absent {
    /// These.
    pub(crate) fn new(mut numbers: Vec<u64>) -> Self {
        numbers.sort_unstable();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for number in numbers {
            match runs.last_mut() {
                Some((_, last)) if number <= last.saturating_add(1) => *last = number,
                _ => runs.push((number, number)),
            }
        }
        Self(runs)
    }

    /// The list, or nothing if it is too long.
    pub(crate) fn text(&self) -> String {
        let run = |(first, last): &(u64, u64)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let runs: Vec<String> = self.0.iter().map(run).collect();
        let text = format!("{BEGIN}{}{END}", runs.join(","));
        if text.len() <= MAX_TEXT { text } else { String::new() }
    }

    /// The numbers in a verdict; `None` if some files were left out without their numbers.
    pub(crate) fn of(verdict: &Verdict) -> Option<Self> {
        let Some((_, text)) = verdict.left_out() else { return Some(Self::default()) };
        let (list, _) = parts(text)?;
        let run = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some((first.parse().ok()?, last.parse().ok()?)).filter(|(first, last)| first <= last)
        };
        // If only directories and links were left out, the list is empty.
        let runs = list.split(',').filter(|run| !run.is_empty()).map(run);
        runs.collect::<Option<Vec<_>>>().map(Self)
    }

    /// The part of such a text for people.
    pub(crate) fn names(text: &str) -> &str {
        let whole = text.split_once(LEFT_OUT).map_or(text, |(_, names)| names);
        parts(text).map_or(whole, |(_, names)| names)
    }

    /// Whether a file of this number is one of them.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&number))
    }
}

fn parts(text: &str) -> Option<(&str, &str)> {
    let (_, names) = text.split_once(LEFT_OUT)?;
    names.strip_prefix(BEGIN)?.split_once(END)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(reason: &str) -> Option<Absent> {
        let reason = reason.to_owned();
        Absent::of(&Verdict { verified: true, bytes: 0, digest: [0; 32], reason })
    }

    #[test]
    fn an_incomplete_list_is_an_error() {
        let absent = Absent::new(vec![7, 3, 4, 5, 5, 9]);
        assert_eq!(absent.text(), "(files 3-5,7,9) ");
        let said = format!("5{LEFT_OUT}{}a: exists; b (files 1) ", absent.text());
        assert_eq!(parse(&said), Some(absent));
        assert_eq!(Absent::names(&said), "a: exists; b (files 1) ");
        assert_eq!(parse("").map(|absent| absent.has(0)), Some(false));
        let none = format!("1{LEFT_OUT}{}d: is in the way", Absent::default().text());
        assert_eq!(parse(&none), Some(Absent::default()));
        for odd in ["a: (files 1) ", "(files 1", "(files x) ", "(files 5-3) ", "(files 1-) ", ""] {
            assert_eq!(parse(&format!("1{LEFT_OUT}{odd}")), None, "{odd}");
        }
        let long = Absent::new((0..1000).map(|number| number * 2).collect());
        assert_eq!(long.text(), "");
        assert_eq!(Absent::new((0..1000).collect()).text(), "(files 0-999) ");
    }
}
