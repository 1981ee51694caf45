//! Help, manual pages and completions: one source, three forms, and what shells make of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::testenv::programs::PROGRAMS;
use crate::testenv::{Env, installed, skip, text};

/// What stands before the reference of commands.
const PREFACE: &str = "\
# Command line

`netblt COMMAND --help` prints these texts, and `netblt man DIR` writes them as manual pages. So do
those of `netblt-lab`, which come last. This page is made from them, and a test compares it:
`INSTA_UPDATE=always cargo test -p netblt-cli --test program pages::` renews it.
All commands have the same [exit codes](exit-codes.md).
";

const NETWORKS: [&str; 2] = ["geo-satellite", "lte"];

/// The help of every command of both programs, by program and name.
fn helps(env: &Env) -> Vec<(String, String)> {
    let help = |program: &str, name: &str| {
        let args: Vec<&str> = name.split_whitespace().chain(["--help"]).collect();
        let help = env.run_program(program, &args).exits(0).text();
        (format!("{program} {name}").trim_end().to_owned(), help)
    };
    let all = PROGRAMS.iter().flat_map(|(program, names)| names.iter().map(|n| (*program, *n)));
    all.map(|(program, name)| help(program, name)).collect()
}

/// Writes the pages of both programs.
fn write_pages(env: &Env) {
    for (program, _) in PROGRAMS {
        env.run_program(program, &["man", "pages"]).exits(0);
    }
}

/// The options that have an entry in a help text.
fn entries(help: &str) -> BTreeSet<String> {
    let entry = |line: &str| {
        let line = line.strip_prefix("  ")?.trim_start();
        let line = line.split_once(", --").map_or(line, |(_, long)| long);
        let is_entry = line.starts_with("--") || !line.starts_with(' ');
        let long = line.trim_start_matches("--");
        is_entry.then(|| word(long))
    };
    // Up to 6 columns in, for "-x, " may stand before it; texts are further in.
    let lines = help.lines().filter(|line| {
        let words = line.trim_start();
        let is_short = words.len() > 4 && words.starts_with('-') && words[2..].starts_with(", --");
        line.len() - words.len() <= 6 && (words.starts_with("--") || is_short)
    });
    lines.filter_map(entry).collect()
}

fn word(text: &str) -> String {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    text[..end.unwrap_or(text.len())].to_owned()
}

/// Every long option that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        if before != '-'
            && !before.is_alphanumeric()
            && rest.starts_with("--")
            && rest[2..].starts_with(|c: char| c.is_ascii_lowercase())
        {
            found.insert(word(&rest[2..]));
        }
        before = c;
    }
    found
}

/// A page as its readers see it, without fonts.
fn plain(page: &str) -> String {
    ["\\fB", "\\fI", "\\fR", "\\&"].iter().fold(page.replace("\\-", "-"), |t, f| t.replace(f, ""))
}

fn page_of(env: &Env, name: &str) -> String {
    let file = name.replace(' ', "-") + ".1";
    fs::read_to_string(env.path("pages").join(&file)).expect(&file)
}

#[test]
fn pages_have_the_options_that_help_has() {
    let env = Env::new();
    write_pages(&env);
    let count = PROGRAMS.iter().map(|(_, names)| names.len()).sum::<usize>();
    assert_eq!(env.names("pages").len(), count);
    for (name, help) in helps(&env) {
        let page = plain(&page_of(&env, &name));
        let expected = entries(&help);
        assert!(expected.contains("help"), "{help}");
        // An entry is the line below ".TP".
        let lines: Vec<&str> = page.lines().collect();
        let heads = lines.windows(2).filter(|pair| pair[0].starts_with(".TP")).map(|pair| pair[1]);
        let heads = heads.filter(|line| line.starts_with('-'));
        let below: BTreeSet<String> = heads.flat_map(named).collect();
        assert_eq!(below, expected, "OPTIONS of {name}");
        let (_, synopsis) = page.split_once(".SY").expect("a synopsis");
        let (synopsis, _) = synopsis.split_once(".YS").expect("its end");
        assert_eq!(named(synopsis), expected, "SYNOPSIS of {name}");
    }
}

/// The reference of commands: what `--help` says of each, without the exit codes, which all have.
fn reference(env: &Env) -> String {
    let mut page = String::from(PREFACE);
    for (name, help) in helps(env) {
        let help = help.split("\nExit codes:\n").next().unwrap_or_default();
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        let help = help.join("\n");
        page += &format!("\n## {name}\n\n```text\n{}\n```\n", help.trim());
    }
    page
}

#[test]
fn the_reference_is_what_help_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/command-line.md");
    let made = reference(&Env::new());
    if env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(&path, &made).expect("written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let line = made.lines().zip(kept.lines()).position(|(made, kept)| made != kept);
    assert!(
        made == kept,
        "docs/reference/command-line.md is not what help says, from line {line:?}; \
         INSTA_UPDATE=always renews it"
    );
}

#[test]
fn no_text_names_an_option_that_does_not_exist() {
    let env = Env::new();
    write_pages(&env);
    let helps = helps(&env);
    let of = |name: &str| {
        let found = helps.iter().find(|(own, _)| own == name);
        found.map(|(_, help)| entries(help)).unwrap_or_default()
    };
    let mut wrong = Vec::new();
    for (name, help) in &helps {
        let mut known = of(name);
        // Another command's, if the text speaks of it.
        for (other, _) in helps.iter().filter(|(other, _)| other.contains(' ')) {
            // A page speaks of all that is below it.
            if other.starts_with(&format!("{name} ")) {
                known.extend(of(other));
            }
            let words: Vec<&str> = help.split(['`', ' ', '\n']).collect();
            let parts: Vec<&str> = other.split(' ').collect();
            if words.windows(parts.len()).any(|window| window == parts) {
                known.extend(of(other));
            }
        }
        for text in [help.clone(), plain(&page_of(&env, name))] {
            let exists = |option: &String| {
                // "--up-" stands for all that begin with it.
                let begins = option.ends_with('-') && known.iter().any(|k| k.starts_with(option));
                begins || known.contains(option)
            };
            let unknown: Vec<String> = named(&text).into_iter().filter(|o| !exists(o)).collect();
            wrong.extend(unknown.iter().map(|option| format!("{name}: --{option}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_synopsis_names_values_and_what_repeats() {
    let env = Env::new();
    write_pages(&env);
    let page = plain(&page_of(&env, "netblt send"));
    for part in [
        "[--progress[=TIME]]",
        "[--to\\ TICKET]",
        "[--advertise\\ HOST[:PORT]]...",
        "[-4|--ipv4]",
        "\nPATH...\n",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    let page = plain(&page_of(&env, "netblt-lab emulate relay"));
    assert!(page.contains("\n--to\\ HOST:PORT\n"), "{page}");
    let page = plain(&page_of(&env, "netblt-lab emulate tun"));
    assert!(page.contains("[-- COMMAND...]"), "{page}");
}

#[test]
fn pages_read_well_at_80_columns() {
    if !installed("groff") {
        return skip("no `groff`");
    }
    let env = Env::new();
    write_pages(&env);
    for name in env.names("pages") {
        let output = Command::new("groff")
            .args(["-ww", "-Tutf8", "-man", "-rLL=80n", "-P-c"])
            .arg(env.path("pages").join(&name))
            .output()
            .expect("groff ran");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
        // Bold is a letter printed twice, with a backspace between.
        let rendered = String::from_utf8_lossy(&output.stdout);
        let letters: Vec<char> = rendered.chars().collect();
        let shown = |i: usize| letters[i] != '\u{8}' && letters.get(i + 1) != Some(&'\u{8}');
        let page: String = (0..letters.len()).filter(|i| shown(*i)).map(|i| letters[i]).collect();
        let long: Vec<&str> = page.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{name}: {long:#?}");
        assert!(!page.contains("EXTRA"), "{name}");
        if name == "netblt-send.1" {
            // Lines are filled to the margin, so only one in which no words are is compared whole.
            for part in [
                "\nEXIT STATUS\n       0  ",
                "\nENVIRONMENT\n       NETBLT_TICKET\n",
                "\nEXAMPLES\n       netblt send photos/ notes.txt          listen, and print",
            ] {
                assert!(page.contains(part), "{part} is not in {page}");
            }
        }
    }
}

#[test]
fn bash_completes_networks_by_name() {
    let env = Env::new();
    let complete = |program: &str, words: &[&str]| {
        let script = env.path("completions");
        let completions = env.run_program(program, &["completions", "bash"]).exits(0);
        fs::write(&script, completions.stdout).expect("a file");
        let line = format!(
            ". {}; COMP_WORDS=({program} {} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); \
             _{} {program} '' \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            text(&script),
            words.join(" "),
            program.replace('-', "_")
        );
        let output = Command::new("bash").args(["-c", &line]).stderr(Stdio::null()).output();
        String::from_utf8_lossy(&output.expect("bash ran").stdout).into_owned()
    };
    for words in [vec!["emulate", "relay", "--scenario"], vec!["simulate", "--scenario"]] {
        let found = complete("netblt-lab", &words);
        assert!(NETWORKS.iter().all(|name| found.contains(name)), "{words:?}: {found}");
    }
    assert_eq!(complete("netblt", &["plan", "--rate"]).trim(), "", "no file is a rate");
    assert!(complete("netblt-lab", &[]).contains("emulate"));
    for (program, _) in PROGRAMS {
        let script = env.run_program(program, &["completions", "bash"]).exits(0).text();
        assert_eq!(script.matches(&format!(" -o default {program}\n")).count(), 2, "{program}");
    }
}

#[test]
fn fish_and_zsh_complete_networks_and_files() {
    let env = Env::new();
    env.make_file("mine.toml", 1);
    if installed("fish") {
        let complete = |line: &str| {
            let (program, _) = line.split_once(' ').expect("a command");
            let script = env.run_program(program, &["completions", "fish"]).exits(0).stdout;
            fs::write(env.path("completions.fish"), script).expect("a file");
            let line = format!("source completions.fish; complete -C '{line}'");
            let mut command = Command::new("fish");
            command.env("HOME", env.path("")).current_dir(env.path(""));
            let output = command.args(["--no-config", "-c", &line]).output().expect("fish ran");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let found = complete("netblt-lab emulate relay --scenario ");
        for name in NETWORKS.iter().chain(&["mine.toml"]) {
            assert!(found.contains(name), "{name} is not in {found}");
        }
        assert_eq!(complete("netblt plan --rate "), "", "no file is a rate");
    } else {
        skip("no `fish`");
    }
    let script = env.run_program("netblt-lab", &["completions", "zsh"]).exits(0);
    let offers = "{_alternative \"networks:network:(bufferbloat ";
    assert_eq!(script.text().matches(offers).count(), 4, "relay, tun, compare and simulate");
    if installed("zsh") {
        fs::write(env.path("_netblt-lab"), script.stdout).expect("a file");
        let mut command = Command::new("zsh");
        let output = command.args(["-n", "_netblt-lab"]).current_dir(env.path("")).output();
        let output = output.expect("zsh ran");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    } else {
        skip("no `zsh`");
    }
}

#[test]
fn manual_pages_come_from_the_same_source() {
    let env = Env::new();
    write_pages(&env);
    let names = env.names("pages");
    for name in ["netblt.1", "netblt-send.1", "netblt-receive.1", "netblt-bench.1", "netblt-demo.1"]
    {
        assert!(names.iter().any(|n| n == name), "{names:?}");
        let page = fs::read_to_string(env.path("pages").join(name)).expect("a page");
        if name != "netblt-demo.1" {
            assert!(page.contains("could not connect: no answer"), "{name} lacks the exit codes");
        }
    }
    env.make_file("file", 1);
    env.run(&["man", "file/pages"]).exits(11).says("file/pages");
}

#[test]
fn completions_exist_and_survive_a_closed_pipe() {
    let env = Env::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = env.run(&["completions", shell]).exits(0).text();
        assert!(text.contains("receive"), "{shell}");
        // That is for `netblt cp` to start, and no help shows it.
        assert!(!text.contains("far-end") && !text.contains("far__end"), "{shell}");
        let text = env.run_program("netblt-lab", &["completions", shell]).exits(0).text();
        assert!(text.contains("emulate") && !text.contains("receive"), "{shell}");
    }
    let mut command = env.command(&["completions", "bash"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command.stdout(writer).stderr(Stdio::piped());
    let output = command.output().expect("the program ran");
    let errors = String::from_utf8_lossy(&output.stderr);
    // By a signal, as others.
    assert_eq!((output.status.code(), &*errors), (None, ""));
}
