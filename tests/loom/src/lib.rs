//! The files of the CPU device that synchronise, compiled against the types of a model checker.
//!
//! [`device::cpu`] and [`device::slot`] are the library's own files; what they need besides is here: the
//! checker's atomics and locks in [`device::sync`], and stand-ins for kernels and errors. The models in
//! `tests/models.rs` run them in every order that the memory model allows, within the bound that each states.

pub mod device;
