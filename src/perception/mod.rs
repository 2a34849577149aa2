//! Detectors: prepare, forward, finish.
