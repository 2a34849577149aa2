//! Latency, drops and reports.
