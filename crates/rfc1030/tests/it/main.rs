//! The models beside the tables of RFC 1030, in one program of tests.

mod rfc1030;
mod section8;
