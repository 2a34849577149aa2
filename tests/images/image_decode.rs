//! Compressed images, held against OpenCV's decoders; damaged ones, held against nothing but an error.

use crate::support;
use std::path::{Path, PathBuf};

use sensorium::image::{
    DecodeError, DecodeOptions, EncodeError, Image, ImageError, PixelFormat, decode_image,
    decode_image_within, decode_into, encode_jpeg, encode_png,
};

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect();
    files.sort();
    files
}

/// A smooth coloured picture with some texture, so that compression has something to do.
fn picture(width: usize, height: usize, format: PixelFormat) -> Image {
    let channels = format.channels();
    let mut pixels = Vec::with_capacity(width * height * channels);
    for y in 0..height {
        for x in 0..width {
            for c in 0..channels {
                let wave = ((x * (c + 2)) as f64 / 9.0).sin() * ((y + 5 * c) as f64 / 7.0).cos();
                pixels.push((128.0 + 100.0 * wave) as u8);
            }
        }
    }
    Image::new(pixels, width, height, format).unwrap()
}

/// What OpenCV makes of a file.
struct OpenCv {
    pixels: Vec<u8>,
    size: (usize, usize),
    channels: usize,
}

/// OpenCV's pixels of each file.
fn opencv_pixels(files: &[PathBuf]) -> Option<Vec<OpenCv>> {
    opencv_decodes(&[], files)
}

fn opencv_decodes(options: &[&str], files: &[PathBuf]) -> Option<Vec<OpenCv>> {
    let mut oracle = support::oracle("decode_image.py")?;
    let folder = tempfile::tempdir().unwrap();
    support::run(oracle.arg(folder.path()).args(options).args(files));
    let read = |i: usize, ending: &str| std::fs::read(folder.path().join(format!("{i}.{ending}"))).unwrap();
    Some(
        (0..files.len())
            .map(|i| {
                let facts = String::from_utf8(read(i, "txt")).unwrap();
                let facts: Vec<usize> = facts.split(' ').map(|f| f.parse().unwrap()).collect();
                OpenCv {
                    pixels: read(i, "rgb"),
                    size: (facts[0], facts[1]),
                    channels: facts[2],
                }
            })
            .collect(),
    )
}

/// The photos of the test data.
fn photos() -> Option<Vec<PathBuf>> {
    let root = support::data("camera")?;
    let photos: Vec<PathBuf> = [".", "photos", "nuscenes_n015"]
        .iter()
        .flat_map(|folder| files(&root.join(folder), "jpg"))
        .collect();
    assert!(photos.len() >= 14);
    Some(photos)
}

fn assert_decodes_as_opencv(files: &[PathBuf]) {
    let Some(expected) = opencv_pixels(files) else {
        return;
    };
    for (file, opencv) in files.iter().zip(expected) {
        let ours = decode_image(&std::fs::read(file).unwrap()).unwrap();
        assert_eq!((ours.width(), ours.height()), opencv.size, "{}", file.display());
        assert_eq!(ours.format().channels(), opencv.channels, "{}", file.display());
        assert!(ours.data() == opencv.pixels, "{} differs", file.display());
    }
}

#[test]
fn jpeg_photos_decode_to_opencvs_pixels_bit_for_bit() {
    if let Some(photos) = photos() {
        assert_decodes_as_opencv(&photos);
    }
}

#[test]
fn jpegs_of_every_kind_decode_to_opencvs_pixels_bit_for_bit() {
    let Some(mut oracle) = support::oracle("write_jpegs.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(oracle.arg(folder.path()));
    let jpegs = files(folder.path(), "jpg");
    assert_eq!(jpegs.len(), 6 * 3 * 2 * 6);
    assert_decodes_as_opencv(&jpegs);
}

/// Not the pixels of a decode in full and a resize, but still those of OpenCV's reduced decode.
#[test]
fn a_jpeg_decodes_at_the_smallest_fraction_that_is_enough() {
    let Some(photos) = photos() else {
        return;
    };
    let mut pixels = Vec::new();
    for (fraction, divisor) in [("2", 2), ("4", 4), ("8", 8)] {
        let Some(expected) = opencv_decodes(&["--reduced", fraction], &photos) else {
            return;
        };
        for (photo, opencv) in photos.iter().zip(expected) {
            let file = std::fs::read(photo).unwrap();
            let full = decode_image(&file).unwrap();
            let full_size_px = [full.width(), full.height()];
            let enough = full_size_px.map(|side| side / divisor);
            let options = DecodeOptions {
                at_least_px: Some(enough),
            };
            let decoded = decode_into(&file, options, &mut pixels).unwrap();
            assert_eq!(decoded.full_size_px, full_size_px);
            let size = (decoded.image.width(), decoded.image.height());
            assert_eq!(size, opencv.size, "{}", photo.display());
            assert!(size.0 >= enough[0] && size.1 >= enough[1]);
            assert!(
                decoded.image.to_image().data() == opencv.pixels,
                "{}",
                photo.display()
            );
        }
    }
}

#[test]
fn a_scale_is_chosen_only_when_asked_for_and_never_for_a_png() {
    let image = picture(160, 120, PixelFormat::Rgb8);
    let (jpeg, png) = (
        encode_jpeg(&image.view(), 90).unwrap(),
        encode_png(&image.view()).unwrap(),
    );
    let mut pixels = Vec::new();
    let mut size = |file: &[u8], at_least_px| {
        let decoded = decode_into(file, DecodeOptions { at_least_px }, &mut pixels).unwrap();
        assert_eq!(decoded.full_size_px, [160, 120]);
        [decoded.image.width(), decoded.image.height()]
    };
    assert_eq!(size(&jpeg, None), [160, 120]);
    assert_eq!(size(&jpeg, Some([20, 15])), [20, 15]);
    assert_eq!(size(&jpeg, Some([20, 16])), [40, 30]);
    assert_eq!(size(&jpeg, Some([80, 1])), [80, 60]);
    assert_eq!(size(&jpeg, Some([81, 1])), [160, 120]);
    assert_eq!(size(&jpeg, Some([1000, 1000])), [160, 120]);
    assert_eq!(size(&png, Some([20, 15])), [160, 120]);
}

#[test]
fn memory_of_decoded_pixels_is_used_again() {
    let files = [
        encode_jpeg(&picture(160, 120, PixelFormat::Rgb8).view(), 90).unwrap(),
        encode_jpeg(&picture(160, 120, PixelFormat::Mono8).view(), 90).unwrap(),
        encode_png(&picture(150, 90, PixelFormat::Rgb8).view()).unwrap(),
        b"\xFF\xD8\xFF no picture".to_vec(),
    ];
    let mut pixels = Vec::new();
    decode_into(&files[0], DecodeOptions::default(), &mut pixels).unwrap();
    let memory = (pixels.as_ptr(), pixels.capacity());
    for file in files.iter().chain(&files) {
        if let Ok(decoded) = decode_into(file, DecodeOptions::default(), &mut pixels) {
            let again = decoded.image.to_image();
            assert!(again == decode_image(file).unwrap());
        }
        assert_eq!((pixels.as_ptr(), pixels.capacity()), memory);
    }
}

#[test]
fn png_files_of_every_kind_decode_as_opencv_does() {
    let Some(mut oracle) = support::oracle("write_pngs.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(oracle.arg(folder.path()));
    let pngs = files(folder.path(), "png");
    assert_eq!(pngs.len(), 6);
    let expected = opencv_pixels(&pngs).unwrap();
    for (png, opencv) in pngs.iter().zip(expected) {
        let ours = decode_image(&std::fs::read(png).unwrap()).unwrap();
        assert_eq!((ours.width(), ours.height()), opencv.size, "{}", png.display());
        let name = png.file_stem().unwrap().to_str().unwrap();
        // OpenCV keeps 16 bits, little-endian; the upper byte is what we read.
        let pixels: Vec<u8> = if name == "rgb16" {
            opencv
                .pixels
                .as_chunks()
                .0
                .iter()
                .map(|&[_low, high]| high)
                .collect()
        } else {
            opencv.pixels
        };
        assert_eq!(ours.format().channels(), opencv.channels, "{}", png.display());
        assert!(ours.data() == pixels, "{} differs", png.display());
    }
}

#[test]
fn a_jpeg_cut_anywhere_is_an_error() {
    for (size, quality) in [([160, 120], 90), ([16, 8], 100)] {
        for format in [PixelFormat::Rgb8, PixelFormat::Mono8] {
            let whole = encode_jpeg(&picture(size[0], size[1], format).view(), quality).unwrap();
            assert!(decode_image(&whole).is_ok());
            for length in 0..whole.len() {
                assert!(
                    decode_image(&whole[..length]).is_err(),
                    "{length} of {} bytes",
                    whole.len()
                );
            }
        }
    }
}

#[test]
fn a_photo_cut_in_half_says_that_it_is_cut_off() {
    let Some(root) = support::data("camera/photos") else {
        return;
    };
    for name in ["dog.jpg", "city_0.jpg", "peds_0.jpg"] {
        let bytes = std::fs::read(root.join(name)).unwrap();
        let error = decode_image(&bytes[..bytes.len() / 2]).unwrap_err();
        assert!(
            matches!(error, DecodeError::Truncated { format: "JPEG", .. }),
            "{name}: {error}"
        );
    }
}

#[test]
fn a_png_cut_anywhere_is_an_error() {
    let whole = encode_png(&picture(70, 50, PixelFormat::Rgb8).view()).unwrap();
    assert!(decode_image(&whole).is_ok());
    for length in 0..whole.len() {
        assert!(
            decode_image(&whole[..length]).is_err(),
            "{length} of {} bytes",
            whole.len()
        );
    }
}

/// Flipped bytes may still be a picture, but never a panic and never one of another size than it says.
#[test]
fn damaged_files_never_panic() {
    let image = picture(96, 64, PixelFormat::Rgb8);
    let mut state = 0x1234_5678_9ABC_DEF1_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % below
    };
    let progressive = |pixels: &Image, sampling, restart| {
        let mut out = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut out, 80);
        encoder.set_progressive(true);
        encoder.set_sampling_factor(sampling);
        encoder.set_restart_interval(restart);
        let (width, height) = (pixels.width() as u16, pixels.height() as u16);
        encoder
            .encode(pixels.data(), width, height, jpeg_encoder::ColorType::Rgb)
            .unwrap();
        out
    };
    let (mut refused, rounds) = (0, 2000);
    for whole in [
        encode_jpeg(&image.view(), 85).unwrap(),
        encode_jpeg(&picture(40, 40, PixelFormat::Mono8).view(), 95).unwrap(),
        progressive(&image, jpeg_encoder::SamplingFactor::R_4_2_0, 0),
        progressive(&image, jpeg_encoder::SamplingFactor::R_4_4_0, 3),
        encode_png(&image.view()).unwrap(),
    ] {
        assert!(decode_image(&whole).is_ok());
        for _ in 0..rounds {
            let mut bytes = whole.clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            match decode_image(&bytes) {
                Ok(image) => {
                    let expected = image.width() * image.height() * image.format().channels();
                    assert_eq!(image.data().len(), expected);
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > rounds, "only {refused} refused");
}

#[test]
fn a_tiny_file_that_claims_a_huge_image_is_refused_before_memory_is_reserved() {
    let mut jpeg = encode_jpeg(&picture(16, 16, PixelFormat::Rgb8).view(), 50).unwrap();
    let frame = jpeg.windows(2).position(|w| w == [0xFF, 0xC0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0x40, 0x00, 0x40, 0x00]);
    let error = decode_image(&jpeg).unwrap_err();
    assert!(
        matches!(
            error,
            DecodeError::ImplausibleSize {
                width: 16384,
                height: 16384,
                ..
            }
        ),
        "{error}"
    );
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF]);
    assert!(decode_image(&jpeg).is_err());
}

#[test]
fn other_bytes_are_named_by_their_first_ones() {
    let error = decode_image(b"GIF89a......").unwrap_err();
    assert_eq!(
        error.to_string(),
        "12 bytes that start with [47, 49, 46, 38, 39, 61, 2e, 2e] are neither JPEG nor PNG"
    );
    assert!(matches!(
        decode_image(&[]),
        Err(DecodeError::UnknownFormat { bytes: 0, .. })
    ));
}

#[test]
fn png_keeps_every_pixel_and_jpeg_keeps_the_picture() {
    for format in [
        PixelFormat::Rgb8,
        PixelFormat::Bgr8,
        PixelFormat::Rgba8,
        PixelFormat::Bgra8,
        PixelFormat::Mono8,
    ] {
        let image = picture(67, 41, format);
        // Channels in the order that files keep: red, green, blue (, alpha).
        let mut in_order = image.data().to_vec();
        if matches!(format, PixelFormat::Bgr8 | PixelFormat::Bgra8) {
            in_order
                .chunks_exact_mut(format.channels())
                .for_each(|p| p.swap(0, 2));
        }
        let back = decode_image(&encode_png(&image.view()).unwrap()).unwrap();
        assert!(back.data() == in_order, "{format}");

        let back = decode_image(&encode_jpeg(&image.view(), 95).unwrap()).unwrap();
        let colors = format.channels().min(3);
        assert_eq!(back.format().channels(), colors);
        let without_alpha = in_order
            .chunks_exact(format.channels())
            .flat_map(|p| &p[..colors]);
        let sum: u64 = back
            .data()
            .iter()
            .zip(without_alpha)
            .map(|(a, &b)| u64::from(a.abs_diff(b)))
            .sum();
        let mean = sum as f64 / back.data().len() as f64;
        assert!(mean < 3.0, "{format}: {mean}");
    }
    let refused = encode_jpeg(&picture(8, 8, PixelFormat::Rgb8).view(), 0);
    assert!(matches!(refused, Err(EncodeError::Quality { quality: 0 })));
}

#[test]
fn an_owned_image_checks_its_length() {
    assert!(matches!(
        Image::new(vec![0; 11], 2, 2, PixelFormat::Rgb8),
        Err(ImageError::WrongDataLength {
            found: 11,
            expected: 12,
            ..
        })
    ));
}

#[test]
fn an_image_that_claims_too_long_a_side_is_refused_by_its_header() {
    let image = Image::new(vec![90; 3 * 5 * 4], 5, 4, PixelFormat::Rgb8).unwrap();
    let jpeg = encode_jpeg(&image.view(), 90).unwrap();
    for file in [encode_png(&image.view()).unwrap(), jpeg.clone()] {
        assert_eq!(decode_image_within(&file, 5).unwrap().width(), 5);
        let refused = decode_image_within(&file, 4);
        assert!(
            matches!(
                refused,
                Err(DecodeError::TooLarge {
                    width: 5,
                    height: 4,
                    allowed: 4
                })
            ),
            "{refused:?}"
        );
    }
    // A second frame header is one, too: memory would be taken for the last that there is.
    let second = [
        &[0xFF, 0xC0, 0, 17, 8, 0, 1, 0x03, 0xE9, 3][..],
        &[1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0],
    ]
    .concat();
    let end = jpeg.len() - 2;
    let two = [&jpeg[..end], &second, &jpeg[end..]].concat();
    let refused = decode_image_within(&two, 1000);
    assert!(
        matches!(
            refused,
            Err(DecodeError::TooLarge {
                width: 1001,
                height: 1,
                ..
            })
        ),
        "{refused:?}"
    );
}
