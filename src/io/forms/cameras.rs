//! Images of several cameras, each with its calibration, in the order that a model wants.

use super::calibration::CameraCalibrationForm;
use super::error::shown;
use super::images::decode_pixels;
use super::{CalibrationForm, CameraCalibration, ImageForm, ImageLimits, InputError, InputFault, Presets};
use crate::image::Image;

/// Most images of one request.
const MAX_IMAGES: usize = 64;

/// An image and its camera.
#[derive(Debug, Clone, PartialEq)]
pub struct CameraImage {
    /// Name of the camera; `None` where the request does not say it.
    pub camera: Option<String>,
    /// Red, green, blue.
    pub image: Image,
    /// What is known of the camera.
    pub calibration: CameraCalibration,
    /// When it was taken, in seconds.
    pub timestamp_s: Option<f64>,
}

/// What a model wants of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CameraRules<'a> {
    /// Cameras in the model's order: each has to be there exactly once, and no other. `None`: any, as they come.
    pub order: Option<&'a [&'a str]>,
    /// Whether each camera needs intrinsics and a pose.
    pub require_calibration: bool,
    /// How large images may be.
    pub limits: ImageLimits,
}

/// The images of a request. What an image says of its camera goes before what the calibration says of it.
///
/// # Errors
/// [`InputError`] with paths below `images` and `calibration`.
pub fn decode_cameras(
    images: &[ImageForm],
    calibration: Option<&CalibrationForm>,
    presets: &Presets,
    rules: CameraRules<'_>,
) -> Result<Vec<CameraImage>, InputError> {
    if images.len() > MAX_IMAGES {
        let (what, found, allowed) = ("images", images.len(), MAX_IMAGES);
        return Err(InputError::new(
            "images",
            InputFault::TooMany { what, found, allowed },
        ));
    }
    let known = match calibration {
        Some(form) => presets.resolve(form, "calibration")?,
        None => std::collections::BTreeMap::new(),
    };
    let order = placed(images, rules.order)?;
    let mut cameras = Vec::with_capacity(images.len());
    for at in order {
        let form = &images[at];
        let field = format!("images[{at}]");
        let inline = CameraCalibrationForm {
            intrinsics: form.intrinsics.clone(),
            ref_from_camera: form.ref_from_camera.clone(),
            distortion: form.distortion.clone(),
        };
        // Told apart, so that messages name the place where it is said.
        let inline = inline.parse(&field)?;
        let by_name = match form
            .camera
            .as_ref()
            .and_then(|name| Some((name, known.get(name)?)))
        {
            Some((name, form)) => form.parse(&format!("calibration.cameras.{}", shown(name)))?,
            None => CameraCalibration::default(),
        };
        let calibration = CameraCalibration {
            intrinsics: inline.intrinsics.or(by_name.intrinsics),
            ref_from_camera: inline.ref_from_camera.or(by_name.ref_from_camera),
            distortion: match form.distortion {
                Some(_) => inline.distortion,
                None => by_name.distortion,
            },
        };
        if rules.require_calibration {
            let needed = [
                ("intrinsics", calibration.intrinsics.is_some()),
                ("T_ref_from_camera", calibration.ref_from_camera.is_some()),
            ];
            if let Some((name, _)) = needed.iter().find(|(_, there)| !there) {
                let expected = "it here, under `calibration.cameras`, or in a preset: the model needs it";
                return Err(InputError::missing(format!("{field}.{name}"), expected));
            }
        }
        if form.timestamp_s.is_some_and(|time| !time.is_finite()) {
            return Err(InputError::value(
                format!("{field}.timestamp_s"),
                "not finite",
                "seconds",
            ));
        }
        cameras.push(CameraImage {
            camera: form.camera.clone(),
            image: decode_pixels(form, &field, rules.limits)?,
            calibration,
            timestamp_s: form.timestamp_s,
        });
    }
    Ok(cameras)
}

/// Positions of the images in the model's order.
fn placed(images: &[ImageForm], order: Option<&[&str]>) -> Result<Vec<usize>, InputError> {
    for (at, image) in images.iter().enumerate() {
        let Some(name) = &image.camera else { continue };
        if images[..at]
            .iter()
            .any(|earlier| earlier.camera.as_ref() == Some(name))
        {
            let reason = format!("camera `{}` is there twice", shown(name));
            return Err(InputError::unexpected(format!("images[{at}].camera"), reason));
        }
    }
    let Some(order) = order else {
        return Ok((0..images.len()).collect());
    };
    for (at, image) in images.iter().enumerate() {
        let field = format!("images[{at}].camera");
        match &image.camera {
            None => return Err(InputError::missing(field, format!("one of {}", order.join(", ")))),
            Some(name) if !order.contains(&name.as_str()) => {
                let found = format!("`{}`", shown(name));
                return Err(InputError::value(
                    field,
                    found,
                    format!("one of {}", order.join(", ")),
                ));
            }
            Some(_) => {}
        }
    }
    let place = |name: &&str| {
        let at = images
            .iter()
            .position(|image| image.camera.as_deref() == Some(name));
        at.ok_or_else(|| InputError::missing("images", format!("an image of camera `{name}`")))
    };
    order.iter().map(place).collect()
}
