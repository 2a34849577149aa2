//! Images in every form.

use super::form;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sensorium::image::{Image, PixelFormat, encode_jpeg, encode_png};
use sensorium::io::forms::{
    CalibrationForm, CameraRules, ImageForm, ImageLimits, Presets, decode_cameras, decode_pixels,
};
use serde_json::{Value, json};

#[test]
fn images_become_red_green_blue_whatever_they_were() {
    let rgb = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [10, 20, 30]].concat();
    let image = Image::new(rgb.clone(), 2, 2, PixelFormat::Rgb8).unwrap();
    let decode =
        |value: &Value| decode_pixels(&form::<ImageForm>(value), "images[0]", ImageLimits::default());
    let png = STANDARD.encode(encode_png(&image.view()).unwrap());
    assert_eq!(decode(&json!({ "data": png })).unwrap().data(), rgb);
    let bgr: Vec<u8> = rgb
        .as_chunks::<3>()
        .0
        .iter()
        .flat_map(|&[r, g, b]| [b, g, r])
        .collect();
    let rgba: Vec<u8> = rgb
        .as_chunks::<3>()
        .0
        .iter()
        .flat_map(|&[r, g, b]| [r, g, b, 77])
        .collect();
    for (encoding, data) in [("rgb8", &rgb), ("bgr8", &bgr), ("rgba8", &rgba)] {
        let body = json!({ "format": "raw", "width": 2, "height": 2, "encoding": encoding, "data": STANDARD.encode(data) });
        assert_eq!(decode(&body).unwrap().data(), rgb, "{encoding}");
    }
    let grey = json!({ "format": "raw", "width": 2, "height": 1, "encoding": "mono8", "data": STANDARD.encode([3, 9]) });
    assert_eq!(decode(&grey).unwrap().data(), [3, 3, 3, 9, 9, 9]);
    let wrong = [
        (json!({ "data": "" }), "images[0].data: 0 bytes"),
        (json!({ "format": "jpeg", "data": png }), "no JPEG"),
        (
            json!({ "data": png, "width": 2 }),
            "images[0].width: only raw pixels have it",
        ),
        (
            json!({ "format": "raw", "data": "", "width": 2 }),
            "images[0].height: missing",
        ),
        (
            json!({ "format": "raw", "data": "", "width": 2, "height": 9000 }),
            "2 x 9000 px; expected at most 8192",
        ),
        (
            json!({ "format": "raw", "data": "AA==", "width": 2, "height": 2 }),
            "images[0].data",
        ),
        (
            json!({ "format": "raw", "data": "", "width": 1, "height": 1, "encoding": "cmyk" }),
            "images[0].encoding",
        ),
    ];
    for (body, words) in wrong {
        let error = decode(&body).unwrap_err().to_string();
        assert!(error.contains(words), "{body}: {error}");
    }
}

#[test]
fn a_size_that_a_header_claims_is_refused_before_pixels_are_decoded() {
    let image = Image::new(vec![9; 40 * 10 * 3], 40, 10, PixelFormat::Rgb8).unwrap();
    let limits = ImageLimits {
        max_side_px: 39,
        ..ImageLimits::default()
    };
    for file in [
        encode_png(&image.view()).unwrap(),
        encode_jpeg(&image.view(), 90).unwrap(),
    ] {
        // What follows the header is gone, but for a JPEG's end: only the header can have been read.
        let cut = file
            .windows(2)
            .position(|pair| pair == b"\xff\xda" || pair == b"ID")
            .unwrap();
        let header = [&file[..cut], b"\xff\xd9"].concat();
        let body = json!({ "data": STANDARD.encode(header) });
        let error = decode_pixels(&form::<ImageForm>(&body), "image", limits)
            .unwrap_err()
            .to_string();
        assert_eq!(error, "image.data: 40 x 10 px; expected at most 39 px a side");
    }
}

#[test]
fn cameras_come_in_the_models_order_each_once_with_the_nearest_calibration() {
    let png = STANDARD
        .encode(encode_png(&Image::new(vec![0; 3], 1, 1, PixelFormat::Rgb8).unwrap().view()).unwrap());
    let image = |camera: &str| json!({ "camera": camera, "data": png });
    let mut left = image("left");
    left["intrinsics"] = json!({ "fx": 1, "fy": 1, "cx": 0, "cy": 0 });
    let images: Vec<ImageForm> = form(&json!([image("right"), left]));
    let camera =
        |f: f64| json!({ "intrinsics": [[f, 0, 0], [0, f, 0], [0, 0, 1]], "T_ref_from_camera": { "z": f } });
    let calibration: CalibrationForm =
        form(&json!({ "cameras": { "left": camera(5.0), "right": camera(6.0) } }));
    let rules = CameraRules {
        order: Some(&["left", "right"]),
        require_calibration: true,
        ..CameraRules::default()
    };
    let cameras = decode_cameras(&images, Some(&calibration), &Presets::default(), rules).unwrap();
    let focal: Vec<f64> = cameras
        .iter()
        .map(|it| it.calibration.intrinsics.unwrap()[0][0])
        .collect();
    let height: Vec<f64> = cameras
        .iter()
        .map(|it| it.calibration.ref_from_camera.unwrap()[11])
        .collect();
    assert_eq!(
        (focal, height),
        (vec![1.0, 6.0], vec![5.0, 6.0]),
        "inline goes before, and what it lacks comes after"
    );
    let refused = |images: Value, words: &str| {
        let images: Vec<ImageForm> = form(&images);
        let error = decode_cameras(&images, None, &Presets::default(), rules)
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(
        json!([image("left"), image("left")]),
        "images[1].camera: camera `left` is there twice",
    );
    refused(json!([image("left")]), "an image of camera `right`");
    refused(
        json!([image("left"), image("rear")]),
        "images[1].camera: `rear`; expected one of left, right",
    );
    refused(json!([{ "data": png }]), "images[0].camera: missing");
    refused(
        json!([image("left"), image("right")]),
        "images[0].intrinsics: missing",
    );
}
