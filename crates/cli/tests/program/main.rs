//! The built program, as its users have it. One program of tests for all that they do with it:
//! some fifty would take minutes to build.

#[path = "../testenv/mod.rs"]
mod testenv;

mod across;
mod attributes;
mod bar;
mod bench;
mod blocked;
mod broken;
mod choice;
mod cli;
mod compare;
mod control;
mod cp;
mod dissector;
mod effects;
mod emulate;
mod endings;
mod exfat;
mod fleet;
mod fleet_dask;
mod fleet_slurm;
mod impairments;
mod keygen;
mod killed;
mod lanes;
mod libudt;
mod limits;
mod memory;
mod moving;
mod names;
mod offer;
mod options;
mod packages;
mod packet_size;
mod pages;
mod plan;
mod progress;
mod protocols;
mod raw_ip;
mod readme;
mod repair;
mod report;
mod resume;
mod rfc998;
mod room;
mod scp;
mod serve;
mod ssh;
mod terminal;
mod third;
mod transfer;
mod trees;
mod verify;
mod words;
