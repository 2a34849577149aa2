//! Clouds of points in every form.

use super::{form, points};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use sensorium::io::cloud_file::{CloudFormat, CloudWriteOptions, PcdEncoding, encode};
use sensorium::io::forms::{
    ArrayEncoding, ArrayForm, ImageForm, ImageLimits, PointLimits, PointsForm, decode_array, decode_base64,
    decode_pixels, encode_array,
};
use sensorium::lidar::PointCloud;
use sensorium::tensor::Shape;
use sensorium::weights::{Array, ElementType, Values};
use serde_json::json;

#[test]
fn base64_is_held_against_its_limit_before_it_is_decoded() {
    assert_eq!(decode_base64("AQID\nBA==\n", "f", 4).unwrap(), [1, 2, 3, 4]);
    let error = decode_base64("AQIDBA==", "f", 3).unwrap_err().to_string();
    assert_eq!(error, "f: 4 bytes; at most 3 are taken");
    for bad in ["AQI", "A*ID", "AQ=="[..3].as_ref(), "=AAA"] {
        assert!(
            decode_base64(bad, "f", 100)
                .unwrap_err()
                .to_string()
                .starts_with("f: no base64"),
            "{bad}"
        );
    }
}

#[test]
fn points_that_are_nowhere_are_left_out_by_their_coordinates() {
    let nan = f32::NAN;
    let rows = [
        [1.0, 2.0, 3.0, nan],
        [1.0, nan, 3.0, 4.0],
        [f32::INFINITY, 2.0, 3.0, 4.0],
        [5.0, 6.0, 7.0, 8.0],
    ];
    let bytes: Vec<u8> = rows
        .iter()
        .flatten()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let data = STANDARD.encode(bytes);
    let table = points(&json!({ "format": "raw", "data": data })).unwrap();
    assert_eq!(
        (table.len(), table.dropped, &table.columns[0][..]),
        (2, 2, &[1.0, 5.0][..])
    );
    // With names, the coordinates are those of the names: here the first column is none of them.
    let table = points(&json!({ "data": data, "fields": ["intensity", "x", "y", "z"] })).unwrap();
    assert_eq!((table.len(), table.dropped), (2, 2));
    assert_eq!(table.columns[0], [f32::INFINITY, 5.0]);
}

#[test]
fn columns_are_chosen_by_name_and_filled_where_they_are_missing() {
    let table = points(&json!([[1, 2, 3], [4, 5, 6]])).unwrap();
    assert_eq!(table.fields, ["x", "y", "z"]);
    let columns = table.select(&["z", "intensity"], Some(0.5), "points").unwrap();
    assert_eq!(columns, [vec![3.0, 6.0], vec![0.5, 0.5]]);
    let error = table.select(&["ring"], None, "points").unwrap_err().to_string();
    assert_eq!(error, "points: the columns are x, y, z; expected a column `ring`");
    assert_eq!(
        points(&json!([[1, 2, 3, 4, 5, 6]])).unwrap().fields[4..],
        ["c4", "c5"]
    );
    assert_eq!(points(&json!([])).unwrap().len(), 0);
}

#[test]
fn files_of_points_give_the_cloud_that_was_written() {
    let cloud = PointCloud {
        x: vec![1.0, -2.0],
        y: vec![0.5, 4.0],
        z: vec![-1.5, 0.0],
        intensity: vec![7.0, 9.0],
        ..PointCloud::default()
    };
    for (format, name) in [
        (CloudFormat::Pcd, "pcd"),
        (CloudFormat::Npy, "npy"),
        (CloudFormat::Npz, "npz"),
        (CloudFormat::Bin, "bin"),
    ] {
        let data = STANDARD.encode(encode(&cloud, format, CloudWriteOptions::default()).unwrap());
        for body in [json!({ "format": name, "data": data }), json!({ "data": data })] {
            let table = points(&body).unwrap();
            let columns = table
                .select(&["x", "y", "z", "intensity"], None, "points")
                .unwrap();
            assert_eq!(
                columns,
                [&cloud.x[..], &cloud.y, &cloud.z, &cloud.intensity],
                "{name}"
            );
        }
    }
}

#[test]
fn a_pcd_file_gives_the_columns_that_are_known_and_no_others() {
    let file = "VERSION .7\nFIELDS x y z reflectivity channel return_type t azimuth\nSIZE 4 4 4 1 2 1 4 4\n\
        TYPE F F F U U U U F\nCOUNT 1 1 1 1 1 1 1 1\nWIDTH 2\nHEIGHT 1\nPOINTS 2\nDATA ascii\n\
        1 2 3 40 5 6 0 0.5\n7 8 9 10 11 12 500000000 0.25\n";
    let table = points(&json!({ "format": "pcd", "data": STANDARD.encode(file) })).unwrap();
    assert_eq!(
        table.fields,
        ["x", "y", "z", "intensity", "ring", "t", "return_type"]
    );
    let rows: [[f32; 2]; 7] = [
        [1.0, 7.0],
        [2.0, 8.0],
        [3.0, 9.0],
        [40.0, 10.0],
        [5.0, 11.0],
        [0.0, 0.5],
        [6.0, 12.0],
    ];
    assert_eq!(table.columns, rows);
}

#[test]
fn no_more_points_are_taken_than_may_be() {
    let limits = PointLimits {
        max_points: 2,
        ..PointLimits::default()
    };
    let three = json!([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]);
    let raw = json!({ "data": STANDARD.encode([0; 48]) });
    for body in [three, raw] {
        let error = form::<PointsForm>(&body)
            .decode("points", &limits)
            .unwrap_err()
            .to_string();
        assert!(error.contains("3 points; at most 2 are taken"), "{error}");
    }
}

#[test]
fn a_packed_cloud_is_not_unpacked_beyond_the_limit_of_its_bytes() {
    let zeros = vec![0.0; 10_000];
    let cloud = PointCloud {
        x: zeros.clone(),
        y: zeros.clone(),
        z: zeros,
        ..PointCloud::default()
    };
    let options = CloudWriteOptions {
        pcd: PcdEncoding::BinaryCompressed,
        ..CloudWriteOptions::default()
    };
    let packed = encode(&cloud, CloudFormat::Pcd, options).unwrap();
    assert!(packed.len() < 4_000, "{}", packed.len());
    let body = json!({ "format": "pcd", "data": STANDARD.encode(packed) });
    let decode = |max_bytes| {
        let limits = PointLimits {
            max_bytes,
            ..PointLimits::default()
        };
        form::<PointsForm>(&body).decode("points", &limits)
    };
    assert_eq!(decode(120_000).unwrap().len(), 10_000);
    let error = decode(119_999).unwrap_err().to_string();
    assert_eq!(
        error,
        "points.data: the points take 120000 bytes unpacked, and at most 119999 are unpacked"
    );
}

proptest! {
    #[test]
    fn rows_raw_bytes_and_archives_of_points_say_the_same(
        rows in prop::collection::vec(prop::array::uniform4(-1e6_f32..1e6), 0..20),
        big in any::<bool>(),
    ) {
        let list = points(&json!(rows)).unwrap();
        let order = |value: &f32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let bytes: Vec<u8> = rows.iter().flatten().flat_map(order).collect();
        let order = if big { "big" } else { "little" };
        let raw = points(&json!({ "format": "raw", "data": STANDARD.encode(bytes), "byte_order": order })).unwrap();
        prop_assert_eq!(&raw, &list);
        let values = Values::F32(rows.iter().flatten().copied().collect());
        let array = Array::new(Shape::new(&[rows.len(), 4]).unwrap(), ElementType::F32, values).unwrap();
        let encoded = encode_array(&array, ArrayEncoding::NpzCompressed, "points").unwrap();
        let npz = points(&json!({ "format": "npz", "data": encoded["data"] })).unwrap();
        prop_assert_eq!(&npz, &list);
    }

    /// Nothing that can be parsed makes a decoder panic.
    #[test]
    fn bytes_of_any_kind_are_points_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..5_usize) {
        let starts: [&[u8]; 5] = [b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"VERSION .7\n", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"];
        let data = STANDARD.encode([starts[kind], &bytes].concat());
        let _ = points(&json!({ "data": data }));
        let _ = decode_pixels(&form::<ImageForm>(&json!({ "data": data })), "image", ImageLimits::default());
        let jpeg = STANDARD.encode([b"\xff\xd8\xff\xc0", &bytes[..]].concat());
        let _ = decode_pixels(&form::<ImageForm>(&json!({ "data": jpeg })), "image", ImageLimits::default());
        let _ = decode_array(&form::<ArrayForm>(&json!({ "data": data })), "array", 1 << 20);
    }
}
