//! Ops, the importer, weights and whole networks.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/blocks.rs"]
mod blocks;
#[path = "../support/graphs.rs"]
mod graphs;
#[path = "../support/interpreter.rs"]
mod interpreter;
#[path = "../support/spy.rs"]
mod spy;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;
#[path = "../support/traced.rs"]
mod traced;

mod attention;
mod centerpoint;
mod centerpoint_weights;
mod checkpoint;
mod goldens;
mod grid_sample;
mod importer;
mod model;
mod model_profile;
mod network;
mod network_precision;
mod onnx_records;
mod ops_dense;
mod pillar_blocks;
mod pillar_networks;
mod query_ops;
mod resnet;
mod safetensors;
mod sparse;
mod sparse_encoder;
mod state_dict;
mod stored_weights;
mod transfusion_head;
mod weight_cache;
mod weights;
