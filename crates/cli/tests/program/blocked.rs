//! `netblt cp` between two namespaces, through a router that drops UDP: in one direction, in both,
//! or unless the other side has spoken first. Needs root, `ip` and `nft`, else it is skipped.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::testenv::far::{Setting, program_directory, script};
use crate::testenv::nets::{join, run};
use crate::testenv::{self, Env, Finished, Running, last_event, noise, skip};

static NETS: AtomicU32 = AtomicU32::new(0);

/// Here, a router, and there.
struct Net {
    names: [String; 3],
}

impl Net {
    /// None, with a counted message, where that cannot be made.
    fn new() -> Option<Self> {
        if !testenv::able(&["ip", "nft", "nsenter"], &[]) {
            return None;
        }
        let id = format!("{}-{}", std::process::id(), NETS.fetch_add(1, Ordering::Relaxed));
        let net = Self { names: ["a", "r", "b"].map(|end| format!("netblt-block-{id}-{end}")) };
        let [a, router, b] = &net.names;
        let ip = |words: String| run("ip", &words);
        let mut made = net.names.iter().all(|name| ip(format!("netns add {name}")));
        for (host, wire, subnet) in [(a, "wa", 1), (b, "wb", 2)] {
            made &= join(router, host, wire, subnet);
        }
        made &= ip(format!("netns exec {router} sysctl -q -w net.ipv4.ip_forward=1"))
            && net.firewall("add table inet f");
        if !made {
            skip("namespaces with a firewall between them cannot be made here");
        }
        made.then_some(net)
    }

    fn firewall(&self, words: &str) -> bool {
        run("ip", &format!("netns exec {} nft {words}", self.names[1]))
    }

    /// Puts these rules in force, and no others.
    fn block(&self, rules: &[&str]) {
        assert!(self.firewall("flush ruleset") && self.firewall("add table inet f"));
        let hook = "add chain inet f c { type filter hook forward priority 0 ; }";
        assert!(self.firewall(hook));
        for rule in rules {
            assert!(self.firewall(&format!("add rule inet f c {rule}")));
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            run("ip", &format!("netns del {name}"));
        }
    }
}

/// `near` in the first namespace, and an ssh that leads to `far` in the last.
fn setting(net: &Net) -> Setting {
    let env = Env::new();
    let far = env.make_directory("far");
    env.make_directory("near");
    let text = format!(
        "for last; do :; done\n\
         case \" $* \" in *' -G '*) echo hostname 198.18.2.2; exit;; esac\n\
         cd '{far}' && export HOME='{far}' PATH=\"{path}:$PATH\"\n\
         export SSH_CONNECTION='198.18.1.2 9 198.18.2.2 22'\n\
         exec nsenter --net=/run/netns/{there} sh -c \"$last\"\n",
        far = far.display(),
        path = program_directory(),
        there = net.names[2],
    );
    let ssh = script(&env, "ssh", &text);
    Setting { env, ssh }
}

fn cp(net: &Net, setting: &Setting, args: &[&str]) -> Finished {
    let ssh = setting.ssh.to_str().expect("text");
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", &net.names[0], env!("CARGO_BIN_EXE_netblt"), "cp", "-S", ssh])
        .args(["--json"])
        .args(args)
        .current_dir(setting.env.path("near"))
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("TMPDIR", setting.env.make_directory("tmp"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Running::new(command).finish()
}

#[test]
fn cp_finishes_under_every_firewall_rule_for_udp() {
    let Some(net) = Net::new() else { return };
    let known = "ct state established accept";
    // What the firewall does, and which way the data then go.
    for (rules, way) in [
        (&[][..], "udp"),
        (&[known, "iifname wb meta l4proto udp drop"], "udp"),
        (&[known, "iifname wa meta l4proto udp drop"], "udp"),
        (&["iifname wa meta l4proto udp drop"], "ssh"),
        (&["iifname wb meta l4proto udp drop"], "ssh"),
        (&["meta l4proto udp drop"], "ssh"),
        (&["meta l4proto udp reject"], "ssh"),
    ] {
        net.block(rules);
        let setting = setting(&net);
        let data = noise(1_000_000);
        setting.put("near/up", &data);
        setting.put("far/down", &data);
        for args in [["up", "host:"], ["host:down", "."]] {
            let done = cp(&net, &setting, &args).exits(0);
            let text = done.text();
            assert!(text.contains(&format!("{{\"way\":\"{way}\"")), "{rules:?} {args:?}: {text}");
            assert_eq!(last_event(&text, "summary")["verified"], true);
            let blocked = text.contains("UDP does not pass");
            assert_eq!(blocked, way == "ssh", "{rules:?}: it is said, and only then: {text}");
        }
        for place in ["far/up", "near/down"] {
            assert!(fs::read(setting.env.path(place)).expect("read") == data, "{rules:?} {place}");
        }
        if way == "ssh" {
            let refused = cp(&net, &setting, &["--fallback", "never", "up", "host:other"]);
            assert_eq!(refused.exits(35).last_event("error")["code"], 35);
            assert!(!setting.env.path("far/other").exists());
        }
    }
}

/// Drops all UDP within a namespace, on loopback, too.
fn drop_within(name: &str) -> bool {
    let nft = |words: &str| run("ip", &format!("netns exec {name} nft {words}"));
    nft("add table inet own")
        && nft("add chain inet own i { type filter hook input priority 0 ; }")
        && nft("add rule inet own i meta l4proto udp drop")
}

#[test]
fn the_way_through_ssh_needs_no_udp_on_either_machine() {
    let Some(net) = Net::new() else { return };
    assert!(drop_within(&net.names[0]) && drop_within(&net.names[2]));
    let setting = setting(&net);
    let data = noise(3_000_000);
    setting.put("near/up", &data);
    setting.put("far/down", &data);
    for args in [["up", "host:"], ["host:down", "."]] {
        let text = cp(&net, &setting, &args).exits(0).text();
        assert!(text.contains("{\"way\":\"ssh\"") && text.contains("UDP does not pass"), "{text}");
        assert_eq!(last_event(&text, "summary")["verified"], true);
    }
    for place in ["far/up", "near/down"] {
        assert!(fs::read(setting.env.path(place)).expect("read") == data, "{place}");
    }
}
