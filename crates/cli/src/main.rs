//! The `netblt` program. Its commands are a package of their own.

use std::process::ExitCode;

fn main() -> ExitCode {
    netblt_commands::main()
}
