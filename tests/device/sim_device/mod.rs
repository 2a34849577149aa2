//! The simulated device: its results, the races it must and must not find, its memory, its time, its faults.

mod contract;
mod faults;
mod harness;
mod memory;
mod oracle;
mod protocols;
mod races;
mod results;
mod timeline;
