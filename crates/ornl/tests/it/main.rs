//! The models beside the tables of the review, in one program of tests.

mod beside;
mod ornl;
