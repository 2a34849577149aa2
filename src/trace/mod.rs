//! Warm-up, capture and replay of device work.
