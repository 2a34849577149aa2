//! Number formats, held against their definitions and independent references.

mod blockfloat;
mod descriptor;
mod minifloat;
