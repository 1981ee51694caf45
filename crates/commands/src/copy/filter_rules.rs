//! The rules of `--include` and `--exclude` in the order in which they were given.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use clap::ArgMatches;
use netblt::mirror::{Filter, FilterRule};

/// The rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterRules(pub(crate) Vec<FilterRule>);

impl FilterRules {
    /// The rules of a command line.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or a pattern is invalid.
    pub(crate) fn of(matches: &ArgMatches) -> Result<Self, String> {
        let mut found: Vec<(usize, Vec<FilterRule>)> = Vec::new();
        for (id, include) in [("include", true), ("exclude", false)] {
            let patterns = matches.get_many::<OsString>(id).into_iter().flatten();
            let places = matches.indices_of(id).into_iter().flatten();
            let rule = |pattern: &OsString| {
                vec![FilterRule { include, pattern: pattern.clone().into_vec() }]
            };
            found.extend(places.zip(patterns.map(rule)));
        }
        for (id, include) in [("include_from", true), ("exclude_from", false)] {
            let files = matches.get_many::<PathBuf>(id).into_iter().flatten();
            let places = matches.indices_of(id).into_iter().flatten();
            for (place, file) in places.zip(files) {
                let option = id.replace('_', "-");
                let text = fs::read(file)
                    .map_err(|error| format!("--{option} {}: {error}", file.display()))?;
                if text.split(|byte| *byte == b'\n').any(|line| line == b"!") {
                    let why = "a line of ! alone, which clears rsync's list, is not supported";
                    return Err(format!("--{option} {}: {why}", file.display()));
                }
                found.push((place, Self::lines(&text, include)));
            }
        }
        found.sort_by_key(|(place, _)| *place);
        let rules = Self(found.into_iter().flat_map(|(_, rules)| rules).collect());
        Filter::new(&rules.0).map_err(|error| error.to_string())?;
        Ok(rules)
    }

    /// The patterns of a file, one a line, as rsync reads it: empty lines and those that begin with
    /// `#` or `;` say nothing, and a line may say `+ ` or `- ` itself.
    fn lines(text: &[u8], include: bool) -> Vec<FilterRule> {
        let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
        let lines = lines.filter(|line| !line.is_empty() && !b"#;".contains(&line[0]));
        lines
            .map(|line| {
                let signed = [(&b"+ "[..], true), (b"- ", false)];
                let sign = signed
                    .iter()
                    .find_map(|(sign, include)| Some((line.strip_prefix(*sign)?, *include)));
                let (pattern, include) = sign.unwrap_or((line, include));
                FilterRule { include, pattern: pattern.to_vec() }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn rules_stand_in_the_order_of_the_command_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "# a comment\n\n*.log\n+ keep\n; another\n").expect("written");
        let from = format!("--exclude-from={}", file.path().display());
        let words = [
            "netblt",
            "sync",
            "--exclude=*.o",
            "--include",
            "a.o",
            &from,
            "--exclude",
            "b",
            "c",
            "h:d",
        ];
        let matches = crate::Cli::command().try_get_matches_from(words).expect("a command line");
        let (_, matches) = matches.subcommand().expect("sync");
        let rules = FilterRules::of(matches).expect("rules").0;
        let shown: Vec<_> = rules
            .iter()
            .map(|rule| {
                let sign = if rule.include { '+' } else { '-' };
                format!("{sign}{}", String::from_utf8_lossy(&rule.pattern))
            })
            .collect();
        assert_eq!(shown, ["-*.o", "+a.o", "-*.log", "+keep", "-b"]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let words = ["netblt", "sync", "--exclude-from", "/nowhere/x", "c", "h:d"];
        let matches = crate::Cli::command().try_get_matches_from(words).expect("a command line");
        let (_, matches) = matches.subcommand().expect("sync");
        let error = FilterRules::of(matches).expect_err("refused");
        assert!(error.starts_with("--exclude-from /nowhere/x: No such file"), "{error}");
    }
}
