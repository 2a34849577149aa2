//! Actors, channels, clock and shutdown.
