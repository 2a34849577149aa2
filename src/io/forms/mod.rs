//! The forms in which programs hand sensor data over as JSON, and the forms in which results go back.
//!
//! Pure: a JSON value becomes typed data, or an [`InputError`] that names the field, what was found and what is
//! allowed. What comes in is untrusted: no length in it is believed before the bytes for it are there, and every list has
//! a limit. Nothing here knows of connections or of models.
//!
//! - [`PointsForm`]: point clouds as rows of numbers, raw bytes, NumPy arrays and archives, PCD and `.bin` files
//! - [`ImageForm`], [`decode_cameras`]: images, with the calibration of their cameras
//! - [`parse_transform`], [`parse_intrinsics`]: both in every spelling that is in use
//! - [`RoiForm`]: detections in images as an input
//! - [`ArrayForm`], [`decode_named_arrays`], [`encode_array`]: arrays, both ways
//! - [`ToBody`]: the body of every kind of result

mod arrays;
mod base64;
mod bodies;
mod calibration;
mod cameras;
mod encode;
mod error;
mod images;
mod intrinsics;
mod jsonable;
mod limited;
mod named;
mod numbers;
mod points;
mod rois;
mod scalars;
mod transform;

pub use arrays::{
    ArrayData, ArrayEncoding, ArrayEnvelope, ArrayForm, ArrayType, ByteOrder, ElementOrder, decode_array,
};
pub use base64::decode_base64;
pub use bodies::{BodyForm, BodyTiming, ToBody};
pub use calibration::{CalibrationForm, CameraCalibration, CameraCalibrationForm, PresetError, Presets};
pub use cameras::{CameraImage, CameraRules, decode_cameras};
pub use encode::{EncodeFault, encode_array, encode_png_form};
pub(crate) use error::shown;
pub use error::{InputError, InputFault};
pub use images::{ImageEncoding, ImageForm, ImageLimits, decode_pixels};
pub use intrinsics::{Intrinsics, IntrinsicsForm, parse_intrinsics};
pub(crate) use jsonable::round_widened;
pub use jsonable::{NonFinite, round_f32};
pub use limited::{
    LimitedValue, default_for_null, limited_list, limited_list_or_null, limited_map, limited_map_or_null,
    limited_value,
};
pub use named::{InputsForm, check_named_arrays, decode_named_arrays};
pub use numbers::{NestedNumbers, NumberRows};
pub use points::{
    DEFAULT_POINT_FIELDS, MAX_POINTS, PointData, PointEncoding, PointLimits, PointTable, PointsEnvelope,
    PointsForm,
};
pub use rois::{CameraName, LabelName, MAX_ROIS, Roi, RoiForm, decode_rois};
pub use transform::{TransformForm, parse_transform};
