//! Images in JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::shown;
use super::{InputError, InputFault, IntrinsicsForm, TransformForm, decode_base64};
use crate::image::{DecodeError, Image, ImageRef, PixelFormat, decode_image_within};

/// How an image is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageEncoding {
    /// JPEG or PNG, by the first bytes.
    #[default]
    Auto,
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// Pixels as they are, row after row.
    Raw,
}

/// An image, and what is known of its camera.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Image")]
pub struct ImageForm {
    /// Name of the camera.
    #[schemars(length(max = 128))]
    pub camera: Option<String>,
    /// How `data` is encoded; JPEG or PNG, by the first bytes, where it is left out.
    pub format: Option<ImageEncoding>,
    /// The image in base64.
    pub data: String,
    /// Width of raw pixels.
    pub width: Option<usize>,
    /// Height of raw pixels.
    pub height: Option<usize>,
    /// Format of raw pixels, with the names of ROS (`rgb8`, `bgr8`, `mono8`, ...); rgb8 where it is left out.
    #[schemars(length(max = 32))]
    pub encoding: Option<String>,
    /// Intrinsics of the camera; before those of `calibration`.
    pub intrinsics: Option<IntrinsicsForm>,
    /// From the camera's optical frame to the reference frame; before that of `calibration`.
    #[serde(rename = "T_ref_from_camera")]
    pub ref_from_camera: Option<TransformForm>,
    /// Distortion coefficients in OpenCV's order; before those of `calibration`.
    #[schemars(length(max = 14))]
    #[serde(default, deserialize_with = "super::limited_list_or_null::<_, _, 14>")]
    pub distortion: Option<Vec<f64>>,
    /// When it was taken, in seconds.
    pub timestamp_s: Option<f64>,
}

/// How much is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// Longest side in pixels.
    pub max_side_px: usize,
    /// Most bytes.
    pub max_bytes: usize,
}

impl Default for ImageLimits {
    /// 8192 pixels a side, 64 MiB.
    fn default() -> Self {
        Self {
            max_side_px: 8192,
            max_bytes: 64 << 20,
        }
    }
}

/// The pixels of a form as red, green, blue.
///
/// # Errors
/// [`InputError`] with paths below `field`.
pub fn decode_pixels(form: &ImageForm, field: &str, limits: ImageLimits) -> Result<Image, InputError> {
    let data = format!("{field}.data");
    let bytes = decode_base64(&form.data, &data, limits.max_bytes)?;
    let format = form.format.unwrap_or_default();
    if format == ImageEncoding::Raw {
        return raw(&bytes, form, field, limits);
    }
    for (name, given) in [
        ("width", form.width.is_some()),
        ("height", form.height.is_some()),
        ("encoding", form.encoding.is_some()),
    ] {
        if given {
            return Err(InputError::unexpected(
                format!("{field}.{name}"),
                "only raw pixels have it",
            ));
        }
    }
    let is_png = bytes.starts_with(&[0x89, b'P', b'N', b'G']);
    match format {
        ImageEncoding::Png if !is_png => {
            return Err(InputError::value(data, "no PNG", "a PNG, for this format"));
        }
        ImageEncoding::Jpeg if !bytes.starts_with(&[0xFF, 0xD8, 0xFF]) => {
            return Err(InputError::value(data, "no JPEG", "a JPEG, for this format"));
        }
        _ => {}
    }
    let image = decode_image_within(&bytes, limits.max_side_px).map_err(|error| match error {
        DecodeError::TooLarge { width, height, .. } => too_long([width, height], &data, limits),
        error => InputError::new(&data, error),
    })?;
    red_green_blue(image.view(), &data)
}

fn too_long([width, height]: [usize; 2], field: &str, limits: ImageLimits) -> InputError {
    let expected = format!("at most {} px a side", limits.max_side_px);
    InputError::value(field, format!("{width} x {height} px"), expected)
}

fn raw(bytes: &[u8], form: &ImageForm, field: &str, limits: ImageLimits) -> Result<Image, InputError> {
    let side = |name: &str, side: Option<usize>| {
        side.ok_or_else(|| InputError::missing(format!("{field}.{name}"), "the size of raw pixels"))
    };
    let (width, height) = (side("width", form.width)?, side("height", form.height)?);
    if width.max(height) > limits.max_side_px {
        return Err(too_long([width, height], field, limits));
    }
    let encoding = form.encoding.as_deref().unwrap_or("rgb8");
    let format = PixelFormat::from_ros_encoding(encoding).map_err(|_| {
        let found = format!("`{}`", shown(encoding));
        InputError::value(
            format!("{field}.encoding"),
            found,
            "rgb8, bgr8, rgba8, bgra8, mono8, nv12, ...",
        )
    })?;
    let data = format!("{field}.data");
    let image = ImageRef::new(bytes, width, height, format.row_bytes(width), format);
    red_green_blue(image.map_err(|error| InputError::new(&data, error))?, &data)
}

/// Any image as red, green, blue; alpha is left out.
fn red_green_blue(image: ImageRef<'_>, field: &str) -> Result<Image, InputError> {
    let dense = image.to_image();
    let (width, height) = (dense.width(), dense.height());
    let pixels = match dense.format() {
        PixelFormat::Rgb8 => dense.into_data(),
        PixelFormat::Mono8 => dense.data().iter().flat_map(|&grey| [grey; 3]).collect(),
        PixelFormat::Rgba8 => dense
            .data()
            .as_chunks::<4>()
            .0
            .iter()
            .flat_map(|&[r, g, b, _]| [r, g, b])
            .collect(),
        PixelFormat::Bgra8 => dense
            .data()
            .as_chunks::<4>()
            .0
            .iter()
            .flat_map(|&[b, g, r, _]| [r, g, b])
            .collect(),
        // Interleaved formats are these and blue, green, red.
        _ => dense
            .data()
            .as_chunks::<3>()
            .0
            .iter()
            .flat_map(|&[b, g, r]| [r, g, b])
            .collect(),
    };
    Image::new(pixels, width, height, PixelFormat::Rgb8)
        .map_err(|error| InputError::new(field, InputFault::Pixels(error)))
}
