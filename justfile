# Commands for developers; CONTRIBUTING.md says when to run which. Each is a few lines of cargo, for those without `just`.

# All tests in one pool where nextest is installed, else one program after the other.
tests := if `command -v cargo-nextest || true` == "" { "cargo test --no-fail-fast" } else { "cargo nextest run --no-fail-fast" }

_list:
    @just --list --unsorted

# Format and lints
check:
    cargo fmt --all -- --check
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Tests beside the code of all crates
unit:
    {{ tests }} --locked --lib

# All tests that need no root: loopback, programs, virtual time
test *args:
    {{ tests }} --locked {{ args }}

# Tests of files and of the program as root: namespaces, mounts, users
root *args:
    {{ tests }} --locked --config 'target."cfg(unix)".runner="sudo --preserve-env"' -p netblt -p netblt-cli -p netblt-lab {{ args }}

# What takes minutes: tests that CI has a sample of, 2,000 random worlds, the model of openings, kills
slow:
    cargo test --locked --lib --test it -- --ignored
    NETBLT_SWARM=2000 NETBLT_SWARM_NAMED=20 cargo test --locked -p netblt-sim --test it -- swarm:: opening_model::
    NETBLT_RESUME_MIB=256 NETBLT_RESUME_KILLS=30 cargo test --locked -p netblt-cli --test program survives_kills

# Everything, as CI runs it
all:
    .ci/run
