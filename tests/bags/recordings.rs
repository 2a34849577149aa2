//! Recordings and bags made here, read back by `rosbags` and `mcap`, and the `sensorium bag` commands.

use crate::support;
use std::path::Path;
use std::process::Output;

use sensorium::io::bag::Bag;
use sensorium::io::foxglove::{IMAGE_ANNOTATIONS, image_annotations, image_annotations_schema};
use sensorium::io::messages::{
    COMPRESSED_IMAGE_TYPE, CompressedImageMsg, HeaderMsg, IMAGE_TYPE, ImageMsg, definition,
};
use sensorium::io::recorder::{McapRecorder, RecordCompression, RecordError};
use sensorium::outputs::{Detection2D, Detections2D};
use serde_json::Value;

const START_NS: u64 = 1_700_000_000_000_000_000;

fn oracle(reader: &str, path: &Path) -> Option<Vec<Value>> {
    let output = support::run(support::oracle("read_bag.py")?.arg(reader).arg(path));
    let text = String::from_utf8(output).unwrap();
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    )
}

fn sensorium(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = crate::tiny::sensorium();
    command
        .args(args.iter().map(AsRef::as_ref))
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn image_at(stamp_ns: u64, data: &[u8]) -> Vec<u8> {
    let image = ImageMsg {
        header: HeaderMsg::new(stamp_ns as i64, "front").unwrap(),
        height: 4,
        width: 5,
        encoding: "bgr8",
        is_bigendian: 0,
        step: 16,
        data,
    };
    image.encode().unwrap()
}

/// Ten images of 4 rows, 5 columns and a padded row.
fn record_images(path: &Path, compression: RecordCompression) -> McapRecorder {
    let mut recorder = McapRecorder::create(path, compression).unwrap();
    let text = definition(IMAGE_TYPE).unwrap();
    let channel = recorder
        .add_ros_channel("/front/image", IMAGE_TYPE, &text)
        .unwrap();
    for i in 0..10u64 {
        let stamp_ns = START_NS + i * 33_333_333;
        let message = image_at(stamp_ns, &[i as u8; 64]);
        recorder.write(channel, stamp_ns + 7, stamp_ns, &message).unwrap();
    }
    recorder
}

/// The chunk of a recording of a few bytes a second takes minutes to fill: nobody may lose those.
#[test]
fn a_slow_recording_that_ends_suddenly_lacks_its_last_seconds_only() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("slow.mcap"), folder.path().join("copy.mcap"));
    let mut recorder = McapRecorder::create(&path, RecordCompression::Zstd).unwrap();
    let text = definition(IMAGE_TYPE).unwrap();
    let channel = recorder
        .add_ros_channel("/front/image", IMAGE_TYPE, &text)
        .unwrap();
    for second in 0..20 {
        let stamp_ns = START_NS + second * 1_000_000_000;
        let message = image_at(stamp_ns, &[second as u8; 64]);
        recorder.write(channel, stamp_ns, stamp_ns, &message).unwrap();
    }
    // As it lies on the disk while the recorder still runs.
    std::fs::copy(&path, &copy).unwrap();
    let saved = Bag::open(&copy).unwrap().messages(&["/front/image"]).unwrap();
    let seconds: Vec<u64> = saved
        .map_while(Result::ok)
        .map(|message| (message.log_time_ns - START_NS) / 1_000_000_000)
        .collect();
    assert_eq!(seconds, (0..18).collect::<Vec<_>>());
    recorder.finish().unwrap();
}

#[test]
fn recorded_images_are_decoded_by_rosbags_with_the_definitions_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for compression in [RecordCompression::None, RecordCompression::Zstd] {
        let path = folder.path().join("images.mcap");
        record_images(&path, compression).finish().unwrap();
        let Some(messages) = oracle("rosbags", &path) else {
            return;
        };
        assert_eq!(messages.len(), 10);
        for (i, message) in messages.iter().enumerate() {
            let stamp_ns = START_NS + i as u64 * 33_333_333;
            assert_eq!(message["stamp"], stamp_ns);
            assert_eq!(message["log_time"], stamp_ns + 7);
            assert_eq!(message["payload_crc32"], crc32fast::hash(&[i as u8; 64]));
            assert_eq!(
                (&message["width"], &message["height"], &message["step"]),
                (&5.into(), &4.into(), &16.into())
            );
            assert_eq!(
                (&message["encoding"], &message["frame_id"]),
                (&"bgr8".into(), &"front".into())
            );
        }
        let by_mcap = oracle("mcap", &path).unwrap();
        assert_eq!(by_mcap.len(), 10);
        assert_eq!(
            (&by_mcap[3]["encoding"], &by_mcap[3]["schema_encoding"]),
            (&"cdr".into(), &"ros2msg".into())
        );
        assert_eq!(by_mcap[3]["publish_time"], START_NS + 3 * 33_333_333);
    }
}

#[test]
fn a_recording_reads_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("images.mcap");
    record_images(&path, RecordCompression::Zstd).finish().unwrap();
    let bag = Bag::open(&path).unwrap();
    assert_eq!((bag.message_count(), bag.warnings()), (10, &[][..]));
    for (i, message) in bag.messages(&["/front/image"]).unwrap().enumerate() {
        let message = message.unwrap();
        let stamp_ns = START_NS + i as u64 * 33_333_333;
        assert_eq!(
            (message.log_time_ns, message.publish_time_ns),
            (stamp_ns + 7, stamp_ns)
        );
        assert_eq!(message.data, image_at(stamp_ns, &[i as u8; 64]));
    }
}

#[test]
fn a_recorder_that_is_dropped_leaves_a_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dropped.mcap");
    drop(record_images(&path, RecordCompression::Zstd));
    let bag = Bag::open(&path).unwrap();
    assert_eq!((bag.message_count(), bag.warnings()), (10, &[][..]));
}

#[test]
fn a_recording_that_cannot_be_made_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no_such_folder/r.mcap");
    let error = McapRecorder::create(&path, RecordCompression::None).unwrap_err();
    assert!(
        matches!(error, RecordError::Create { .. }) && error.to_string().contains("r.mcap"),
        "{error}"
    );
}

#[test]
fn boxes_lie_beside_images_as_foxglove_annotations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("boxes.mcap");
    let mut recorder = record_images(&path, RecordCompression::Zstd);
    let schema = image_annotations_schema();
    let channel = recorder
        .add_json_channel("/front/boxes", IMAGE_ANNOTATIONS, &schema)
        .unwrap();
    let detection = Detection2D {
        label_id: 0,
        score: 0.5,
        box_xyxy: [1.0, 1.0, 3.0, 2.0],
    };
    let labels = ["car".to_owned()].into();
    let boxes = Detections2D::new(vec![detection], labels, "m".into(), "front".into(), [5, 4]);
    recorder
        .write(
            channel,
            START_NS,
            START_NS,
            &image_annotations(&boxes, START_NS).unwrap(),
        )
        .unwrap();
    recorder.finish().unwrap();
    let Some(messages) = oracle("mcap", &path) else {
        return;
    };
    let message = messages.iter().find(|m| m["topic"] == "/front/boxes").unwrap();
    assert_eq!(
        (&message["encoding"], &message["schema_encoding"]),
        (&"json".into(), &"jsonschema".into())
    );
    assert_eq!(message["type"], "foxglove.ImageAnnotations");
    let annotations = &message["json"];
    assert_eq!(annotations["points"][0]["timestamp"]["sec"], 1_700_000_000);
    assert_eq!(annotations["points"][0]["points"][2]["x"], 3.0);
    // Every key of the message is one that the schema declares.
    let schema: Value = serde_json::from_str(&schema).unwrap();
    for list in ["points", "texts"] {
        let declared = schema["properties"][list]["items"]["properties"]
            .as_object()
            .unwrap();
        for key in annotations[list][0].as_object().unwrap().keys() {
            assert!(declared.contains_key(key), "{list}.{key}");
        }
    }
}

#[test]
fn compressed_images_keep_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jpeg.mcap");
    let mut recorder = McapRecorder::create(&path, RecordCompression::None).unwrap();
    let text = definition(COMPRESSED_IMAGE_TYPE).unwrap();
    let channel = recorder
        .add_ros_channel("/c", COMPRESSED_IMAGE_TYPE, &text)
        .unwrap();
    let message = CompressedImageMsg {
        header: HeaderMsg::new(5, "f").unwrap(),
        format: "jpeg",
        data: b"not really",
    };
    recorder.write(channel, 5, 5, &message.encode().unwrap()).unwrap();
    recorder.finish().unwrap();
    let Some(messages) = oracle("rosbags", &path) else {
        return;
    };
    assert_eq!(
        (&messages[0]["format"], &messages[0]["stamp"]),
        (&"jpeg".into(), &5.into())
    );
    assert_eq!(messages[0]["payload_crc32"], crc32fast::hash(b"not really"));
}

#[test]
fn a_folder_of_photos_becomes_a_bag_of_the_files_bytes() {
    let Some(photos) = support::data("camera/photos") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("made/by/command.mcap");
    let result = sensorium(&[
        &"bag",
        &"from-images",
        &photos,
        &"--out",
        &out,
        &"--hz",
        &"30",
        &"--compressed",
        &"--topic",
        &"/c/compressed",
    ]);
    assert!(
        result.status.success(),
        "{}",
        String::from_utf8_lossy(&result.stderr)
    );
    let mut files: Vec<_> = std::fs::read_dir(photos)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    let bag = Bag::open(&out).unwrap();
    let messages: Vec<_> = bag
        .messages(&["/c/compressed"])
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(messages.len(), files.len());
    // A thirtieth of a second, to the nanosecond, without drift.
    let periods_ns = [
        0,
        33_333_333,
        66_666_667,
        100_000_000,
        133_333_333,
        166_666_667,
        200_000_000,
    ];
    for (i, (message, file)) in messages.iter().zip(&files).enumerate() {
        let image = CompressedImageMsg::decode(&message.data).unwrap();
        assert!(image.data == std::fs::read(file).unwrap(), "{file:?}");
        assert_eq!(image.header.stamp_ns() as u64, START_NS + periods_ns[i]);
        assert_eq!((image.header.frame_id, image.format), ("camera", "jpeg"));
    }
    let Some(read) = oracle("rosbags", &out) else {
        return;
    };
    assert_eq!(read.len(), files.len());
}

#[test]
fn decoded_photos_have_the_pixels_of_the_decoder_and_the_same_file_comes_out_twice() {
    let Some(photos) = support::data("camera/photos") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let outs = ["a.mcap", "b.mcap"].map(|name| folder.path().join(name));
    for out in &outs {
        let result = sensorium(&[&"bag", &"from-images", &photos, &"--out", out, &"--hz", &"5"]);
        assert!(
            result.status.success(),
            "{}",
            String::from_utf8_lossy(&result.stderr)
        );
    }
    assert!(std::fs::read(&outs[0]).unwrap() == std::fs::read(&outs[1]).unwrap());
    let file = std::fs::read(photos.join("city_0.jpg")).unwrap();
    let expected = sensorium::image::decode_image(&file).unwrap();
    let first = Bag::open(&outs[0])
        .unwrap()
        .all_messages()
        .next()
        .unwrap()
        .unwrap();
    let image = ImageMsg::decode(&first.data).unwrap();
    assert_eq!(
        (image.width as usize, image.height as usize),
        (expected.width(), expected.height())
    );
    assert!(image.data == expected.data() && image.encoding == "rgb8");
    let Some(read) = oracle("rosbags", &outs[0]) else {
        return;
    };
    assert_eq!(read[0]["payload_crc32"], crc32fast::hash(expected.data()));
    assert_eq!(read[1]["stamp"], START_NS + 200_000_000);
}

#[test]
fn a_bad_picture_is_named_and_can_be_skipped() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("b_bad.jpg"), b"these are no pixels").unwrap();
    let pixels =
        sensorium::image::Image::new(vec![9; 48], 4, 4, sensorium::image::PixelFormat::Rgb8).unwrap();
    let png = sensorium::image::encode_png(&pixels.view()).unwrap();
    for name in ["a.png", "c.PNG"] {
        std::fs::write(folder.path().join(name), &png).unwrap();
    }
    let out = folder.path().join("out.mcap");
    let result = sensorium(&[
        &"bag",
        &"from-images",
        &folder.path(),
        &"--out",
        &out,
        &"--hz",
        &"1",
    ]);
    let told = String::from_utf8(result.stderr).unwrap();
    assert_eq!(result.status.code(), Some(1), "{told}");
    assert!(
        told.contains("b_bad.jpg") && told.contains("--skip-bad"),
        "{told}"
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        3,
        "nothing half-made is left"
    );

    let result = sensorium(&[
        &"bag",
        &"from-images",
        &folder.path(),
        &"--out",
        &out,
        &"--hz",
        &"1",
        &"--skip-bad",
    ]);
    let said = String::from_utf8(result.stdout).unwrap();
    assert!(
        result.status.success() && said.contains("2 images") && said.contains("1 skipped"),
        "{said}"
    );
    assert_eq!(Bag::open(&out).unwrap().message_count(), 2);
}

#[test]
fn an_output_that_cannot_be_written_is_told_before_any_picture_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"").unwrap();
    std::fs::write(folder.path().join("bad.jpg"), b"").unwrap();
    let out = folder.path().join("file/out.mcap");
    let result = sensorium(&[
        &"bag",
        &"from-images",
        &folder.path(),
        &"--out",
        &out,
        &"--hz",
        &"1",
    ]);
    let told = String::from_utf8(result.stderr).unwrap();
    assert!(
        !result.status.success() && told.contains("cannot make the folder"),
        "{told}"
    );
    assert!(!told.contains("bad.jpg"), "{told}");
    let result = sensorium(&[
        &"bag",
        &"from-images",
        &folder.path(),
        &"--out",
        &"bag.db3",
        &"--hz",
        &"1",
    ]);
    assert!(String::from_utf8(result.stderr).unwrap().contains(".mcap"));
}

#[test]
fn info_shows_topics_and_what_is_wrong_to_people_and_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("images.mcap");
    record_images(&path, RecordCompression::None).finish().unwrap();
    let json = sensorium(&[&"bag", &"info", &path, &"--format", &"json"]);
    let info: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&info["messages"], &info["duration_ns"]),
        (&10.into(), &299_999_997u64.into())
    );
    assert_eq!(info["topics"][0]["type"], IMAGE_TYPE);
    assert!((info["topics"][0]["rate_hz"].as_f64().unwrap() - 30.0).abs() < 1e-3);
    assert_eq!(info["warnings"], serde_json::json!([]));

    let file = std::fs::read(&path).unwrap();
    std::fs::write(&path, &file[..file.len() / 2]).unwrap();
    let result = sensorium(&[&"bag", &"info", &path]);
    let text = String::from_utf8(result.stdout).unwrap();
    assert!(result.status.success(), "{text}");
    assert!(
        text.contains("/front/image") && text.contains("truncated at offset"),
        "{text}"
    );

    let missing = sensorium(&[&"bag", &"info", &folder.path().join("none.mcap")]);
    let told = String::from_utf8(missing.stderr).unwrap();
    assert!(
        missing.status.code() == Some(1) && told.contains("none.mcap"),
        "{told}"
    );
}
