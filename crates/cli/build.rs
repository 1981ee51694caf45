//! Strips the program: cargo forgets its profile's `strip` where a package has an `opt-level` of
//! its own, as this one has.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let of = |name| std::env::var(name).unwrap_or_default();
    let release = of("PROFILE") == "release" && of("CARGO_CFG_TARGET_OS") == "linux";
    // What is built for `perf` keeps its names.
    if release && of("DEBUG") == "false" {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
}
