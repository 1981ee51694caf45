//! Pages that need nothing else: no script, no font, no picture from elsewhere. Plots are SVG,
//! tables and text are HTML.
//!
//! Floating-point numbers are for display only. Nothing here reads a file or knows what it draws.

#![forbid(unsafe_code)]

pub mod frame;
pub mod html;
pub mod plot;
pub mod rates;
