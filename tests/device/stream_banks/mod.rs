//! Streams that take turns on one set of states, on every device.

mod random;
mod refusals;
mod turns;

use crate::spy;
use crate::temporal_model as temporal;
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
