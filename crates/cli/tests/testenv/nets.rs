//! Network namespaces around a router.

use std::process::Command;

/// Runs a program with these words; says why if that fails.
pub(crate) fn run(program: &str, words: &str) -> bool {
    let ended = Command::new(program).args(words.split_whitespace()).output().expect("it runs");
    if !ended.status.success() {
        println!("{program} {words}: {}", String::from_utf8_lossy(&ended.stderr));
    }
    ended.status.success()
}

/// Joins `host` to `router` by `wire`, as 198.18.`subnet`.2 and .1; by the router it reaches all.
pub(crate) fn join(router: &str, host: &str, wire: &str, subnet: usize) -> bool {
    let ip = |words: String| run("ip", &words);
    ip(format!("link add {wire} netns {router} type veth peer wire netns {host}"))
        && ip(format!("-n {router} addr add 198.18.{subnet}.1/24 dev {wire}"))
        && ip(format!("-n {router} link set {wire} up"))
        && ip(format!("-n {host} addr add 198.18.{subnet}.2/24 dev wire"))
        && ip(format!("-n {host} link set lo up"))
        && ip(format!("-n {host} link set wire up"))
        && ip(format!("-n {host} route add default via 198.18.{subnet}.1"))
}
