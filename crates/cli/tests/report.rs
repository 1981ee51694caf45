//! `netblt report rfc1030` as people and programs see it, and the page of it that is kept.

mod testenv;

use std::fs;

use serde_json::Value;
use testenv::{Env, text};

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/rfc1030.html");
/// Makes it anew.
const AGAIN: &str = "netblt report rfc1030 --html docs/results/rfc1030.html";

#[test]
fn the_kept_page_is_the_one_made_today() {
    let env = Env::new();
    let page = env.path("page.html");
    let args = ["report", "rfc1030", "--json", "--html", &text(&page)];
    let report = env.run(&args).exits(0).text();
    let made = fs::read_to_string(&page).expect("a page");
    let kept = fs::read_to_string(KEPT).expect("the page that is kept");
    assert!(made == kept, "docs/results/rfc1030.html is not what is made today: {AGAIN}");
    // One file is all there is to it.
    for word in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!made.contains(word), "{word}");
    }

    let report: Value = serde_json::from_str(&report).expect("JSON");
    let networks = report["networks"].as_array().expect("networks");
    let rows = networks.iter().map(|network| network["rows"].as_array().map_or(0, Vec::len));
    assert_eq!(rows.collect::<Vec<_>>(), [39, 29, 28]);
    let row = &networks[1]["rows"][9];
    assert_eq!(row["rfc1030"]["bits_per_second"], 995_000);
    assert_eq!(row["rfc1030"]["timeouts"], 198);
    for field in ["bits_per_second", "lost", "resent", "timeouts"] {
        assert!(row["ours"][field].as_f64().is_some_and(|n| n > 0.0), "{field} in {row}");
    }
    assert_eq!(networks[2]["rows"][0]["rfc1030"]["timeouts"], Value::Null);

    let experiments = report["section_8"]["experiments"].as_array().expect("experiments");
    let of_best = |name: &str| {
        let found = experiments.iter().find(|experiment| experiment["experiment"] == name);
        found.and_then(|experiment| experiment["percent_of_best"].as_f64()).expect(name)
    };
    assert!(of_best("adaptive, sealed") >= 90.0 && of_best("adaptive, rfc998") >= 80.0);
}

#[test]
fn the_tables_read_well() {
    let text = Env::new().run(&["report", "rfc1030"]).exits(0).text();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    // A title, a head, the rows, a summary and an empty line for each network; then section 8.
    assert_eq!(text.lines().count(), 39 + 29 + 28 + 3 * 4 + 2 + 8 + 2, "{text}");
    for summary in ["Proteon ring: 39 rows", "Ethernet: 29 rows", "Wideband: 28 rows"] {
        assert!(text.contains(summary), "{text}");
    }
}
