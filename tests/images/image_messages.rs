//! Image messages of every kind through `sensorium run`: what they show is found, what they lie about is counted.

use crate::support;
use crate::tiny;
use sensorium::image::{Image, ImageRef, LetterboxPlan, PixelFormat, Workspace, encode_jpeg, encode_png};
use sensorium::io::bag::Bag;
use sensorium::io::messages::{IMAGE_TYPE, ImageMsg};
use serde_json::Value;
use tiny::{Frame, Lab, SIDE, numbered};

const TOPIC: &str = "/camera/image";
const PERIOD_NS: u64 = 100_000_000;

/// Labels and boxes of a line; the scores are not those of the pure colours after a conversion.
fn found(line: &Value) -> Vec<(String, Vec<f64>)> {
    let of = |detection: &Value| {
        let edges = detection["box_xyxy"].as_array().unwrap();
        let label = detection["label"].as_str().unwrap().to_owned();
        (label, edges.iter().map(|edge| edge.as_f64().unwrap()).collect())
    };
    line["detections"].as_array().unwrap().iter().map(of).collect()
}

/// Y, U and V of a colour, BT.601 with limited range.
fn yuv(rgb: &[u8]) -> [u8; 3] {
    let [r, g, b] = [0, 1, 2].map(|c| f64::from(rgb[c]) / 255.0);
    [
        16.0 + 65.481 * r + 128.553 * g + 24.966 * b,
        128.0 - 37.797 * r - 74.203 * g + 112.0 * b,
        128.0 + 112.0 * r - 93.786 * g - 18.214 * b,
    ]
    .map(|v| v.round() as u8)
}

/// The data of a message that shows an rgb8 picture. The squares lie on even pixels, so no chroma is mixed.
fn encoded(picture: &Image, encoding: &str) -> Vec<u8> {
    let rgb: Vec<&[u8]> = picture.data().chunks(3).collect();
    let pairs = || rgb.chunks(2).map(|pair| (yuv(pair[0]), yuv(pair[1])));
    let planes = |swap: bool| -> Vec<u8> {
        let luma = rgb.iter().map(|pixel| yuv(pixel)[0]);
        let chroma = (0..SIDE / 2).flat_map(|y| {
            (0..SIDE / 2).flat_map({
                let rgb = &rgb;
                move |x| {
                    let [_, u, v] = yuv(rgb[2 * y * SIDE + 2 * x]);
                    if swap { [v, u] } else { [u, v] }
                }
            })
        });
        luma.chain(chroma).collect()
    };
    // The channel that a mosaic keeps of the pixels of a 2 x 2 cell.
    let mosaic = |cell: [usize; 4]| -> Vec<u8> {
        (0..SIDE * SIDE)
            .map(|at| rgb[at][cell[at / SIDE % 2 * 2 + at % 2]])
            .collect()
    };
    match encoding {
        "yuv422" | "uyvy" => pairs().flat_map(|(a, b)| [a[1], a[0], a[2], b[0]]).collect(),
        "yuv422_yuy2" | "yuyv" => pairs().flat_map(|(a, b)| [a[0], a[1], b[0], a[2]]).collect(),
        "nv12" => planes(false),
        "nv21" => planes(true),
        "bayer_rggb8" => mosaic([0, 1, 1, 2]),
        "bayer_bggr8" => mosaic([2, 1, 1, 0]),
        "bayer_gbrg8" => mosaic([1, 2, 0, 1]),
        "bayer_grbg8" => mosaic([1, 0, 2, 1]),
        "8UC4" => rgb.iter().flat_map(|p| [p[2], p[1], p[0], 9]).collect(),
        other => panic!("{other}"),
    }
}

fn message(after_ns: u64, picture: &Image, encoding: &str, data: &[u8]) -> Frame {
    let format = PixelFormat::from_ros_encoding(encoding).unwrap();
    let step = format.row_bytes(SIDE) as u32;
    // The picture gives the size; encoding, step and data are the format's own.
    let frame = tiny::raw(TOPIC, after_ns, picture);
    let plain = ImageMsg::decode(&frame.data).unwrap();
    let changed = ImageMsg {
        encoding,
        step,
        data,
        ..plain
    };
    Frame {
        data: changed.encode().unwrap(),
        ..frame
    }
}

#[test]
fn a_red_square_is_found_in_every_encoding_of_colour() {
    let encodings = [
        "8UC4",
        "yuv422",
        "uyvy",
        "yuv422_yuy2",
        "yuyv",
        "nv12",
        "nv21",
        "bayer_rggb8",
        "bayer_bggr8",
        "bayer_gbrg8",
        "bayer_grbg8",
    ];
    let lab = Lab::new();
    let frames: Vec<Frame> = (0_u64..)
        .zip(encodings)
        .map(|(i, encoding)| {
            let picture = numbered(20 + i as usize).0;
            message(i * PERIOD_NS, &picture, encoding, &encoded(&picture, encoding))
        })
        .collect();
    lab.bag(&frames);
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [11, 11, 0, 0]), "{run:?}");
    for (i, (encoding, line)) in encodings.iter().zip(lab.lines("out.jsonl")).enumerate() {
        let square = numbered(20 + i).1.to_vec();
        assert_eq!(found(&line), [("red".to_owned(), square)], "{encoding}");
    }
}

#[test]
fn formats_that_a_size_or_a_step_cannot_have_cost_that_frame_alone() {
    let lab = Lab::new();
    let picture = numbered(5).0;
    let nv12 = encoded(&picture, "nv12");
    let with = |i: u64, change: fn(&mut ImageMsg<'_>)| {
        let frame = message(i * PERIOD_NS, &picture, "nv12", &nv12);
        let mut message = ImageMsg::decode(&frame.data).unwrap();
        change(&mut message);
        let data = message.encode().unwrap();
        Frame { data, ..frame }
    };
    lab.bag(&[
        with(0, |_| {}),
        // The chroma is missing: `step * height` bytes, as of a grey image.
        with(1, |m| m.data = &m.data[..64 * 64]),
        with(2, |m| m.height = 63),
        with(3, |m| (m.width, m.encoding) = (63, "yuv422")),
        with(4, |m| (m.width, m.height, m.encoding) = (1, 1, "bayer_rggb8")),
        with(5, |m| m.encoding = "mono16"),
        with(6, |_| {}),
    ]);
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [7, 2, 5, 0]), "{run:?}");
    assert_eq!(
        run.drops(),
        [("detector/prepare".into(), "invalid_image".into(), 5)]
    );
}

/// image_transport_plugins issue 170: a grey JPEG whose format names a source in YUV is no YUV image. Its one
/// channel counts for all three.
#[test]
fn a_grey_file_is_grey_whatever_its_source_was() {
    let lab = Lab::new();
    let picture = numbered(9).0;
    let grey: Vec<u8> = picture.data().chunks(3).map(|pixel| pixel[0]).collect();
    let grey = Image::new(grey, SIDE, SIDE, PixelFormat::Mono8).unwrap();
    let (jpeg, png) = (
        encode_jpeg(&grey.view(), 95).unwrap(),
        encode_png(&grey.view()).unwrap(),
    );
    let colour = encode_jpeg(&picture.view(), 100).unwrap();
    let files: [(&str, &[u8]); 6] = [
        ("yuv422_yuy2; jpeg compressed mono8", &jpeg),
        ("yuv422; jpeg compressed ", &jpeg),
        ("mono16; jpeg compressed mono8", &jpeg),
        ("mono8; png compressed ", &png),
        // Colour in the file is colour, whatever the text says.
        ("yuv422_yuy2; jpeg compressed bgr8", &colour),
        ("bayer_rggb8; jpeg compressed bgr8", &colour),
    ];
    let frames: Vec<Frame> = (0_u64..)
        .zip(files)
        .map(|(i, (format, file))| tiny::compressed(TOPIC, i * PERIOD_NS, format, file))
        .collect();
    lab.bag(&frames);
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [6, 6, 0, 0]), "{run:?}");
    let counts: Vec<usize> = lab
        .lines("out.jsonl")
        .iter()
        .map(|line| found(line).len())
        .collect();
    assert_eq!(counts, [0, 0, 0, 0, 1, 1]);
}

/// `image_transport` stores a mosaic as a grey file; the source's encoding says that it is one.
#[test]
fn a_mosaic_in_a_grey_file_is_colour() {
    let lab = Lab::new();
    let picture = numbered(9).0;
    let stored = |encoding: &str| {
        let mosaic = Image::new(encoded(&picture, encoding), SIDE, SIDE, PixelFormat::Mono8).unwrap();
        (
            encode_png(&mosaic.view()).unwrap(),
            encode_jpeg(&mosaic.view(), 100).unwrap(),
        )
    };
    let (png, _) = stored("bayer_gbrg8");
    let (_, jpeg) = stored("bayer_rggb8");
    lab.bag(&[
        tiny::compressed(TOPIC, 0, "bayer_gbrg8; png compressed ", &png),
        tiny::compressed(TOPIC, PERIOD_NS, "bayer_rggb8; jpeg compressed ", &jpeg),
        // Sixteen bits of mosaic do not fit a JPEG, so what these eight are is not known.
        tiny::compressed(TOPIC, 2 * PERIOD_NS, "bayer_rggb16; jpeg compressed ", &jpeg),
    ]);
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [3, 2, 1, 0]), "{run:?}");
    let (place, reason) = ("detector/prepare".to_owned(), "unsupported_encoding".to_owned());
    assert_eq!(run.drops(), [(place, reason, 1)]);
    for line in lab.lines("out.jsonl") {
        assert_eq!(found(&line), [("red".to_owned(), numbered(9).1.to_vec())]);
    }
}

/// A picture of twice the network's size, as a JPEG that may be decoded at half of it.
#[test]
fn boxes_of_a_jpeg_decoded_to_scale_are_in_pixels_of_the_whole_image_and_a_mosaic_is_never_scaled() {
    const WHOLE: usize = 2 * SIDE;
    let lab = Lab::new();
    let (small, [x1, y1, x2, y2]) = numbered(9);
    let pixel = |x: usize, y: usize| &small.data()[3 * ((y / 2) * SIDE + x / 2)..][..3];
    let places = || (0..WHOLE * WHOLE).map(|at| (at % WHOLE, at / WHOLE));
    let rgb = places().flat_map(|(x, y)| pixel(x, y).to_vec()).collect();
    let picture = Image::new(rgb, WHOLE, WHOLE, PixelFormat::Rgb8).unwrap();
    // Red where both numbers are even, blue where both are odd.
    let mosaic = places().map(|(x, y)| pixel(x, y)[x % 2 + y % 2]).collect();
    let mosaic = Image::new(mosaic, WHOLE, WHOLE, PixelFormat::Mono8).unwrap();
    let [picture, mosaic] = [picture, mosaic].map(|image| encode_jpeg(&image.view(), 100).unwrap());
    lab.bag(&[
        tiny::compressed(TOPIC, 0, "rgb8; jpeg compressed bgr8", &picture),
        tiny::compressed(TOPIC, PERIOD_NS, "bayer_rggb8; jpeg compressed ", &mosaic),
    ]);
    let scaled = "models.squares.decode_to_scale=true";
    let run = lab.run(&["--set", scaled, "--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [2, 2, 0, 0]), "{run:?}");
    let expected = [x1, y1, x2, y2].map(|edge| 2.0 * edge);
    for line in lab.lines("out.jsonl") {
        let boxes = found(&line);
        let [(label, edges)] = &boxes[..] else {
            panic!("one box, not {boxes:?}");
        };
        assert_eq!(label, "red");
        for (edge, expected) in edges.iter().zip(expected) {
            assert!(
                (edge - expected).abs() <= 1.0,
                "{boxes:?} instead of {expected:?}"
            );
        }
    }
}

/// image_transport_plugins issue 1, on recordings: one camera publishes rgb8, the other bgr8.
#[test]
fn recordings_of_both_channel_orders_become_blue_green_red() {
    for (bag, encoding) in [
        ("bags/amber_soccer_goal/soccer_goal_12.mcap", "rgb8"),
        ("bags/rosbag2js_sample/sample.db3", "bgr8"),
    ] {
        let Some(path) = support::data(bag) else { return };
        let bag = Bag::open(&path).unwrap();
        let data = bag
            .all_messages()
            .map(Result::unwrap)
            .find(|message| &*message.type_name == IMAGE_TYPE)
            .unwrap()
            .data;
        let message = ImageMsg::decode(&data).unwrap();
        assert_eq!(message.encoding, encoding);
        let [w, h, step] = [message.width, message.height, message.step].map(|v| v as usize);
        let format = PixelFormat::from_ros_encoding(encoding).unwrap();
        let image = ImageRef::new(message.data, w, h, step, format).unwrap();
        // At its own size a resize changes nothing but the order of the channels.
        let plan = LetterboxPlan::new(w, h, w, h).unwrap();
        let mut bgr = vec![0; plan.output_bytes()];
        plan.apply(&image, &mut bgr, &mut Workspace::default()).unwrap();
        let mut expected = message.data.to_vec();
        if encoding == "rgb8" {
            expected.chunks_mut(3).for_each(|pixel| pixel.swap(0, 2));
        }
        assert!(bgr == expected, "{encoding}");
    }
}
