//! Tests of the file of authorised keys.

use std::fs;

use netblt_proto::config::StaticKey;

use super::*;

/// All permissions of the server.
fn everything(name: &str) -> Permissions {
    Permissions { name: name.to_owned(), ..Permissions::new("/srv") }
}

fn key(byte: u8) -> PublicKey {
    StaticKey::from_bytes([byte; 32]).public()
}

fn line(byte: u8, comment: &str) -> String {
    PublicLine { key: key(byte), comment: comment.to_owned() }.to_string()
}

fn rate(text: &str) -> Result<Rate, String> {
    let bytes = text.strip_suffix("B/s").and_then(|number| number.parse().ok());
    bytes.map(Rate::from_bytes_per_second).ok_or_else(|| format!("{text} is no rate"))
}

fn all(text: &[u8]) -> (Clients, Vec<(usize, String)>) {
    parse(text, &everything(""), &rate)
}

fn of<'a>(clients: &'a Clients, key: &PublicKey) -> Option<&'a Permissions> {
    clients.iter().find(|(own, _)| own == key).map(|(_, grant)| grant)
}

fn one(options: &str) -> Permissions {
    let (clients, wrong) = all(format!("{options} {}", line(7, "me@laptop")).as_bytes());
    assert_eq!(wrong, [], "{options}");
    of(&clients, &key(7)).expect("it is there").clone()
}

#[test]
fn a_line_without_options_may_do_everything() {
    let text = format!("# comment\n\n  {}\n{}\n", line(1, "anna"), line(2, ""));
    let anna = (key(1), everything("anna"));
    let other = (key(2), everything(&fingerprint(&key(2))));
    assert_eq!(all(text.as_bytes()), (vec![anna, other], vec![]));
}

#[test]
fn every_option_is_parsed() {
    let all = everything("me@laptop");
    assert_eq!(one("read-only"), Permissions { write: false, ..all.clone() });
    assert_eq!(one("write-only"), Permissions { read: false, ..all.clone() });
    assert_eq!(one("READ-ONLY"), Permissions { write: false, ..all.clone() });
    assert_eq!(one("max-sessions=3"), Permissions { max_sessions: Some(3), ..all.clone() });
    let max_rate = Some(Rate::from_bytes_per_second(5));
    assert_eq!(one("max-rate=5B/s"), Permissions { max_rate, ..all.clone() });
    let root = |path: &str| Permissions { root: Path::new("/srv").join(path), ..all.clone() };
    assert_eq!(one("root=/srv/in"), root("/srv/in"));
    assert_eq!(one("root=in/there"), root("in/there"));
    assert_eq!(one(r#"root="a, \"b\" \\ \c""#), root(r#"a, "b" \ \c"#));
    let both = one(r#"root="/a b",write-only,max-sessions=1"#);
    assert_eq!(both, Permissions { read: false, max_sessions: Some(1), ..root("/a b") });
}

#[test]
fn times_are_those_of_the_calendar() {
    for (text, seconds) in [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01Z", 1),
        ("2000-02-29", 951_782_400),
        ("2000-03-01", 951_868_800),
        ("2027-01-31", 1_801_353_600),
        ("2027-01-31T18:30:59Z", 1_801_353_600 + 18 * 3600 + 30 * 60 + 59),
        ("9999-12-31T23:59:59Z", 253_402_300_799),
    ] {
        let expires = Some(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(one(&format!("expires={text}")).expires, expires, "{text}");
    }
    for text in [
        "",
        "tomorrow",
        "2027-1-31",
        "2027-02-29",
        "1900-02-29",
        "2027-13-01",
        "2027-00-01",
        "2027-04-31",
        "2027-01-00",
        "1969-12-31",
        "2027-01-31T24:00:00Z",
        "2027-01-31T18:00:00",
        "2027-01-31T18:00Z",
        "+027-01-31",
        "2027-01-31-01",
    ] {
        assert_eq!(time(text), None, "{text}");
    }
    let grant = one("expires=2027-01-31");
    let at = UNIX_EPOCH + Duration::from_secs(1_801_353_600);
    assert!(!grant.holds(at) && grant.holds(at - Duration::from_secs(1)));
    assert!(one("read-only").holds(at));
}

#[test]
fn a_line_that_makes_no_sense_is_named_and_the_others_hold() {
    for (options, what) in [
        ("root", "root needs a value"),
        ("root=", "is no path without .."),
        ("root=a/../b", "is no path without .."),
        ("max-rate=fast", "max-rate: fast is no rate"),
        ("max-rate=0B/s", "must be greater than zero"),
        ("max-sessions=0", "max-sessions=0 is no number from 1 to 4096"),
        ("max-sessions=4097", "is no number"),
        ("expires=soon", "expires=soon is no time"),
        ("read-only=yes", "read-only takes no value"),
        ("read-only,read-only", "read-only is given twice"),
        ("read-only,write-only", "leave nothing"),
        ("readonly", "\"readonly\" is no option"),
        ("from=192.0.2.1", "\"from\" is no option"),
        ("read-only,", "an option is empty"),
        ("read-only, write-only", "an option is empty"),
        ("root=\"a", "a quote is not closed"),
        ("root=\"a\"b", "behind a closing quote"),
        ("root=a\"b\"", "a quote inside a value"),
        ("\u{1b}[2Jx", "is no option"),
    ] {
        let text = format!("{}\n{options} {}\n{}", line(1, "a"), line(7, "b"), line(2, "c"));
        let (clients, wrong) = all(text.as_bytes());
        assert!(of(&clients, &key(7)).is_none(), "{options}");
        assert_eq!(clients.len(), 2);
        let [(2, error)] = &wrong[..] else { panic!("{options}: {wrong:?}") };
        assert!(error.contains(what) && !error.contains('\u{1b}'), "{options}: {error}");
    }
    let twice = format!("{}\nread-only {}\n", line(1, "a"), line(1, "b"));
    let (clients, wrong) = all(twice.as_bytes());
    assert!(of(&clients, &key(1)).unwrap().write, "the first one counts");
    assert_eq!(wrong, [(2, "its key stands in line 1 already".to_owned())]);
    let errors = |text: &[u8]| all(text).1;
    assert_eq!(errors(b"netblt-x25519 abc")[0].0, 1);
    assert_eq!(errors(b"read-only")[0].1, "there is no netblt-x25519 and key in it");
    assert_eq!(errors(b"\xff\xfe"), [(1, "it is no UTF-8".to_owned())]);
}

#[test]
fn a_file_that_others_can_change_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("authorized_keys");
    fs::write(&path, format!("{}\nnonsense\n", line(1, "a"))).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let read = |path: &Path| read(path, &everything(""), &rate);
    let (clients, wrong) = read(&path).unwrap();
    assert_eq!(clients.len(), 1);
    let message = wrong[0].to_string();
    assert!(message.starts_with(&format!("{}, line 2: ", path.display())), "{message}");
    assert!(message.ends_with("; it is ignored"), "{message}");
    for mode in [0o664, 0o646] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("chmod go-w"));
    }
    assert!(read(place.path()).is_err());
    assert!(read(&place.path().join("none")).is_err());
}

#[test]
fn a_key_has_at_most_the_permissions_of_the_server() {
    let most = Permissions {
        write: false,
        max_rate: Some(Rate::from_bytes_per_second(5)),
        max_sessions: Some(2),
        expires: time("2027-01-31"),
        ..everything("")
    };
    let options = "max-rate=9B/s,max-sessions=9,expires=2028-01-31";
    let text = format!("{options} {}\n{}", line(1, "a"), line(2, "b"));
    let (clients, _) = parse(text.as_bytes(), &most, &rate);
    let named = |name: &str| Permissions { name: name.to_owned(), ..most.clone() };
    assert_eq!(clients, [(key(1), named("a")), (key(2), named("b"))]);
    let less = "max-rate=4B/s,max-sessions=1,expires=2026-01-31";
    let (clients, _) = parse(format!("{less} {}", line(1, "a")).as_bytes(), &most, &rate);
    let max_rate = Some(Rate::from_bytes_per_second(4));
    let expires = time("2026-01-31");
    let less = Permissions { max_rate, max_sessions: Some(1), expires, ..named("a") };
    assert_eq!(clients, [(key(1), less)]);
}
