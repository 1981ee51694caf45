//! Every option of `netblt cp` on every route, between this machine, others that ssh reaches, and
//! servers: it has its effect, or it is refused with a message that names it.
#![cfg(target_os = "linux")]

use std::fs::{self, File, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::testenv::far::{program_directory, script};
use crate::testenv::{Env, Finished, Running, noise, text, wait_until};
use rustix::fs::{XattrFlags, fsetxattr, getxattr};
use rustix::process::Signal;
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    SshUp,
    SshDown,
    Hosts,
    ServerUp,
    ServerDown,
    Servers,
    Within,
}

use Route::{Hosts, ServerDown, ServerUp, Servers, SshDown, SshUp, Within};

const ROUTES: [Route; 7] = [SshUp, SshDown, Hosts, ServerUp, ServerDown, Servers, Within];
const OLD: Duration = Duration::from_secs(1_000_000_000);
const BIG: usize = 2_000_000;

/// Three machines, which are directories: `near` is this one; `one` and `other` are reached by ssh,
/// and each is served.
struct World {
    env: Env,
    at: Vec<String>,
    _servers: Vec<Running>,
}

/// One run, and where its files were to go.
struct Ran {
    finished: Finished,
    target: PathBuf,
    took: Duration,
    route: Route,
}

impl World {
    fn new() -> Self {
        let env = Env::new();
        for machine in ["near", "one", "other"] {
            env.make_directory(machine);
        }
        env.run(&["keygen", "near/me"]).exits(0);
        let me = fs::read_to_string(env.path("near/me.pub")).expect("the public half");
        let (mut servers, mut at) = (Vec::new(), Vec::new());
        for name in ["one", "other"] {
            let (key, keys) = (format!("{name}-key"), format!("{name}-keys"));
            env.run(&["keygen", &key]).exits(0);
            fs::write(env.path(&keys), format!("third-party {me}")).expect("written");
            let listen = ["serve", "--json", "--bind", "127.0.0.1", "--port", "0", "--root", name];
            let own = ["--key", &key, "--authorized-keys", &keys];
            let mut server = env.start(&[&listen[..], &own].concat());
            let listening = server.event("listening", |_| true);
            at.push(listening["addresses"][0].as_str().expect("an address").to_owned());
            servers.push(server);
        }
        script(
            &env,
            "ssh",
            &format!(
                "for word; do host=$last; last=$word; done\n\
                 case \" $* \" in *' -G '*) echo hostname 127.0.0.1; exit;; esac\n\
                 echo \"$*\" > '{here}'/ssh-arguments\n\
                 cd '{here}'/$host && export HOME=$PWD PATH=\"{path}:$PATH\"\n\
                 export SSH_CONNECTION='127.0.0.1 9 127.0.0.1 22'\n\
                 exec sh -c \"$last\"\n",
                here = text(&env.path(".")),
                path = program_directory(),
            ),
        );
        let other = format!("{}  f\n", blake3::hash(b"something else"));
        fs::write(env.path("near/wrong-sums"), other).expect("written");
        let world = Self { env, at, _servers: servers };
        ["near", "one"].iter().for_each(|machine| world.make_sources(machine));
        world
    }

    fn make_sources(&self, machine: &str) {
        let at = |name: &str| self.env.path(machine).join(name);
        fs::create_dir(at("d")).expect("made");
        for (name, bytes) in [("f", 10_000), ("big", BIG), ("d/x", 10), ("d/skip.o", 10)] {
            fs::write(at(name), noise(bytes)).expect("written");
        }
        symlink("x", at("d/l")).expect("linked");
        let file = File::options().write(true).open(at("f")).expect("opened");
        let _ = fsetxattr(&file, "user.of", b"f", XattrFlags::empty());
        let _ = fsetxattr(&file, ACL, &acl(), XattrFlags::empty());
        if rustix::process::geteuid().is_root() {
            chown(at("f"), Some(12_345), None).expect("given away");
        }
        if acl_is_there(&at("f")).is_none() {
            fs::set_permissions(at("f"), Permissions::from_mode(0o604)).expect("set");
        }
        file.set_modified(UNIX_EPOCH + OLD).expect("set");
    }

    fn target(&self, route: Route) -> PathBuf {
        self.env.path(match route {
            SshUp | ServerUp | Within => "one/in",
            SshDown | ServerDown => "near/in",
            Hosts | Servers => "other/in",
        })
    }

    /// `netblt cp` of something by a route, with the options in the place of the operands' sides.
    fn start(&self, route: Route, options: &[&str], name: &str) -> Running {
        let by_ssh = matches!(route, SshUp | SshDown | Hosts);
        let (a, b) = (&self.at[0], &self.at[1]);
        let (from, to) = match route {
            SshUp => (name.to_owned(), "one:in/".to_owned()),
            SshDown => (format!("one:{name}"), "in/".to_owned()),
            Hosts => (format!("one:{name}"), "other:in/".to_owned()),
            ServerUp => (name.to_owned(), format!("netblt://{a}/in/")),
            ServerDown => (format!("netblt://{a}/{name}"), "in/".to_owned()),
            Servers => (format!("netblt://{a}/{name}"), format!("netblt://{b}/in/")),
            Within => (format!("netblt://{a}/{name}"), format!("netblt://{a}/in/")),
        };
        let known = text(&self.env.path("known"));
        let mut args = vec!["cp"];
        // What is not the option in question is there only where it means something.
        if !by_ssh && !options.contains(&"--known-servers") {
            args.extend(["--known-servers", &known]);
        }
        args.extend(options);
        if !by_ssh && !options.contains(&"-i") {
            args.extend(["-i", "me"]);
        }
        args.extend([&from[..], &to]);
        let mut command = self.env.command(&args);
        let path = format!("{}:/usr/bin:/bin", text(&self.env.path(".")));
        command.current_dir(self.env.path("near")).env("PATH", path);
        command.env("HOME", self.env.path("near"));
        Running::new(command)
    }

    fn run(&self, route: Route, options: &[&str], name: &str) -> Ran {
        let begun = Instant::now();
        let finished = self.start(route, options, name).finish();
        Ran { finished, target: self.target(route), took: begun.elapsed(), route }
    }

    /// An empty target, and nothing of an earlier run elsewhere.
    fn clear(&self, route: Route) {
        for machine in ["near", "one", "other"] {
            let at = |name: &str| self.env.path(machine).join(name);
            for name in ["in", ".cache", "ssh-arguments"] {
                let _ = fs::remove_dir_all(at(name));
            }
        }
        for name in ["manifest", "trace", "page.html"] {
            let _ = fs::remove_file(self.env.path("near").join(name));
        }
        fs::create_dir(self.target(route)).expect("made");
    }

    /// Leaves a part of `big` at the target.
    fn break_off(&self, route: Route) {
        // Slow enough that a busy machine sees it on the way.
        let mut running = self.start(route, &["--json", "--rate", "4Mbit"], "big");
        running.event("progress", |data| data["bytes"].as_u64() > Some(500_000));
        running.signal(Signal::INT);
        running.finish().exits(20);
        let lock = self.target(route).join(".netblt-partial");
        wait_until("the part is there", || lock.exists());
    }
}

const ACL: &str = "system.posix_acl_access";

/// An access list that gives user 12345 more than others have.
fn acl() -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    let undefined = u32::MAX;
    for (tag, permissions, id) in [
        (1u16, 6u16, undefined),
        (2, 4, 12_346),
        (4, 0, undefined),
        (16, 4, undefined),
        (32, 4, undefined),
    ] {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&permissions.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    list
}

fn attribute(path: &std::path::Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 1000];
    let len = getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

fn acl_is_there(path: &std::path::Path) -> Option<Vec<u8>> {
    attribute(path, ACL)
}

impl Ran {
    fn ok(&self) -> bool {
        self.finished.code == Some(0)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.target.join(name)
    }

    fn has(&self, name: &str) -> bool {
        self.at(name).symlink_metadata().is_ok()
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.at(name)).map_or(0, |metadata| metadata.mode() & 0o777)
    }

    fn json(&self) -> Value {
        let text = self.finished.text();
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_default()
    }

    /// A count of the summary.
    fn count(&self, name: &str) -> u64 {
        self.json()["data"][name].as_u64().expect("a summary with that count")
    }
}

/// Whether a run shows what the option is for.
type Effect = fn(&World, &Ran) -> bool;

/// What is done before the run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// A copy of `big` was broken off.
    Broken,
    /// The same, and that is more than a second ago.
    BrokenLongAgo,
    /// A file of the name is at the target.
    Standing,
    /// A directory is where a file is to go.
    InTheWay,
}

use Before::{Broken, BrokenLongAgo, InTheWay, Nothing, Standing};

type Case = (&'static [&'static str], &'static str, Before, Effect);

fn copied(_: &World, ran: &Ran) -> bool {
    ran.ok() && ran.has("f")
}

fn slowly(_: &World, ran: &Ran) -> bool {
    ran.ok() && ran.has("big") && ran.took > Duration::from_secs(1)
}

fn stands(_: &World, ran: &Ran) -> bool {
    ran.ok() && fs::read(ran.at("f")).is_ok_and(|content| content == b"standing")
}

/// Options that ssh hears.
fn ssh_got(world: &World, words: &str) -> bool {
    let said = fs::read_to_string(world.env.path("ssh-arguments")).unwrap_or_default();
    said.contains(words)
}

const FILES: &[Case] = &[
    (&["-r"], "d", Nothing, |_, ran| ran.ok() && ran.has("d/x")),
    (&["-p"], "f", Nothing, |_, ran| {
        let time = fs::metadata(ran.at("f")).ok().and_then(|metadata| metadata.modified().ok());
        ran.ok() && time == Some(UNIX_EPOCH + OLD) && ran.mode("f") & 0o7 == 4
    }),
    (&["--owner"], "f", Nothing, |world, ran| {
        let uid = |path| fs::metadata(path).map_or(0, |metadata| metadata.uid());
        ran.ok() && uid(ran.at("f")) == uid(world.env.path("near/f"))
    }),
    (&["--xattrs"], "f", Nothing, |world, ran| {
        let of = |path: PathBuf| attribute(&path, "user.of");
        ran.ok() && of(ran.at("f")) == of(world.env.path("near/f"))
    }),
    (&["--acls"], "f", Nothing, |world, ran| {
        ran.ok() && acl_is_there(&ran.at("f")) == acl_is_there(&world.env.path("near/f"))
    }),
    (&["-n"], "f", Nothing, |_, ran| {
        ran.ok() && !ran.has("f") && ran.finished.text() == "f\t10000\n"
    }),
    (&["-r", "--atomic"], "d", InTheWay, |_, ran| {
        !ran.ok() && ran.finished.code != Some(23) && !ran.has("d/skip.o")
    }),
    (&["--resume", "never", "--json"], "big", Broken, |_, ran| {
        ran.ok() && ran.count("kept_bytes") == 0
    }),
    (&["--resume", "verify", "--json"], "big", Broken, |_, ran| {
        ran.ok() && ran.count("kept_bytes") > 0
    }),
    (&["--keep-partial", "1s", "--json"], "big", BrokenLongAgo, |_, ran| {
        ran.ok() && ran.count("kept_bytes") == 0
    }),
    (&["--keep-partial", "1d", "--json"], "big", BrokenLongAgo, |_, ran| {
        ran.ok() && ran.count("kept_bytes") > 0
    }),
    // What it does with a file that changes is seen in `source_tests.rs`.
    (&["--allow-changes"], "f", Nothing, copied),
    // That it reads again is seen in `verify.rs`.
    (&["--verify"], "f", Nothing, copied),
    (&["-r", "--exclude", "*.o"], "d", Nothing, |_, ran| {
        ran.ok() && ran.has("d/x") && !ran.has("d/skip.o")
    }),
    (&["-r", "-L"], "d", Nothing, |_, ran| {
        ran.ok() && fs::symlink_metadata(ran.at("d/l")).is_ok_and(|metadata| metadata.is_file())
    }),
    (&["--files-from", "list"], "d", Nothing, |_, ran| ran.has("x") && !ran.has("skip.o")),
    (&["-0", "--files-from", "list0"], "d", Nothing, |_, ran| ran.has("x") && !ran.has("skip.o")),
    (&["--chmod", "F600", "-p"], "f", Nothing, |_, ran| ran.ok() && ran.mode("f") == 0o600),
    (&["--ignore-existing"], "f", Standing, stands),
    (&["-u"], "f", Standing, stands),
    (&["-r", "--max-files", "1"], "d", Nothing, |_, ran| {
        matches!(ran.finished.code, Some(11 | 12)) && !ran.has("d/x")
    }),
    (&["--manifest", "manifest"], "f", Nothing, |world, ran| {
        let listed = fs::read_to_string(world.env.path("near/manifest")).unwrap_or_default();
        ran.ok() && listed.ends_with("  f\n")
    }),
    (&["--manifest", "manifest", "--manifest-format", "md5sum"], "f", Nothing, |world, ran| {
        let listed = fs::read_to_string(world.env.path("near/manifest")).unwrap_or_default();
        ran.ok() && listed.len() == 32 + 4 && listed.ends_with("  f\n")
    }),
    (&["--expect", "wrong-sums"], "f", Nothing, |_, ran| {
        ran.finished.code == Some(65) && !ran.has("f")
    }),
    (&["--store-hash"], "f", Nothing, |_, ran| {
        let digest = attribute(&ran.at("f"), "user.shatag.sha256");
        let lacks = ran.finished.stderr.contains("the digests in attributes of f: ");
        digest.is_some_and(|digest| digest.len() == 64) || lacks
    }),
    (&["--hash", "crc32c", "--json"], "f", Nothing, |_, ran| {
        ran.ok() && ran.finished.text().contains("\"digests\":{\"crc32c\":\"")
    }),
];

const PATH: &[Case] = &[
    (&["--no-path-cache"], "big", Nothing, |world, ran| {
        ran.ok()
            && !["near", "one"]
                .iter()
                .any(|machine| world.env.path(machine).join(".cache/netblt/paths").exists())
    }),
    (&["--fec", "20%", "--json"], "big", Nothing, |_, ran| {
        let packets = ran.count("repair_packets_sent").max(ran.count("repair_packets_received"));
        ran.ok() && (1..100_000).contains(&packets)
    }),
    (&["--fec", "20%", "--policy", "background"], "f", Nothing, |_, ran| {
        ran.finished.code == Some(1) && ran.finished.stderr.contains("--fec")
    }),
    (&["--policy", "aggressive"], "f", Nothing, |world, ran| {
        copied(world, ran) && ran.finished.stderr.contains("--policy aggressive")
    }),
    (&["--rate", "8Mbit"], "big", Nothing, slowly),
    (&["-l", "8000"], "big", Nothing, slowly),
    (&["--bwlimit", "1000"], "big", Nothing, slowly),
    // How many there are is seen in `streams.rs`.
    (&["--streams", "2"], "f", Nothing, copied),
    (&["--fallback", "always", "--json"], "f", Nothing, |_, ran| {
        ran.ok() && ran.finished.text().contains("{\"way\":\"ssh\"")
    }),
    (&["--fallback", "never"], "f", Nothing, copied),
    (&["--death-timer", "30s"], "f", Nothing, copied),
    (&["--trace", "trace"], "f", Nothing, |world, ran| {
        ran.ok() && fs::metadata(world.env.path("near/trace")).is_ok_and(|file| file.len() > 0)
    }),
    (&["--report", "page.html"], "f", Nothing, |world, ran| {
        ran.ok() && world.env.path("near/page.html").exists()
    }),
    (&["-4"], "f", Nothing, copied),
    // Nothing here listens at an address of IPv6, nor says that it has one but this machine.
    (&["-6"], "f", Nothing, |_, ran| {
        let by_ssh = matches!(ran.route, SshUp | SshDown | Hosts);
        by_ssh || !ran.ok()
    }),
];

const PRINTED: &[Case] = &[
    (&["-v"], "f", Nothing, |_, ran| {
        let printed = ran.finished.stderr.clone() + &ran.finished.text();
        ran.ok() && ["limit", "copied f"].iter().any(|words| printed.contains(words))
    }),
    (&["--stats"], "f", Nothing, |_, ran| ran.ok() && ran.finished.stderr.contains("limit")),
    (&["-q"], "f", Nothing, |world, ran| copied(world, ran) && ran.finished.stderr.is_empty()),
    (&["--json"], "f", Nothing, |_, ran| ran.ok() && ran.json()["event"].is_string()),
    (&["--progress=100ms", "--rate", "8Mbit"], "big", Nothing, |world, ran| {
        slowly(world, ran) && ran.finished.stderr.matches('%').count() > 1
    }),
];

const SSH: &[Case] = &[
    (&["-P", "2222"], "f", Nothing, |world, _| ssh_got(world, "-p 2222 ")),
    (&["-i", "me"], "f", Nothing, |world, ran| {
        copied(world, ran)
            && (ssh_got(world, "-i me ")
                || matches!(ran.route, ServerUp | ServerDown | Servers | Within))
    }),
    (&["-i", "me", "-i", "you"], "f", Nothing, |world, _| ssh_got(world, "-i me -i you ")),
    (&["-F", "configuration"], "f", Nothing, |world, _| ssh_got(world, "-F configuration ")),
    (&["-J", "gate"], "f", Nothing, |world, _| ssh_got(world, "-J gate ")),
    (&["-o", "A=b"], "f", Nothing, |world, _| ssh_got(world, "-o A=b ")),
    // A server asks nothing either way.
    (&["-B"], "f", Nothing, |world, ran| {
        copied(world, ran)
            && (ssh_got(world, "-oBatchMode=yes ")
                || matches!(ran.route, ServerUp | ServerDown | Servers | Within))
    }),
    (&["-S", "../ssh"], "f", Nothing, copied),
    (&["--remote-netblt", "netblt"], "f", Nothing, |world, _| ssh_got(world, "'netblt'")),
    // It is there already.
    (&["--install", "--yes"], "f", Nothing, copied),
    (&["--known-servers", "others"], "f", Nothing, |world, ran| {
        copied(world, ran) && world.env.path("near/others").exists()
    }),
    (&["--ticket-file", "none"], "f", Nothing, |_, ran| {
        // The key is meant, and a ticket that is named is looked for all the same.
        ran.ok()
    }),
];

/// Runs each of these options on each route.
fn hold(cases: &[Case]) {
    let world = World::new();
    fs::write(world.env.path("near/list"), "x\n").expect("written");
    fs::write(world.env.path("near/list0"), "x\0").expect("written");
    let (mut effects, mut wrong) = (0, Vec::new());
    for (options, name, before, effect) in cases {
        for route in ROUTES {
            world.clear(route);
            // What is refused is not worth a copy that breaks.
            let asked = world.run(route, options, name);
            let refused = asked.finished.code == Some(1)
                && asked.finished.stderr.contains("means nothing for a copy")
                || asked.finished.text().contains("means nothing for a copy");
            if refused {
                let option = options.iter().any(|option| {
                    asked.finished.stderr.contains(long(option))
                        || asked.finished.text().contains(long(option))
                });
                if !option || asked.target.read_dir().expect("listed").next().is_some() {
                    wrong.push(format!("{options:?} {route:?}: {}", asked.finished.stderr));
                }
                continue;
            }
            let ran = match before {
                Nothing => asked,
                before => {
                    world.clear(route);
                    prepare(&world, route, *before);
                    world.run(route, options, name)
                }
            };
            if effect(&world, &ran) {
                effects += 1;
            } else {
                let Finished { code, stderr, .. } = &ran.finished;
                let output = ran.finished.text();
                wrong.push(format!("{options:?} {route:?}: {code:?} {stderr} {output}"));
            }
        }
    }
    assert!(effects > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// As messages name it.
fn long(option: &str) -> &str {
    match option {
        "-n" => "--dry-run",
        "-L" => "--copy-links",
        "-u" => "--update",
        "--progress=100ms" => "--progress",
        option => option,
    }
}

fn prepare(world: &World, route: Route, before: Before) {
    let target = world.target(route);
    match before {
        Nothing => {}
        Broken => world.break_off(route),
        BrokenLongAgo => {
            world.break_off(route);
            std::thread::sleep(Duration::from_millis(1500));
        }
        Standing => fs::write(target.join("f"), "standing").expect("written"),
        InTheWay => fs::create_dir_all(target.join("d/x/y")).expect("made"),
    }
}

#[test]
fn which_files_and_how_they_are_stored() {
    hold(FILES);
}

#[test]
fn how_they_are_sent() {
    hold(PATH);
}

#[test]
fn which_messages_are_printed() {
    hold(PRINTED);
}

#[test]
fn how_the_other_end_is_called() {
    hold(SSH);
}

#[test]
fn every_udp_port_of_a_range_is_tried() {
    let world = World::new();
    // One port is taken, and some beside it are not.
    let (_taken, port) = std::iter::repeat_with(|| {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("bound");
        let port = socket.local_addr().expect("known").port();
        (socket, port)
    })
    .take(100)
    .find(|(_, port)| *port < 60_000)
    .expect("a port with others above it");
    let range = format!("{port}-{}", port + 20);
    for route in ROUTES {
        world.clear(route);
        let by_ssh = matches!(route, SshUp | SshDown | Hosts);
        let fallback = if by_ssh { &["--fallback", "auto"][..] } else { &[] };
        let ran = world.run(route, &[&["--udp-port", &range], fallback].concat(), "f");
        assert!(copied(&world, &ran), "{route:?}: {:?}", ran.finished);
        world.clear(route);
        let one = world.run(route, &["--udp-port", &port.to_string()], "f").finished;
        let ended = if route == Hosts { 35 } else { 10 };
        assert_eq!(one.code, Some(ended), "{route:?}: {one:?}");
        assert!(one.stderr.contains("--udp-port"), "{route:?}: {}", one.stderr);
    }
}

#[test]
fn an_empty_copy_has_the_same_result_on_every_route() {
    let world = World::new();
    ["near", "one"].iter().for_each(|machine| {
        world.env.make_directory(&format!("{machine}/empty"));
    });
    for route in ROUTES {
        for (options, name, code) in [
            // As one level deeper: there is nothing in it, and nothing is left out.
            (&["-r"][..], "empty/.", 0),
            (&["-r"], "empty", 0),
            // What is named is left out.
            (&[], "d", 23),
            (&[], "none", 23),
        ] {
            world.clear(route);
            let ran = world.run(route, options, name).finished;
            assert_eq!(ran.code, Some(code), "{route:?} {name}: {ran:?}");
            assert_eq!(ran.stderr.contains("skipped"), code == 23, "{route:?}: {ran:?}");
        }
    }
}
