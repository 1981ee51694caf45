//! The state machines through the public face of the crate, and the bytes of every packet. They are
//! one program of tests, which is linked once and runs them side by side.

mod answers;
mod branches;
mod corpus;
mod floors;
mod keys;
mod pair;
mod reflection;
mod review;
mod rfc998_letter;
mod rfc998_vectors;
mod sealed_properties;
mod sealed_vectors;
mod subflows;
mod timers;
