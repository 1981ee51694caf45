//! `netblt cp`: which files go where, over which route, with which options.
//!
//! The operands ([`location`]) decide the route, which the plan holds ([`plan`]). One table has the
//! options of each route ([`routes`]). The options come from the command line ([`given`],
//! [`options`]). Sources and destinations here are read as scp reads them ([`operands`]), and the
//! user may choose among their files ([`files_from`], [`existing`]). All routes get the same inputs
//! ([`job`]). Between machines the files go by ssh ([`ssh`]), and to and from servers of files
//! without it ([`server`]).

pub(crate) mod existing;
pub(crate) mod files_from;
pub(crate) mod filter_rules;
pub(crate) mod given;
pub(crate) mod job;
pub(crate) mod location;
pub(crate) mod operands;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod routes;
pub(crate) mod server;
pub(crate) mod ssh;
