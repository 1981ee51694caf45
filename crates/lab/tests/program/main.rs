//! The built program `netblt-lab`, as its users have it. Tests of both programs' help, pages and
//! messages are among those of `netblt` (`cli/tests/program`).

#[path = "../../../cli/tests/testenv/mod.rs"]
mod testenv;

mod compare;
mod emulate;
mod impairments;
mod libudt;
mod product;
mod report;
