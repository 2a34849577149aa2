//! Calibration presets of a bundle: what a request may name where the bundle is served.

use miette::{IntoDiagnostic, WrapErr, miette};

use crate::io::forms::{CalibrationForm, Presets};
use crate::perception::bundle::{Bundle, BundleFinding, CALIBRATION_FOLDER, FindingKind};

/// Largest calibration preset, in bytes.
pub(super) const MAX_CALIBRATION_BYTES: u64 = 1 << 20;
/// What is said beside a file that is none.
pub(super) const FORM: &str = "a calibration is {\"cameras\": {NAME: {\"intrinsics\": ..., \"T_ref_from_camera\": ..., \"distortion\": ...}}}";

/// Whether a text is a calibration that a service takes.
///
/// # Errors
/// What is wrong, beginning with the key.
pub(super) fn parse(text: &[u8]) -> Result<(), String> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let form: CalibrationForm = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        // What is no JSON, or no object, has no key.
        match error.path().to_string().as_str() {
            "." => error.inner().to_string(),
            key => format!("{key}: {}", error.inner()),
        }
    })?;
    json.end().map_err(|error| error.to_string())?;
    for (name, camera) in &form.cameras {
        let camera = camera.parse(&format!("cameras.{name}"));
        camera.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The presets of a bundle that are no calibrations. What is told already is not looked at.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn check(bundle: &Bundle, told: &[BundleFinding]) -> miette::Result<Vec<BundleFinding>> {
    let mut found = Vec::new();
    for file in bundle.manifest().calibrations.values() {
        if told.iter().any(|finding| finding.path == *file) {
            continue;
        }
        let path = bundle.folder().join(file);
        let wrong = || format!("the calibration {}", path.display());
        let text = std::fs::read(&path).into_diagnostic().wrap_err_with(wrong)?;
        found.extend(parse(&text).err().map(|reason| BundleFinding {
            kind: FindingKind::Invalid,
            path: file.clone(),
            detail: format!("is no calibration: {reason}"),
        }));
    }
    Ok(found)
}

/// The presets of a bundle, as a service offers them.
///
/// # Errors
/// A file that is no calibration, or one in their folder that the manifest does not know.
pub(in crate::cli) fn presets(bundle: &Bundle) -> miette::Result<Presets> {
    let listed = &bundle.manifest().calibrations;
    if listed.is_empty() {
        return Ok(Presets::default());
    }
    let presets = Presets::read(&bundle.folder().join(CALIBRATION_FOLDER))
        .into_diagnostic()
        .wrap_err("the calibrations of the bundle cannot be used")?;
    // A name that the manifest has and the folder has not was told when the files were compared to their digests.
    if let Some(name) = presets.names().find(|name| !listed.contains_key(*name)) {
        return Err(miette!(
            help = "`sensorium bundle check DIR` tells all that is wrong with a bundle",
            "the manifest of the bundle {} does not know {CALIBRATION_FOLDER}/{name}.json",
            bundle.folder().display()
        ));
    }
    Ok(presets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_calibration_is_told_by_its_key() {
        let good = r#"{"cameras": {"front": {"intrinsics": {"fx": 600, "fy": 600, "cx": 320, "cy": 240}, "distortion": [0, 0, 0, 0]}}}"#;
        assert_eq!(parse(good.as_bytes()), Ok(()));
        for (text, told) in [
            ("no JSON", "expected ident"),
            ("{} {}", "trailing characters"),
            ("[]", "expected"),
            (r#"{"camera": "front"}"#, "camera: unknown field `camera`"),
            (
                r#"{"cameras": {"front": {"intrinsic": 1}}}"#,
                "cameras.front.intrinsic: unknown field",
            ),
            (
                r#"{"cameras": {"front": {"distortion": "none"}}}"#,
                "cameras.front.distortion: invalid type",
            ),
            (
                r#"{"cameras": {"front": {"distortion": [0, 1]}}}"#,
                "cameras.front.distortion: 2 coefficients",
            ),
            (
                r#"{"cameras": {"front": {"intrinsics": {"fx": 600}}}}"#,
                "cameras.front.intrinsics",
            ),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
