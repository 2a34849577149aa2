//! Camera pre-processing: plain functions on plain data.
