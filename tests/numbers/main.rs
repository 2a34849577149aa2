//! The number formats, tensors, packings and the files that hold numbers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/blocks.rs"]
mod blocks;
#[path = "../support/graphs.rs"]
mod graphs;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/traced.rs"]
mod traced;

mod element_types;
mod interfaces;
mod npz;
mod numeric;
mod packing;
mod precision;
mod segments;
mod tensors;
