//! Networks lowered to device operations.
