//! The page of scenarios, which tables of tests are held to.

use std::path::PathBuf;

const END: &str = "<!-- end -->\n";

/// Holds the place `name` of the page to `table`, or renews it when asked to.
pub(crate) fn hold(name: &str, table: &str) {
    let begin = format!("<!-- {name} -->\n");
    // Of a few there is no page.
    if std::env::var_os("NETBLT_SCENARIO").is_some() {
        return;
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/scenarios.md");
    let page = std::fs::read_to_string(&path).expect("the page can be read");
    let (before, rest) = page.split_once(&begin).expect("the page has a place for the table");
    let (kept, after) = rest.split_once(END).expect("the place for the table ends");
    if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
        let renewed = format!("{before}{begin}{table}{END}{after}");
        std::fs::write(&path, renewed).expect("the page can be written");
        return;
    }
    assert!(
        kept == table,
        "docs/results/scenarios.md is not what came out; INSTA_UPDATE=always renews it:\n{table}"
    );
}
