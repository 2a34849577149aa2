//! The builders of dense layers against their definitions in f64, and every one of them captured and replayed with the bits
//! of an eager run.

mod convolutions;
mod joined;
mod reference;
mod resizing;
mod traced;
