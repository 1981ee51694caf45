//! What `--json` prints is what `docs/reference/json-events.schema.json` describes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::testenv::{Env, Running};

/// The keywords that [`Schema::errors`] knows. Another one in the schema fails the test.
const KEYWORDS: [&str; 12] = [
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "required",
    "properties",
    "items",
    "const",
    "enum",
    "anyOf",
];

struct Schema(Value);

impl Schema {
    fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = path.join("../../docs/reference/json-events.schema.json");
        let text = fs::read_to_string(path).expect("the schema");
        Self(serde_json::from_str(&text).expect("JSON"))
    }

    /// The schema of an event's `data`.
    fn of_event(&self, event: &str) -> Option<&Value> {
        let all = self.0["oneOf"].as_array().expect("the events");
        let is_it = |one: &&Value| one["properties"]["event"]["const"] == event;
        all.iter().find(is_it).map(|one| &one["properties"]["data"])
    }

    /// What is wrong with `value` by `schema`. A field that the schema does not have is an error,
    /// too: programs may ignore new fields, but the schema has to have them.
    fn errors(&self, schema: &Value, value: &Value, place: &str) -> Vec<String> {
        let schema = match schema["$ref"].as_str() {
            Some(to) => {
                &self.0["$defs"][to.strip_prefix("#/$defs/").expect("a definition of its own")]
            }
            None => schema,
        };
        let mut errors = Vec::new();
        for keyword in schema.as_object().expect("a schema").keys() {
            if !KEYWORDS.contains(&keyword.as_str()) {
                errors.push(format!("{place}: the test does not know {keyword}"));
            }
        }
        if let Some(any) = schema["anyOf"].as_array() {
            let tried = any.iter().map(|one| self.errors(one, value, place));
            let tried: Vec<Vec<String>> = tried.collect();
            if !tried.iter().any(Vec::is_empty) {
                errors.extend(tried.into_iter().flatten());
            }
        }
        if !has_type(&schema["type"], value) {
            errors.push(format!("{place}: {value} is no {}", schema["type"]));
        }
        let is_other = |key: &str| schema.get(key).is_some_and(|wanted| wanted != value);
        let is_none_of = |all: &Vec<Value>| !all.contains(value);
        if is_other("const") || schema["enum"].as_array().is_some_and(is_none_of) {
            errors.push(format!("{place}: {value} is not possible"));
        }
        self.check_fields(schema, value, place, &mut errors);
        for (at, item) in value.as_array().into_iter().flatten().enumerate() {
            errors.extend(self.errors(&schema["items"], item, &format!("{place}[{at}]")));
        }
        errors
    }

    fn check_fields(&self, schema: &Value, value: &Value, place: &str, errors: &mut Vec<String>) {
        let (Some(known), Some(fields)) = (schema["properties"].as_object(), value.as_object())
        else {
            return;
        };
        for name in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(name.as_str().expect("a name")) {
                errors.push(format!("{place}: {name} is missing"));
            }
        }
        for (name, field) in fields {
            match known.get(name) {
                Some(schema) => {
                    errors.extend(self.errors(schema, field, &format!("{place}.{name}")));
                }
                None => errors.push(format!("{place}: the schema has no {name}")),
            }
        }
    }

    /// Checks the lines that a command printed, and notes their events.
    fn check(&self, text: &str, seen: &mut BTreeSet<String>) {
        assert!(!text.is_empty(), "nothing was printed");
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).expect(line);
            let event = line["event"].as_str().expect("an event");
            let schema = self.of_event(event).unwrap_or_else(|| panic!("no event {event}"));
            let errors = self.errors(schema, &line["data"], event);
            assert!(errors.is_empty(), "{line}:\n{}", errors.join("\n"));
            seen.insert(event.to_owned());
        }
    }
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the test does not know the type {other}"),
    };
    match wanted {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().expect("a name"))),
        _ => true,
    }
}

/// A transfer over loopback: the lines of both ends.
fn transfer(env: &Env, receive: &[&str]) -> [String; 2] {
    let send = ["send", "data.bin", "--json", "--progress=1ms", "--bind", "127.0.0.1"];
    let mut sender = Running::new(env.command(&send));
    let first = sender.line();
    let listening: Value = serde_json::from_str(&first).expect("an event");
    let ticket = listening["data"]["ticket"].as_str().expect("a ticket").to_owned();
    let listed = env.run(&["receive", &ticket, "--list", "--json"]).exits(0).text();
    let args = [&["receive", &ticket, "to", "--json"], receive].concat();
    let received = env.run(&args).exits(0).text();
    [format!("{first}\n{}", sender.finish().exits(0).text()), listed + &received]
}

#[test]
fn events_are_those_of_the_schema() {
    let (schema, mut seen) = (Schema::read(), BTreeSet::new());
    let env = Env::new();
    env.make_file("data.bin", 3_000_000);
    env.make_directory("to");
    env.make_directory("root");
    for text in transfer(&env, &["--progress=1ms"]) {
        schema.check(&text, &mut seen);
    }
    let plan = ["plan", "--rate", "1Gbit", "--rtt", "100ms", "--loss", "0.1%", "--size", "1GB"];
    for args in [
        &["keygen", "mine", "--json"][..],
        &["clean", "to", "--json"],
        &[&plan[..], &["--json"]].concat(),
    ] {
        schema.check(&env.run(args).exits(0).text(), &mut seen);
    }
    schema.check(&env.run(&["keygen", "mine", "--json"]).exits(11).text(), &mut seen);

    let serve = ["serve", "--root", "root", "--ticket-file", "ticket", "--json"];
    let place = ["--bind", "127.0.0.1", "--port", "0"];
    let mut server = env.start(&[&serve[..], &place].concat());
    let listening = server.line();
    let there = |args: &[&str]| {
        env.run(&[args, &["--ticket-file", "ticket", "--json"]].concat()).exits(0).text()
    };
    for args in [
        &["mkdir", "netblt:///new"][..],
        &["cp", "data.bin", "netblt:///new/"],
        &["mv", "netblt:///new/data.bin", "netblt:///other.bin"],
        &["cp", "netblt:///other.bin", "netblt:///copy.bin"],
        &["ls", "netblt:///"],
        &["stat", "netblt:///copy.bin"],
        &["rm", "netblt:///copy.bin"],
    ] {
        schema.check(&there(args), &mut seen);
    }
    server.signal(rustix::process::Signal::TERM);
    let served = format!("{listening}\n{}", server.finish().text());
    schema.check(&served, &mut seen);
    let wanted = [
        "connected",
        "copied",
        "entry",
        "error",
        "file",
        "key",
        "list_fetched",
        "listening",
        "made",
        "moved",
        "offered",
        "plan",
        "progress",
        "removed",
        "request",
        "summary",
    ];
    let missing: Vec<_> = wanted.iter().filter(|name| !seen.contains(**name)).collect();
    assert!(missing.is_empty(), "no command printed {missing:?}, only {seen:?}");
}

#[test]
fn an_event_that_differs_from_the_schema_is_found() {
    let schema = Schema::read();
    let of = |event: &str, text: &str| {
        let data = serde_json::from_str(text).expect("JSON");
        schema.errors(schema.of_event(event).expect("an event"), &data, event).len()
    };
    assert_eq!(of("silent", r#"{"silent":true}"#), 0);
    assert_eq!(of("silent", r#"{"silent":1}"#), 1);
    assert_eq!(of("silent", r#"{}"#), 1);
    assert_eq!(of("silent", r#"{"silent":true,"more":1}"#), 1);
    assert_eq!(of("way", r#"{"way":"tcp","address":null}"#), 1);
    assert_eq!(of("listening", r#"{"addresses":["192.0.2.7:1"]}"#), 0);
    assert!(of("listening", r#"{"addresses":[7]}"#) > 0);
    assert!(schema.of_event("nonsuch").is_none());
}
