//! The handlers of requests: each file performs one kind of request on the server's disk.

pub(super) mod answer;
pub(super) mod context;
mod copy;
pub(super) mod dispatch;
mod file_list;
mod get;
mod join;
mod list;
mod make_dir;
mod place;
mod put;
mod put_range;
mod read;
mod remove;
mod rename;
mod send;
mod stat;
