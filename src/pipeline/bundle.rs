//! A model that comes from a bundle, as a pipeline file names it.

use schemars::JsonSchema;
use serde::Deserialize;

use super::settings::OnStreamsFull;

/// A model with all its settings from a bundle, a folder that `sensorium bundle make` wrote. Its files are compared to their
/// digests, and what the bundle pins cannot be changed here.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Bundle")]
pub(super) struct RawBundle {
    /// The folder.
    #[schemars(length(min = 1))]
    pub(super) path: String,
    /// Most streams that the model serves at once. Left out: as the bundle says.
    #[schemars(range(min = 1, max = 1_024))]
    pub(super) max_streams: Option<u16>,
    /// What happens to a stream beyond `max_streams`. Left out: as the bundle says.
    pub(super) on_full: Option<OnStreamsFull>,
}
