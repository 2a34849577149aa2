//! The OpenAPI document, also as Schemathesis sees it.

use crate::support;
use crate::tiny;
use std::path::Path;

use serde_json::Value;
use tiny::Lab;

use super::{PATIENCE, Service, engine_of, options, squares};

/// Schemathesis makes requests of the document, good and bad ones, and holds the answers against it.
fn fuzzed(service: &Service) {
    let Some(mut fuzz) = support::oracle("fuzz_service.py") else {
        return;
    };
    let out = support::run(fuzz.arg(format!("http://{}", service.address)));
    let told = String::from_utf8_lossy(&out).into_owned();
    assert!(told.contains("checked"), "{told}");
}

#[test]
fn schemathesis_finds_no_answer_of_a_camera_model_that_the_document_does_not_have() {
    fuzzed(&squares(&Lab::new()));
}

#[test]
fn schemathesis_finds_no_answer_of_a_lidar_model_that_the_document_does_not_have() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/centerpoint.yaml");
    let service = Service::start(engine_of(&file, None), options());
    service.client().wait_ready(PATIENCE).unwrap();
    fuzzed(&service);
}

#[test]
fn the_document_is_what_the_command_prints() {
    let out = tiny::sensorium().args(["schema", "openapi"]).output().unwrap();
    let printed: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(&printed, sensorium::server::openapi());
    let mut text = printed.to_string();
    for name in ["PredictRequest", "Points", "Image", "Problem"] {
        assert!(printed["components"]["schemas"][name].is_object(), "{name}");
    }
    // Every reference leads somewhere.
    while let Some(at) = text.find("\"$ref\":\"#/components/schemas/") {
        text = text.split_off(at + 29);
        let name = text.split('"').next().unwrap();
        assert!(printed["components"]["schemas"][name].is_object(), "{name}");
    }
}
