//! Whether a service is the one that is expected, and refuses what it has to refuse.

use serde_json::Value;

use super::{Client, ClientError};

/// What a service is to be; what is `None` is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// Name of the model.
    pub model: Option<String>,
    /// Name of the device's backend.
    pub backend: Option<String>,
    /// The variant that takes every frame.
    pub variant: Option<String>,
    /// SHA-256 of the weights.
    pub weights_sha256: Option<String>,
}

impl Expected {
    /// What `/info` says otherwise, a line each.
    #[must_use]
    pub fn differences(&self, info: &Value) -> Vec<String> {
        let device = &info["device"];
        let backend = match &device["backend"] {
            Value::Null => &device["name"],
            backend => backend,
        };
        let checks = [
            ("model", &self.model, &info["model"]),
            ("backend", &self.backend, backend),
            ("variant", &self.variant, &info["variant"]),
            ("weights", &self.weights_sha256, &info["weights"]["sha256"]),
        ];
        let differs = checks.into_iter().filter_map(|(name, expected, found)| {
            let expected = expected.as_ref()?;
            (found.as_str() != Some(expected)).then(|| format!("{name} is {found}, expected {expected:?}"))
        });
        differs.collect()
    }
}

/// `/info`, and how the service differs from what is expected.
///
/// # Errors
/// [`ClientError`] if it does not answer.
pub fn check_service(client: &Client, expected: &Expected) -> Result<(Value, Vec<String>), ClientError> {
    let info = client.get("/info")?;
    let mut failures = Vec::new();
    if info.status != 200 {
        failures.push(format!("/info answers {}: {}", info.status, info.body["detail"]));
    } else {
        failures.extend(expected.differences(&info.body));
    }
    Ok((info.body, failures))
}

/// Whether requests that are wrong are refused as they have to be: a field that does not exist, and a parameter that does
/// not exist. Returns what is otherwise.
///
/// # Errors
/// [`ClientError`] if the service does not answer.
pub fn check_bad_request(client: &Client) -> Result<Vec<String>, ClientError> {
    let probes: [(&[u8], u16, &str); 3] = [
        (b"{\"no_such_field\": 1}", 422, "an unknown field"),
        (
            b"{\"params\": {\"no_such_parameter\": 1}}",
            400,
            "an unknown parameter",
        ),
        (b"{", 422, "a body that is no JSON"),
    ];
    let mut failures = Vec::new();
    for (body, expected, what) in probes {
        let reply = client.post("/predict", body)?;
        if reply.status != expected {
            failures.push(format!(
                "{what} is answered with {}, expected {expected}",
                reply.status
            ));
        } else if reply.body.get("detail").is_none() {
            failures.push(format!("{what} is refused without `detail`"));
        }
    }
    Ok(failures)
}
