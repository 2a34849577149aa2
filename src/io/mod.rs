//! Bags, messages, recordings and transports.
