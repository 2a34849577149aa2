//! Streams that take turns on one set of states, on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/spy.rs"]
mod spy;
#[path = "../support/temporal.rs"]
mod temporal;

mod random;
mod refusals;
mod turns;

use std::fmt::Display;

use sensorium::trace::{BankOptions, FreshReason, Freshness, OnFull, Select, StreamBanks};
use temporal::Model;

const CONTINUED: Freshness = Freshness::Continued;

fn fresh(reason: FreshReason) -> Freshness {
    Freshness::Fresh(reason)
}

fn options(max_streams: usize, on_full: OnFull) -> BankOptions {
    BankOptions {
        max_streams,
        on_full,
        max_gap_s: Some(2.0),
    }
}

fn at(timestamp_s: f64) -> Select {
    Select {
        reset: false,
        timestamp_s: Some(timestamp_s),
    }
}

const UNTIMED: Select = Select {
    reset: false,
    timestamp_s: None,
};

fn banks<K: Eq + Clone + Display>(model: &Model, options: BankOptions) -> StreamBanks<K> {
    StreamBanks::new(&model.runner, &[model.mem, model.trend, model.sum], options).unwrap()
}
