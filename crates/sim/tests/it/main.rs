//! Whole transfers in virtual time. They are one program of tests, which is linked once and runs
//! them side by side.

mod breaker;
mod buffers;
mod cubic;
mod emulated;
mod fair;
mod first_words;
mod forecast;
mod goldens;
mod grid;
mod last_word;
mod longer_path;
mod named;
mod neighbours;
mod opening_model;
mod packet_size;
mod progress;
mod repair;
mod rfc998_fair;
mod scenarios;
mod startup;
mod starved;
mod steering;
mod subflows;
mod swarm;
mod two_way_loss;
mod way_back;
