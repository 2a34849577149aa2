//! `sensorium image`, as a user runs it.

use std::path::{Path, PathBuf};
use std::process::Output;

use ndarray::{Array4, Ix4};
use ndarray_npy::read_npy;
use sensorium::image::{Image, PixelFormat, Preset, decode_image, encode_png};

fn sensorium(arguments: &[&str]) -> Output {
    crate::tiny::sensorium().args(arguments).output().unwrap()
}

fn done(arguments: &[&str]) -> String {
    let output = sensorium(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}\n{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refused(arguments: &[&str]) -> String {
    let output = sensorium(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A picture of that size, red on its left and blue on its right.
fn picture(folder: &Path, name: &str, [width, height]: [usize; 2]) -> PathBuf {
    let pixel = |x: usize| if x < width / 2 { [255, 0, 0] } else { [0, 0, 255] };
    let pixels = (0..width * height).flat_map(|at| pixel(at % width)).collect();
    let image = Image::new(pixels, width, height, PixelFormat::Rgb8).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, encode_png(&image.view()).unwrap()).unwrap();
    path
}

#[test]
fn a_preset_becomes_an_array_or_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let input = picture(folder.path(), "in.png", [800, 450])
        .to_str()
        .unwrap()
        .to_owned();
    let text = done(&[
        "image",
        "preset",
        "sceneseg",
        &input,
        &path("out.npy"),
        "--intrinsics",
        "400,400,399.5,224.5",
    ]);
    assert!(text.contains("640 x 320") && text.contains("fx 320"), "{text}");
    let array: Array4<f32> = read_npy(path("out.npy")).unwrap();
    assert_eq!(array.shape(), [1, 3, 320, 640]);
    // Blue first: none of it on the left.
    assert!((array[[0, 0, 10, 10]] + 0.406 / 0.225).abs() < 1e-6 && array[[0, 2, 10, 10]] > 2.0);

    done(&["image", "preset", "meteor", &input, &path("small.png")]);
    let small = decode_image(&std::fs::read(path("small.png")).unwrap()).unwrap();
    assert_eq!((small.width(), small.height()), (768, 432));
    assert_eq!(small.data()[..3], [255, 0, 0]);

    let second = picture(folder.path(), "second.png", [640, 480])
        .to_str()
        .unwrap()
        .to_owned();
    done(&[
        "image",
        "preset",
        "streampetr",
        &input,
        &second,
        &path("cameras.npy"),
        "--type",
        "bf16",
        "--threads",
        "2",
    ]);
    let cameras: Array4<f32> = read_npy(path("cameras.npy")).unwrap();
    assert_eq!(cameras.raw_dim(), Ix4(2, 3, 480, 640));
}

#[test]
fn every_preset_is_listed_and_shown_even_of_a_small_picture() {
    let folder = tempfile::tempdir().unwrap();
    let listed = done(&["image", "presets"]);
    for preset in Preset::ALL {
        assert!(
            listed.contains(preset.name()),
            "{} is missing in\n{listed}",
            preset.name()
        );
    }
    for size in [[320, 240], [1600, 900]] {
        let input = picture(folder.path(), "in.png", size)
            .to_str()
            .unwrap()
            .to_owned();
        let sheet = folder.path().join("sheet.png");
        done(&["image", "sheet", &input, sheet.to_str().unwrap()]);
        let sheet = decode_image(&std::fs::read(sheet).unwrap()).unwrap();
        assert!(sheet.width() > 1_000 && sheet.height() > 1_000);
    }
}

#[test]
fn what_cannot_be_made_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let input = picture(folder.path(), "in.png", [320, 240])
        .to_str()
        .unwrap()
        .to_owned();
    let out = path("out.npy");
    assert!(refused(&["image", "preset", "yolox", &input, &out]).contains("yolox_opencv"));
    assert!(refused(&["image", "preset", "opencv_linear", &input, &out]).contains("size"));
    assert!(refused(&["image", "preset", "meteor", &input, &out]).contains("shrinking"));
    assert!(refused(&["image", "preset", "bevformer", &input, &out, "--type", "uint8"]).contains("uint8"));
    assert!(refused(&["image", "preset", "sceneseg", &input, &path("out.txt")]).contains(".npy"));
    assert!(refused(&["image", "preset", "sceneseg", &path("none.png"), &out]).contains("none.png"));
    std::fs::write(path("torn.png"), b"\x89PNG\r\n").unwrap();
    assert!(refused(&["image", "preset", "sceneseg", &path("torn.png"), &out]).contains("torn.png"));
    assert!(!Path::new(&out).exists());
}
