//! `netblt-lab report`: RFC 1030 as people and programs see it, the page of it that is kept, and
//! the traces of real transfers.

use std::fs;
use std::time::Duration;

use crate::testenv::{Env, text};
use serde_json::Value;

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/rfc1030.html");
/// What calculates for half a minute on a processor of its own takes ten times as long on a busy
/// one.
const CALCULATES: Duration = Duration::from_secs(900);
/// Makes the page again.
const AGAIN: &str = "netblt-lab report rfc1030 --html docs/results/rfc1030.html";

#[test]
fn the_kept_page_is_the_one_made_today() {
    let env = Env::new();
    let page = env.path("page.html");
    let args = ["report", "rfc1030", "--json", "--html", &text(&page)];
    let report = env.start(&args).finish_within(CALCULATES).exits(0).text();
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
fn a_page_that_cannot_be_written_is_named_before_anything_is_computed() {
    for report in ["rfc1030", "ornl"] {
        let run = Env::new().run(&["report", report, "--json", "--html", "none/page.html"]);
        assert_eq!(run.exits(11).says("none/page.html: cannot write: ").text(), "");
    }
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn the_kept_page_of_ornls_review_is_the_one_made_today() {
    let env = Env::new();
    let page = env.path("page.html");
    let report = env.start(&["report", "ornl", "--json", "--html", &text(&page)]);
    let report = report.finish_within(CALCULATES).exits(0).text();
    let made = fs::read_to_string(&page).expect("a page");
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/ornl.html");
    let again = "netblt-lab report ornl --html docs/results/ornl.html";
    let kept = fs::read_to_string(kept).expect("the page that is kept");
    assert!(made == kept, "docs/results/ornl.html is not what is made today: {again}");
    for word in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!made.contains(word), "{word}");
    }
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let settings = report["settings"].as_array().expect("settings");
    assert_eq!((settings.len(), report["not_modelled"].as_array().map(Vec::len)), (3, Some(27)));
    let row = &settings[0]["rows"][4];
    assert_eq!((&row["program"], &row["ornl"]["lost"]), (&"SABUL".into(), &37_480.into()));
    assert!(row["model"]["really_lost"].as_u64().is_some_and(|lost| lost > 10_000), "{row}");
    let beside = report["beside_a_tcp"].as_array().expect("programs beside a TCP");
    let sabul = beside.iter().find(|row| row["program"] == "SABUL").expect("SABUL");
    let left = |law: &str| sabul[law]["tcp_left_percent"].as_u64();
    assert!(left("reno_delayed").is_some_and(|left| left < 25), "{sabul}");
    assert!(left("cubic").is_some_and(|left| left < 25), "{sabul}");
    let queues = &report["neighbours"][0];
    assert_eq!((&queues["program"], &queues["beside"]), (&"netblt".into(), &"CUBIC".into()));
    assert!(queues["queue_four"]["own_percent"].is_number(), "{queues}");
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn the_tables_read_well() {
    let report = Env::new().start(&["report", "rfc1030"]);
    let text = report.finish_within(CALCULATES).exits(0).text();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    // A title, a head, the rows, a summary and an empty line for each network; what the Ethernet
    // loses; then section 8.
    assert_eq!(text.lines().count(), 39 + 29 + 28 + 3 * 4 + 2 + 20 + 1 + 2 + 8 + 3, "{text}");
    for summary in ["Proteon ring: 39 rows", "Ethernet: 29 rows", "Wideband: 28 rows"] {
        assert!(text.contains(summary), "{text}");
    }
}

/// The traces of both ends of a transfer over loopback: the sender's, the receiver's.
fn traces(env: &Env, bytes: usize) -> [String; 2] {
    env.make_file("data", bytes);
    env.make_directory("here");
    let args = ["receive", "here", "--bind", "127.0.0.1", "--trace", "receiver.jsonl"];
    let mut receiver = env.start(&[&args[..], &["--mtu", "1500"]].concat());
    let ticket = receiver.line();
    let args = ["send", "data", "--bind", "127.0.0.1", "--trace", "sender.jsonl", "--to", &ticket];
    env.run(&args).exits(0);
    receiver.finish().exits(0);
    ["sender.jsonl", "receiver.jsonl"].map(str::to_owned)
}

#[test]
fn a_transfer_is_described_and_drawn_from_the_trace_of_either_end() {
    let env = Env::new();
    for (trace, role) in traces(&env, 3_000_000).into_iter().zip(["sender", "receiver"]) {
        let args = ["report", "transfer", &trace, "--json", "--out", "x.svg"];
        let run = env.run(&args).exits(0);
        assert_eq!(run.stderr, "");
        let summary: Value = serde_json::from_str(&run.text()).expect("JSON");
        assert!(summary["data_packets"].as_u64().is_some_and(|n| n > 2000), "{summary}");
        assert!(summary["data_bytes"].as_u64().is_some_and(|n| n > 3_000_000), "{summary}");
        assert!(summary["mean_mbps"].as_f64().is_some_and(|n| n > 0.0), "{summary}");
        let known = [&summary["role"], &summary["wire"], &summary["ended"]];
        assert_eq!(known, [role, "sealed", "finished"]);
        assert!(summary["max_outstanding"].as_u64().is_some_and(|n| n > 0), "{summary}");
        // The ends agreed on the limit, and every limit has a sentence.
        let limit = summary["limit_sentence"].as_str().expect("a sentence");
        assert!(summary["limit"].is_string() && summary["limit_evidence"].is_object(), "{summary}");
        // What arrived of the data, with the names of files and without headers.
        let delivered = summary["delivered_bytes"].as_u64().expect("a number");
        assert!((3_000_000..3_010_000).contains(&delivered), "{summary}");
        let svg = fs::read_to_string(env.path("x.svg")).expect("a picture");
        assert!(svg.contains(&format!("<title>A transfer, as its {role} saw it</title>")), "{svg}");
        assert!(svg.contains(&format!("trace: {trace}")), "{svg}");
        for label in ["data, Mbit/s", "delivered", "round trip, ms", "buffers", "outstanding"] {
            assert!(svg.contains(&format!(">{label}<")), "{label} is not in {svg}");
        }
        let titled = ["report", "transfer", &trace, "--out", "x.html", "--title", "A <b> title"];
        let words = env.run(&titled).exits(0).text();
        assert!(words.contains("  data        "), "{words}");
        assert!(words.contains(&format!("  limit       {limit}\n")), "{words}");
        let page = fs::read_to_string(env.path("x.html")).expect("a page");
        assert!(page.contains("<svg ") && page.contains("  data        "), "{page}");
        assert!(page.contains("A &lt;b&gt; title") && !page.contains("A <b>"), "{page}");
    }
}

#[test]
fn a_truncated_trace_is_described_and_a_foreign_file_is_refused() {
    let env = Env::new();
    let [trace, _] = traces(&env, 100_000);
    let text = fs::read_to_string(env.path(&trace)).expect("a trace");
    let lines = text.lines().count();
    fs::write(env.path(&trace), &text[..text.len() - 10]).expect("a file");
    let run = env.run(&["report", "transfer", &trace]).exits(0);
    let says = format!("{trace}: line {lines}: it is no JSON, and it is cut short; skipped");
    assert!(run.says(&says).text().contains("  data        "));

    env.make_file("noise", 100_000);
    env.run(&["report", "transfer", "noise"]).exits(11).says("noise: not the trace of a transfer");
    env.run(&["report", "transfer", "none"]).exits(11).says("none: cannot read");
    for report in ["trace", "transfer"] {
        let run = env.run(&["report", report, &trace, "--out", "x.png"]).exits(1);
        run.says("--out x.png: a picture is written as .svg or .html, not as .png");
    }
    assert!(!env.path("x.png").exists());
}

#[test]
fn a_transfer_draws_its_own_page() {
    let env = Env::new();
    env.make_file("data", 3_000_000);
    env.make_directory("here");
    let args = ["receive", "here", "--bind", "127.0.0.1", "--report", "receiver.html"];
    let mut receiver = env.start(&args);
    let ticket = receiver.line();
    let args = ["send", "data", "--bind", "127.0.0.1", "--to", &ticket, "--report", "sender.html"];
    env.run(&[&args[..], &["--trace", "kept"]].concat()).exits(0);
    receiver.finish().exits(0);
    for (page, role) in [("sender.html", "sender, sealed"), ("receiver.html", "receiver, sealed")] {
        let text = fs::read_to_string(env.path(page)).expect("a page");
        for part in ["<svg ", role, ">data, Mbit/s<", ">round trip, ms<", "  data        "] {
            assert!(text.contains(part), "{page} has no {part}");
        }
        let title = match role {
            "sender, sealed" => "<title>netblt send data</title>",
            _ => "<title>netblt receive, into here</title>",
        };
        assert!(text.contains(title), "{page} is called otherwise");
        // It needs nothing from elsewhere.
        assert!(!text.contains("href=") && !text.contains("<script") && !text.contains("src="));
    }
    assert!(env.path("kept").exists());
    assert_eq!(env.names("tmp"), Vec::<String>::new(), "no trace is left");
    env.run(&["send", "data", "--report", "x.pdf"]).exits(1).says("a page is written as .html");
    // Where nothing came of it, that is said, and nothing else is.
    let alone = env.run(&["send", "data", "--wait", "100ms", "--report", "none/x.html"]).exits(35);
    alone.says("--report none/x.html: ");
}
