//! Checked builders that turn tensor operations into device programs.
