//! Model files read as data.
