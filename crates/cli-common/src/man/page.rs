//! One manual page for each command, in the usual sections.
//!
//! `clap_mangen` renders options and descriptions. The synopsis is written here, because it is to
//! show values, and so is the text after the options: `--help` ends in paragraphs with headings,
//! which are sections in a manual page.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;

use crate::program::{Program, Variable};

/// The section of a paragraph without a heading.
const NOTES: &str = "NOTES";
/// Headings of `--help` that manual pages call something else.
const RENAMED: [(&str, &str); 1] = [("Exit codes", "EXIT STATUS")];

/// Writes the page of a command, which must be built, and those of its subcommands.
pub(super) fn write_all(command: &Command, program: &Program, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_all(subcommand, program, directory)?;
    }
    let man = Man::new(command.clone())
        .source(concat!("netblt ", env!("CARGO_PKG_VERSION")))
        .manual("netblt manual");
    fs::write(directory.join(man.get_filename()), page(&man, command, program)?)
}

fn page(man: &Man, command: &Command, program: &Program) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    out.extend(synopsis(command).bytes());
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    let help = command.get_after_long_help().or_else(|| command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let mut sections = sections(&help);
    // Manual pages have it after the exit status.
    let last = |section: &Section<'_>| section.title == NOTES || section.title == "Examples";
    sections.sort_by_key(last);
    let (first, rest) = sections.split_at(sections.partition_point(|section| !last(section)));
    let mut text = String::new();
    first.iter().for_each(|section| section.render(&mut text));
    environment(name, program.environment, &mut text);
    rest.iter().for_each(|section| section.render(&mut text));
    if name != program.name {
        let _ = writeln!(text, ".SH \"SEE ALSO\"\n{}(1)", escape(program.name));
    }
    out.extend(text.bytes());
    Ok(out)
}

/// Every option with its value, those that must be given without brackets, and "..." behind what
/// may be repeated.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut text = format!(".SH SYNOPSIS\n.SY \"{}\"\n", escape(name));
    let visible = |arg: &&Arg| !arg.is_hide_set();
    let options = command.get_arguments().filter(|arg| !arg.is_positional()).filter(visible);
    let (required, optional): (Vec<&Arg>, Vec<&Arg>) =
        options.partition(|arg| arg.is_required_set());
    for arg in optional {
        let _ = writeln!(text, "[{}]{}", option(arg), dots(arg));
    }
    for arg in required {
        let _ = writeln!(text, "{}{}", option(arg), dots(arg));
    }
    for arg in command.get_positionals().filter(visible) {
        let (name, dots) = (value(arg), dots(arg));
        let _ = match (arg.is_last_set(), arg.is_required_set()) {
            (true, _) => writeln!(text, "[\\-\\- {name}{dots}]"),
            (false, true) => writeln!(text, "{name}{dots}"),
            (false, false) => writeln!(text, "[{name}]{dots}"),
        };
    }
    if command.has_subcommands() {
        text.push_str("\\fICOMMAND\\fR ...\n");
    }
    text.push_str(".YS\n");
    text
}

fn option(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("\\fB\\-{short}\\fR"));
    let long = arg.get_long().map(|long| format!("\\fB\\-\\-{}\\fR", escape(long)));
    let name = short.into_iter().chain(long).collect::<Vec<_>>().join("|");
    if !arg.get_action().takes_values() {
        return name;
    }
    let optional = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
    match (optional, arg.is_require_equals_set()) {
        (true, true) => format!("{name}[={}]", value(arg)),
        (false, true) => format!("{name}={}", value(arg)),
        // A space that no line ends at.
        (true, false) => format!("{name}\\ [{}]", value(arg)),
        (false, false) => format!("{name}\\ {}", value(arg)),
    }
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<String> = names.iter().map(|name| escape(name)).collect();
    format!("\\fI{}\\fR", names.join("\\ "))
}

fn dots(arg: &Arg) -> &'static str {
    let several = arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    if several || matches!(arg.get_action(), ArgAction::Append | ArgAction::Count) {
        // The last keeps it from being the end of a sentence.
        "...\\&"
    } else {
        ""
    }
}

/// A heading and its text.
struct Section<'a> {
    title: &'a str,
    lines: Vec<&'a str>,
}

/// A line that ends in a colon, with indented lines below it, is a heading; other paragraphs are
/// notes.
fn sections(help: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut lines = help.lines().peekable();
    while let Some(line) = lines.next() {
        let below = lines.peek().is_some_and(|next| next.starts_with("  "));
        let is_text = !line.starts_with("  ");
        match (line.strip_suffix(':'), sections.last_mut()) {
            (Some(title), _) if below && is_text => {
                sections.push(Section { title, lines: Vec::new() });
            }
            (_, Some(section)) if !is_text || line.is_empty() || section.title == NOTES => {
                section.lines.push(line);
            }
            _ => sections.push(Section { title: NOTES, lines: vec![line] }),
        }
    }
    sections.retain(|section| section.lines.iter().any(|line| !line.is_empty()));
    sections
}

impl Section<'_> {
    fn render(&self, text: &mut String) {
        let renamed = RENAMED.iter().find(|(from, _)| *from == self.title);
        let title = renamed.map_or_else(|| self.title.to_uppercase(), |(_, to)| (*to).to_owned());
        let _ = writeln!(text, ".SH \"{title}\"");
        let end = self.lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        let lines = &self.lines[..end];
        let verbatim = self.title == "Examples";
        if verbatim {
            text.push_str(".nf\n");
        }
        for line in lines {
            let words = line.trim_start();
            if verbatim {
                let _ = writeln!(text, "{}", escape(line.strip_prefix("  ").unwrap_or(line)));
            } else if words.is_empty() {
                text.push_str(".PP\n");
            } else if let Some((term, meaning)) = entry(line) {
                let _ = writeln!(text, ".TP 9\n{}\n{}", escape(term), escape(meaning));
            } else {
                let _ = writeln!(text, "{}", escape(words));
            }
        }
        if verbatim {
            text.push_str(".fi\n");
        }
    }
}

/// A word and, two spaces after it, its meaning.
fn entry(line: &str) -> Option<(&str, &str)> {
    let (term, meaning) = line.strip_prefix("  ")?.trim_start().split_once("  ")?;
    (!term.contains(' ')).then(|| (term, meaning.trim_start()))
}

fn environment(page: &str, variables: &[Variable], text: &mut String) {
    let mut heading = ".SH ENVIRONMENT\n";
    for (name, pages, meaning) in variables {
        if pages.contains(&page) {
            let _ = writeln!(text, "{heading}.TP\n.B \"{}\"\n{}", escape(name), escape(meaning));
            heading = "";
        }
    }
}

/// Escapes text that `troff` would interpret.
fn escape(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq");
    match escaped.starts_with(['.', '\'']) {
        true => format!("\\&{escaped}"),
        false => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_become_sections() {
        let help = "Examples:\n  a \\\n    b\n\nSome words.\n\nMore.\n\nExit codes:\n   0  good\n";
        let found = sections(help);
        let titles: Vec<&str> = found.iter().map(|section| section.title).collect();
        assert_eq!(titles, ["Examples", NOTES, "Exit codes"]);
        let mut text = String::new();
        found.iter().for_each(|section| section.render(&mut text));
        let expected = ".SH \"EXAMPLES\"\n.nf\na \\e\n  b\n.fi\n.SH \"NOTES\"\nSome words.\n.PP\n\
            More.\n.SH \"EXIT STATUS\"\n.TP 9\n0\ngood\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn no_text_becomes_a_troff_request() {
        assert_eq!(escape(".so x"), "\\&.so x");
        assert_eq!(escape("--a \"b\" \\"), "\\-\\-a \\(dqb\\(dq \\e");
    }
}
