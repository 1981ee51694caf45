//! The page of scenarios, which tables of tests are held to.

use std::path::PathBuf;

const END: &str = "<!-- end -->\n";

/// The page, in three: what stands before the table `name`, the table, and the rest.
fn page(name: &str) -> (PathBuf, [String; 3]) {
    let begin = format!("<!-- {name} -->\n");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/scenarios.md");
    let page = std::fs::read_to_string(&path).expect("the page can be read");
    let (before, rest) = page.split_once(&begin).expect("the page has a place for the table");
    let (kept, after) = rest.split_once(END).expect("the place for the table ends");
    let parts = [format!("{before}{begin}"), kept.to_owned(), format!("{END}{after}")];
    (path, parts)
}

/// Holds the place `name` of the page to `table`, or renews it when asked to.
pub(crate) fn hold(name: &str, table: &str) {
    // Of a few there is no page.
    if std::env::var_os("NETBLT_SCENARIO").is_some() {
        return;
    }
    let (path, [before, kept, after]) = page(name);
    if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
        let renewed = format!("{before}{table}{after}");
        std::fs::write(&path, renewed).expect("the page can be written");
        return;
    }
    assert!(
        kept == table,
        "docs/results/scenarios.md is not what came out; INSTA_UPDATE=always renews it:\n{table}"
    );
}

/// Holds each row of `table` to the one with its name in the place `name` of the page.
pub(crate) fn hold_rows(name: &str, table: &str) {
    let (_, [_, kept, _]) = page(name);
    let kept: Vec<&str> = kept.lines().collect();
    for line in table.lines() {
        assert!(
            kept.contains(&line),
            "not in docs/results/scenarios.md, which its test with --ignored renews:\n{line}"
        );
    }
}
