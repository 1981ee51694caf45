//! The `netblt` program. It is a package of its own, built for speed, because the linker optimises
//! all of it as this package asks; its commands are another, built for size.

use std::process::ExitCode;

fn main() -> ExitCode {
    netblt_commands::main()
}
