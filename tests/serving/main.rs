//! The service: forms, requests, answers, load.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;

mod forms;
mod service;
