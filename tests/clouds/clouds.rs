//! Point-cloud messages to columns: against numpy on random layouts, and one test for each public report of a bug in
//! this place.

use crate::support;
use proptest::prelude::*;
use sensorium::io::cloud::{CloudError, CloudSummary, MAX_TIME_NS, ReadOptions, encode_cloud, read_cloud};
use sensorium::io::cloud_file;
use sensorium::io::messages::{HeaderMsg, PointCloud2Msg, PointFieldMsg, field_type};
use sensorium::lidar::PointCloud;
use serde_json::Value;

use field_type::{FLOAT32, FLOAT64, UINT8, UINT16, UINT32};

const STAMP_NS: i64 = 1_700_000_000_000_000_000;
const KEEP: ReadOptions = ReadOptions {
    intensity: true,
    ring: true,
    time: true,
    return_type: true,
    keep_non_finite: true,
};

fn hex(text: &str) -> Vec<u8> {
    let byte = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn read(message: &PointCloud2Msg<'_>) -> Result<(PointCloud, CloudSummary), CloudError> {
    let mut cloud = PointCloud::default();
    let summary = read_cloud(message, ReadOptions::default(), &mut cloud)?;
    Ok((cloud, summary))
}

fn refusal(message: &PointCloud2Msg<'_>) -> CloudError {
    let mut cloud = some_points();
    let error = read_cloud(message, ReadOptions::default(), &mut cloud).unwrap_err();
    assert_eq!(
        cloud,
        PointCloud::default(),
        "nothing of the refused cloud or of the one before may stay"
    );
    error
}

fn some_points() -> PointCloud {
    PointCloud {
        x: vec![1.5, 2.0, -3.0],
        y: vec![0.25, -8.0, 4.0],
        z: vec![-1.0, 0.5, 2.0],
        intensity: vec![7.0, 255.0, 0.0],
        ring: vec![3, 0, 127],
        time_ns: vec![0, 100, 99_000_000],
        return_type: vec![1, 2, 3],
    }
}

fn fields<'a>(list: &[(&'a str, u32, u8)]) -> Vec<PointFieldMsg<'a>> {
    let field = |&(name, offset, datatype): &(&'a str, u32, u8)| PointFieldMsg {
        name,
        offset,
        datatype,
        count: 1,
    };
    list.iter().map(field).collect()
}

/// A message of one row.
fn message<'a>(list: &[(&'a str, u32, u8)], point_step: u32, data: &'a [u8]) -> PointCloud2Msg<'a> {
    PointCloud2Msg {
        header: HeaderMsg::new(STAMP_NS, "lidar").unwrap(),
        height: 1,
        width: data.len() as u32 / point_step,
        fields: fields(list).into_iter().collect(),
        is_bigendian: false,
        point_step,
        row_step: data.len() as u32,
        data,
        is_dense: true,
    }
}

/// The same fields over other data.
fn relaid<'of: 'data, 'data>(
    of: &PointCloud2Msg<'of>,
    data: &'data [u8],
    point_step: u32,
    row_step: u32,
) -> PointCloud2Msg<'data> {
    PointCloud2Msg {
        header: of.header,
        height: of.height,
        width: of.width,
        fields: of.fields.iter().copied().collect(),
        is_bigendian: of.is_bigendian,
        point_step,
        row_step,
        data,
        is_dense: of.is_dense,
    }
}

const XYZ: [(&str, u32, u8); 3] = [("x", 0, FLOAT32), ("y", 4, FLOAT32), ("z", 8, FLOAT32)];
const XYZI: [(&str, u32, u8); 4] = [XYZ[0], XYZ[1], XYZ[2], ("intensity", 12, FLOAT32)];

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Autoware's layout as its own writer lays it out.
fn xyzircaedt() -> Vec<u8> {
    encode_cloud(&some_points(), HeaderMsg::new(STAMP_NS, "lidar").unwrap()).unwrap()
}

#[test]
fn random_layouts_are_read_as_numpy_reads_them() {
    let Some(mut oracle) = support::oracle("clouds.py") else {
        return;
    };
    let output = support::run(oracle.args(["make", "300", "5"]));
    let text = String::from_utf8(output).unwrap();
    let (mut cloud, mut kept) = (PointCloud::default(), PointCloud::default());
    let (mut points, mut with_time) = (0, 0);
    for line in text.lines() {
        let expected: Value = serde_json::from_str(line).unwrap();
        let bytes = hex(expected["cdr"].as_str().unwrap());
        let message = PointCloud2Msg::decode(&bytes).unwrap();
        let summary = read_cloud(&message, KEEP, &mut cloud).unwrap_or_else(|e| panic!("{e}: {message:?}"));
        compare(&cloud, &expected);
        points += summary.points;
        with_time += usize::from(!cloud.time_ns.is_empty());
        let dropping = read_cloud(&message, ReadOptions::default(), &mut kept).unwrap();
        assert_eq!(dropping.non_finite, summary.non_finite);
        assert_eq!(kept, finite_only(&cloud));
        assert_eq!(cloud.len() - kept.len(), summary.non_finite);
    }
    assert!(
        points > 100_000 && with_time > 50,
        "{points} points, {with_time} clouds with times"
    );
}

fn finite_only(cloud: &PointCloud) -> PointCloud {
    let keep: Vec<usize> = (0..cloud.len())
        .filter(|&i| [cloud.x[i], cloud.y[i], cloud.z[i]].iter().all(|v| v.is_finite()))
        .collect();
    fn of<T: Copy>(column: &[T], keep: &[usize]) -> Vec<T> {
        keep.iter().filter_map(|&i| column.get(i).copied()).collect()
    }
    PointCloud {
        x: of(&cloud.x, &keep),
        y: of(&cloud.y, &keep),
        z: of(&cloud.z, &keep),
        intensity: of(&cloud.intensity, &keep),
        ring: of(&cloud.ring, &keep),
        time_ns: of(&cloud.time_ns, &keep),
        return_type: of(&cloud.return_type, &keep),
    }
}

fn compare(cloud: &PointCloud, expected: &Value) {
    let columns = [
        ("x", &cloud.x),
        ("y", &cloud.y),
        ("z", &cloud.z),
        ("intensity", &cloud.intensity),
    ];
    for (name, column) in columns {
        let theirs = expected[name]
            .as_str()
            .map_or_else(Vec::new, |text| support::floats(&hex(text)));
        assert_eq!(column.len(), theirs.len(), "{name}");
        for (i, (a, b)) in column.iter().zip(&theirs).enumerate() {
            assert!(
                a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
                "{name} {i}: {a} {b}"
            );
        }
    }
    let whole = |name: &str| -> Vec<i64> {
        let list = expected[name].as_array().map_or(&[][..], Vec::as_slice);
        list.iter().map(|v| v.as_i64().unwrap()).collect()
    };
    assert_eq!(
        cloud.ring.iter().map(|&v| i64::from(v)).collect::<Vec<_>>(),
        whole("ring")
    );
    let types: Vec<i64> = cloud.return_type.iter().map(|&v| v.into()).collect();
    assert_eq!(types, whole("return_type"));
    let times = whole("time");
    assert_eq!(cloud.time_ns.len(), times.len());
    for (a, b) in cloud.time_ns.iter().zip(times) {
        // numpy's side is exact; one rounding of a float64 product lies between.
        assert!((a - b).abs() <= 1, "{a} {b}");
    }
}

#[test]
fn ouster_and_velodyne_layouts_are_read_by_their_names() {
    let ouster = [
        ("x", 0, FLOAT32),
        ("y", 4, FLOAT32),
        ("z", 8, FLOAT32),
        ("intensity", 16, FLOAT32),
        ("t", 20, UINT32),
        ("reflectivity", 24, UINT16),
        ("ring", 26, UINT16),
        ("ambient", 28, UINT16),
        ("range", 32, UINT32),
    ];
    let mut data = vec![0; 2 * 48];
    for (i, point) in data.chunks_exact_mut(48).enumerate() {
        point[..12].copy_from_slice(&floats(&[1.0, 2.0, 3.0]));
        point[16..20].copy_from_slice(&(10.0 + i as f32).to_le_bytes());
        point[20..24].copy_from_slice(&(i as u32 * 97_000).to_le_bytes());
        point[24..28].copy_from_slice(&[99, 0, i as u8 + 5, 0]);
    }
    let (cloud, _) = read(&message(&ouster, 48, &data)).unwrap();
    assert_eq!(cloud.intensity, [10.0, 11.0]);
    assert_eq!(
        (&cloud.ring[..], &cloud.time_ns[..]),
        (&[5, 6][..], &[0, 97_000][..])
    );

    let velodyne = [
        XYZI[0],
        XYZI[1],
        XYZI[2],
        XYZI[3],
        ("ring", 16, UINT16),
        ("time", 18, FLOAT32),
    ];
    let mut data = vec![0; 22];
    data[..16].copy_from_slice(&floats(&[1.0, 2.0, 3.0, 4.0]));
    data[16] = 31;
    data[18..].copy_from_slice(&(-0.05f32).to_le_bytes());
    let (cloud, _) = read(&message(&velodyne, 22, &data)).unwrap();
    assert_eq!((cloud.ring[0], cloud.time_ns[0]), (31, -50_000_001));
}

#[test]
fn what_cannot_be_read_in_one_way_is_refused_by_name() {
    let data = [0; 64];
    let with = |more: &[(&'static str, u32, u8)]| {
        let list: Vec<_> = XYZ.iter().chain(more).copied().collect();
        refusal(&message(&list, 32, &data)).to_string()
    };
    let texts = [
        with(&[("ring", 12, UINT16), ("channel", 14, UINT16)]),
        with(&[("t", 12, UINT32), ("time", 16, FLOAT32)]),
        with(&[("x", 12, FLOAT32)]),
        with(&[("time", 12, UINT8)]),
        with(&[("intensity", 12, 9)]),
        with(&[("intensity", 29, FLOAT32)]),
        with(&[("intensity", u32::MAX, FLOAT32)]),
        refusal(&message(&[XYZ[0], XYZ[2]], 32, &data)).to_string(),
        refusal(&message(&[("x", 0, UINT16), XYZ[1], XYZ[2]], 32, &data)).to_string(),
    ];
    assert_eq!(
        texts,
        [
            "fields ring and channel could both be the cloud's ring; rename one, or leave out the ring",
            "fields t and time could both be the cloud's time; rename one, or leave out the time",
            "fields x and x could both be the cloud's x; rename one, or leave out the x",
            "field time is uint8; uint32 or int32 (nanoseconds), uint64 or int64 (nanoseconds), float32 or float64 \
         (seconds) is expected",
            "field intensity is of unknown type 9; a number is expected",
            "field intensity ends at byte 33 of a point, but points are 32 bytes apart",
            "field intensity ends at byte 4294967299 of a point, but points are 32 bytes apart",
            "the cloud has no field y; its fields are: x, z",
            "field x is uint16; float32 or float64 is expected",
        ]
    );
    let mut list = message(&XYZI, 16, &data);
    list.fields[3].count = 4;
    assert_eq!(
        refusal(&list).to_string(),
        "field intensity has 4 elements a point; 1 is expected"
    );
    let mut cloud = PointCloud::default();
    let without = ReadOptions {
        intensity: false,
        ..ReadOptions::default()
    };
    assert_eq!(read_cloud(&list, without, &mut cloud).unwrap().points, 4);
    assert!(cloud.intensity.is_empty() && cloud.len() == 4);
    let rings = floats(&[1.0, 2.0, 3.0, 4.5]);
    let ring = [XYZ[0], XYZ[1], XYZ[2], ("ring", 12, FLOAT32)];
    assert_eq!(
        refusal(&message(&ring, 16, &rings)).to_string(),
        "ring of point 0 is 4.5; a whole number from 0 to 65535 is expected"
    );
}

#[test]
fn no_memory_is_asked_for_once_the_columns_have_grown() {
    let bytes = xyzircaedt();
    let message = PointCloud2Msg::decode(&bytes).unwrap();
    let mut cloud = PointCloud::default();
    read_cloud(&message, ReadOptions::default(), &mut cloud).unwrap();
    let pointers = |cloud: &PointCloud| {
        [
            cloud.x.as_ptr() as usize,
            cloud.time_ns.as_ptr() as usize,
            cloud.ring.as_ptr() as usize,
        ]
    };
    let before = pointers(&cloud);
    for _ in 0..3 {
        read_cloud(&message, ReadOptions::default(), &mut cloud).unwrap();
        assert_eq!(pointers(&cloud), before);
    }
    assert_eq!(cloud, some_points());
}

#[test]
fn a_written_cloud_is_autowares_layout_and_passes_the_strict_check() {
    let bytes = xyzircaedt();
    let message = PointCloud2Msg::decode(&bytes).unwrap();
    let names: Vec<&str> = message.fields.iter().map(|f| f.name).collect();
    assert_eq!(
        names,
        [
            "x",
            "y",
            "z",
            "intensity",
            "return_type",
            "channel",
            "azimuth",
            "elevation",
            "distance",
            "time_stamp"
        ]
    );
    assert_eq!(
        (
            message.point_step,
            message.row_step,
            message.width,
            message.height
        ),
        (32, 96, 3, 1)
    );
    assert!(message.is_dense && !message.is_bigendian);
    let point = &message.data[32..64];
    let float = |at: usize| f32::from_le_bytes(point[at..at + 4].try_into().unwrap());
    assert_eq!((point[12], point[13]), (255, 2));
    // Of (2, -8, 0.5), in float64: clockwise from x, so positive to the right.
    let expected = [
        (16, 8f64.atan2(2.0)),
        (20, 0.5f64.atan2(68f64.sqrt())),
        (24, 68.25f64.sqrt()),
    ];
    for (at, value) in expected {
        assert!(
            (f64::from(float(at)) - value).abs() < 1e-6,
            "{at}: {} {value}",
            float(at)
        );
    }
    let mut odd = some_points();
    odd.intensity[1] = 256.0;
    let header = message.header;
    let text = encode_cloud(&odd, header).unwrap_err().to_string();
    assert_eq!(text, "intensity of point 1 is 256; 0 to 255 is expected");
    let mut late = some_points();
    late.time_ns[2] = MAX_TIME_NS + 1;
    assert!(matches!(
        encode_cloud(&late, header),
        Err(CloudError::Value { point: 2, .. })
    ));
    let mut uneven = some_points();
    uneven.ring.pop();
    assert_eq!(
        encode_cloud(&uneven, header).unwrap_err().to_string(),
        "the cloud has 3 points, but 2 values of ring"
    );
}

/// autoware_universe PR 13313 (and 13311, 13314, 13315, 13316): points read 16 bytes apart, whatever `point_step` says.
#[test]
fn points_wider_than_their_first_fields_are_read_by_point_step() {
    let bytes = xyzircaedt();
    let wide = PointCloud2Msg::decode(&bytes).unwrap();
    let narrow_data: Vec<u8> = wide
        .data
        .chunks(32)
        .flat_map(|point| &point[..16])
        .copied()
        .collect();
    let mut narrow = relaid(&wide, &narrow_data, 16, 48);
    narrow.fields.truncate(6);
    let (narrow, _) = read(&narrow).unwrap();
    let (wide, _) = read(&wide).unwrap();
    assert_eq!(
        (narrow.x, narrow.intensity, narrow.ring),
        (wide.x, wide.intensity, wide.ring)
    );
    assert_eq!(wide.time_ns, some_points().time_ns);
    assert!(narrow.time_ns.is_empty());
}

/// The same reports with a sweep of Nebula's own, and with points of 20 bytes.
#[test]
fn a_recorded_sweep_says_the_same_in_points_of_16_20_and_32_bytes() {
    let Some(path) = support::data("bags/nebula_vlp16/1673400472138016708.pcd") else {
        return;
    };
    let sweep = cloud_file::read(&path, &cloud_file::CloudFileOptions::default())
        .unwrap()
        .cloud;
    let bytes = encode_cloud(&sweep, HeaderMsg::new(STAMP_NS, "lidar").unwrap()).unwrap();
    let wide = PointCloud2Msg::decode(&bytes).unwrap();
    let cut = |ranges: &[(usize, usize)]| -> Vec<u8> {
        let of = |point: &[u8]| -> Vec<u8> {
            ranges
                .iter()
                .flat_map(|&(from, to)| point[from..to].to_vec())
                .collect()
        };
        wide.data.chunks(32).flat_map(of).collect()
    };
    let (narrow_data, timed_data) = (cut(&[(0, 16)]), cut(&[(0, 16), (28, 32)]));
    let mut narrow = relaid(&wide, &narrow_data, 16, wide.width * 16);
    narrow.fields.truncate(6);
    let mut timed = relaid(&wide, &timed_data, 20, wide.width * 20);
    timed.fields.truncate(6);
    timed.fields.push(PointFieldMsg {
        offset: 16,
        ..wide.fields[9]
    });
    let (all, _) = read(&wide).unwrap();
    assert_eq!(
        (&all.x, &all.ring, &all.time_ns),
        (&sweep.x, &sweep.ring, &sweep.time_ns)
    );
    assert_eq!(all.len(), 14_831);
    assert_eq!(read(&timed).unwrap().0, all);
    let untimed = PointCloud {
        time_ns: vec![],
        ..all
    };
    assert_eq!(read(&narrow).unwrap().0, untimed);
}

/// common_interfaces issue 197: `point_step` ignored, so that padding after the last field shears the cloud.
#[test]
fn padding_after_the_last_field_changes_nothing() {
    let Some(path) = support::data("lidar/cloudini/dds_message.bin") else {
        return;
    };
    let bytes = std::fs::read(path).unwrap();
    let plain = PointCloud2Msg::decode(&bytes).unwrap();
    let padded_data: Vec<u8> = plain
        .data
        .chunks(26)
        .flat_map(|p| p.iter().chain(&[0xee; 6]))
        .copied()
        .collect();
    let padded = relaid(&plain, &padded_data, 32, 64_000 * 32);
    assert_eq!(read(&padded).unwrap(), read(&plain).unwrap());
}

/// cloudini's sample: points of 26 bytes with a float64 at byte 18, and three bytes of padding behind the message.
#[test]
fn unaligned_times_of_day_and_padding_behind_the_message_are_read() {
    let Some(path) = support::data("lidar/cloudini/dds_message.bin") else {
        return;
    };
    let bytes = std::fs::read(&path).unwrap();
    let message = PointCloud2Msg::decode(&bytes).unwrap();
    assert_eq!(&bytes[bytes.len() - 3..], [0; 3]);
    let (cloud, summary) = read(&message).unwrap();
    assert_eq!(
        (cloud.len(), summary.non_finite, summary.implausible),
        (64_000, 0, 0)
    );
    assert_eq!(
        (cloud.ring.iter().min(), cloud.ring.iter().max()),
        (Some(&0), Some(&31))
    );
    let (first, last) = (
        cloud.time_ns.iter().min().unwrap(),
        cloud.time_ns.iter().max().unwrap(),
    );
    // From 1714506077.250968 to 1714506077.300774 s, under a stamp of ...250967979 s.
    assert!(
        first.abs() < 300 && (last - 49_806_021).abs() < 300,
        "{first} {last}"
    );
    let Some(mut oracle) = support::oracle("clouds.py") else {
        return;
    };
    let output = support::run(oracle.arg("columns").arg(&path));
    compare(&cloud, &serde_json::from_slice(&output).unwrap());
}

/// realsense-ros issue 1664, zed-ros-wrapper PR 258: an organised cloud whose `row_step` is stale or of the whole cloud.
#[test]
fn an_organised_cloud_with_a_wrong_row_step_is_refused_with_the_numbers() {
    let data = floats(&(0..8 * 4 * 4).map(|i| i as f32).collect::<Vec<_>>());
    let mut organised = message(&XYZI, 16, &data);
    (organised.height, organised.width, organised.row_step) = (4, 8, 128);
    assert_eq!(read(&organised).unwrap().0.len(), 32);
    let of = |row_step| {
        let mut wrong = organised.clone();
        wrong.row_step = row_step;
        refusal(&wrong).to_string()
    };
    assert_eq!(
        of(512),
        "the cloud has 512 bytes of data, but 4 rows of 512 bytes are 2048 (width 8, point_step 16)"
    );
    assert_eq!(of(0), "row_step 0 is less than a row of 8 points, 16 bytes each");
    assert_eq!(
        of(127),
        "row_step 127 is less than a row of 8 points, 16 bytes each"
    );
    assert!(of(129).contains("4 rows of 129 bytes are 516"));
    assert!(of(u32::MAX).contains("17179869180"));
    // The same with Autoware's organised cloud of 64 rows.
    if let Some(path) = support::data("lidar/autoware_ground_seg/test.pcd") {
        let file = cloud_file::read(&path, &cloud_file::CloudFileOptions::default()).unwrap();
        let columns = file.cloud.x.iter().zip(&file.cloud.y).zip(&file.cloud.z);
        let data = floats(&columns.flat_map(|((&x, &y), &z)| [x, y, z]).collect::<Vec<_>>());
        let mut rows = message(&XYZ, 12, &data);
        (rows.width, rows.height, rows.row_step) = (1024, 64, 1024 * 12);
        assert_eq!(read(&rows).unwrap().0.x, file.cloud.x);
        for wrong in [0, 1024 * 12 - 1, 1024 * 12 + 1, 1024 * 12 * 64] {
            rows.row_step = wrong;
            assert!(refusal(&rows).to_string().contains(&wrong.to_string()));
        }
    }
    // Rows may be padded.
    let padded_data: Vec<u8> = data
        .chunks(128)
        .flat_map(|row| row.iter().chain(&[9; 7]))
        .copied()
        .collect();
    let padded = relaid(&organised, &padded_data, 16, 135);
    assert_eq!(read(&padded).unwrap(), read(&organised).unwrap());
}

/// autoware_universe PR 13418, PRs 11853 and 11858: one row whose `row_step` is 0.
#[test]
fn a_row_step_of_zero_is_read_and_told_of_for_one_row() {
    let data = floats(&[1.0; 12]);
    let mut cloud = message(&XYZ, 12, &data);
    assert!(!read(&cloud).unwrap().1.row_step_missing);
    cloud.row_step = 0;
    let (read, summary) = read(&cloud).unwrap();
    assert_eq!((read.len(), summary.row_step_missing), (4, true));
}

/// autoware_universe issue 705: 513168 bytes for 167 x 64 points of 48 bytes.
#[test]
fn data_that_are_longer_than_the_cloud_are_refused_with_the_numbers() {
    let data = vec![0; 513_168];
    let mut filtered = message(&XYZ, 48, &data);
    (filtered.width, filtered.height, filtered.row_step) = (167, 64, 167 * 48);
    let text = refusal(&filtered).to_string();
    assert_eq!(
        text,
        "the cloud has 513168 bytes of data, but 64 rows of 8016 bytes are 513024 (width 167, point_step 48)"
    );
    (filtered.height, filtered.row_step) = (1, 8016);
    assert!(matches!(refusal(&filtered), CloudError::DataSize { .. }));
}

fn swapped(data: &[u8]) -> Vec<u8> {
    data.chunks(4)
        .flat_map(|word| word.iter().rev())
        .copied()
        .collect()
}

/// ros2_numpy PR 4, UnitySensors PR 212: true big-endian clouds, and little-endian ones that claim to be.
#[test]
fn the_byte_order_flag_is_obeyed_and_a_lie_shows_in_the_counts() {
    let values: Vec<f32> = (0..400).map(|i| (i * 37 % 211) as f32 * 0.73 - 70.0).collect();
    let little_data = floats(&values);
    let little = message(&XYZI, 16, &little_data);
    let big_data = swapped(&little_data);
    let mut big = message(&XYZI, 16, &big_data);
    big.is_bigendian = true;
    let expected = read(&little).unwrap();
    assert_eq!(read(&big).unwrap(), expected);
    assert_eq!(expected.1.implausible, 0);
    let mut lying = little.clone();
    lying.is_bigendian = true;
    let (_, summary) = read(&lying).unwrap();
    assert!(
        summary.implausible + summary.non_finite > 80,
        "{summary:?} of 100 points"
    );
}

/// autoware_universe issue 9020, RobotecGPULidar 313 and 323: bags with the layout of before.
#[test]
fn old_and_new_layouts_of_autoware_say_the_same() {
    let points = some_points();
    let mut old_data = Vec::new();
    let mut xyzi_data = Vec::new();
    for i in 0..3 {
        let xyzi = floats(&[points.x[i], points.y[i], points.z[i], points.intensity[i]]);
        xyzi_data.extend_from_slice(&xyzi);
        old_data.extend_from_slice(&xyzi);
        old_data.extend_from_slice(&points.ring[i].to_le_bytes());
        old_data.extend_from_slice(&[0; 2]);
        old_data.extend_from_slice(&floats(&[0.5, 9.0]));
        old_data.extend_from_slice(&[points.return_type[i], 0, 0, 0]);
        let seconds = STAMP_NS as f64 / 1e9 + points.time_ns[i] as f64 / 1e9;
        old_data.extend_from_slice(&seconds.to_le_bytes());
    }
    let xyziradrt = [
        XYZI[0],
        XYZI[1],
        XYZI[2],
        XYZI[3],
        ("ring", 16, UINT16),
        ("azimuth", 20, FLOAT32),
        ("distance", 24, FLOAT32),
        ("return_type", 28, UINT8),
        ("time_stamp", 32, FLOAT64),
    ];
    let (old, _) = read(&message(&xyziradrt, 40, &old_data)).unwrap();
    let bytes = xyzircaedt();
    let (new, _) = read(&PointCloud2Msg::decode(&bytes).unwrap()).unwrap();
    let (plain, _) = read(&message(&XYZI, 16, &xyzi_data)).unwrap();
    assert_eq!(new, points);
    assert!(
        old.time_ns
            .iter()
            .zip(&new.time_ns)
            .all(|(a, b)| (a - b).abs() < 300),
        "{:?}",
        old.time_ns
    );
    assert_eq!(
        PointCloud {
            time_ns: new.time_ns.clone(),
            ..old
        },
        new
    );
    assert_eq!(
        plain,
        PointCloud {
            ring: vec![],
            time_ns: vec![],
            return_type: vec![],
            ..new
        }
    );
}

/// autoware_universe issue 2306: the time has another name, or there is none.
#[test]
fn times_are_found_under_every_known_name_and_may_be_missing() {
    let mut data = floats(&[1.0, 2.0, 3.0]);
    data.extend_from_slice(&42_000u32.to_le_bytes());
    for name in ["t", "time", "timestamp", "time_stamp"] {
        let list = [XYZ[0], XYZ[1], XYZ[2], (name, 12, UINT32)];
        assert_eq!(read(&message(&list, 16, &data)).unwrap().0.time_ns, [42_000]);
    }
    let (cloud, _) = read(&message(&XYZ, 16, &data)).unwrap();
    assert!(cloud.time_ns.is_empty() && cloud.len() == 1);
}

/// autoware_universe PR 3123: NaN points pass, under either `is_dense`.
#[test]
fn points_that_are_nowhere_are_dropped_whatever_is_dense_says() {
    let data = floats(&[
        1.0,
        2.0,
        3.0,
        9.0,
        f32::NAN,
        2.0,
        3.0,
        8.0,
        4.0,
        f32::INFINITY,
        6.0,
        7.0,
        4.0,
        5.0,
        f32::NEG_INFINITY,
        6.0,
        4.0,
        5.0,
        6.0,
        5.0,
    ]);
    for is_dense in [true, false] {
        let mut cloud = message(&XYZI, 16, &data);
        cloud.is_dense = is_dense;
        let (read, summary) = read(&cloud).unwrap();
        assert_eq!(
            (&read.x[..], &read.intensity[..]),
            (&[1.0, 4.0][..], &[9.0, 5.0][..])
        );
        assert_eq!((summary.points, summary.non_finite), (5, 3));
    }
}

/// autoware_universe PR 373 and PR 11003, autoware_ai_perception issue 46: crashes on a cloud without points.
#[test]
fn an_empty_cloud_is_a_cloud_between_two_others() {
    let data = floats(&[1.0, 2.0, 3.0, 4.0]);
    let full = message(&XYZI, 16, &data);
    let mut cloud = PointCloud::default();
    let mut counts = Vec::new();
    let mut no_fields = full.clone();
    (no_fields.width, no_fields.row_step, no_fields.data) = (0, 0, &[]);
    let mut with_fields = no_fields.clone();
    no_fields.fields.clear();
    (no_fields.point_step, no_fields.height) = (0, 0);
    with_fields.height = 64;
    for message in [&full, &no_fields, &full, &with_fields, &full] {
        read_cloud(message, ReadOptions::default(), &mut cloud).unwrap();
        counts.push(cloud.len());
    }
    assert_eq!(counts, [1, 0, 1, 0, 1]);
    let mut lying = full.clone();
    lying.width = 0;
    assert!(matches!(refusal(&lying), CloudError::DataSize { .. }));
    let empty = encode_cloud(&PointCloud::default(), full.header).unwrap();
    assert_eq!(read(&PointCloud2Msg::decode(&empty).unwrap()).unwrap().0.len(), 0);
}

#[test]
fn points_without_bytes_are_refused_before_there_are_four_thousand_million_of_them() {
    let mut endless = message(&XYZ, 12, &[]);
    (
        endless.width,
        endless.height,
        endless.point_step,
        endless.row_step,
    ) = (u32::MAX, u32::MAX, 0, 0);
    assert!(matches!(refusal(&endless), CloudError::DataSize { .. }));
    endless.point_step = u32::MAX;
    endless.row_step = u32::MAX;
    assert!(matches!(refusal(&endless), CloudError::RowStep { .. }));
}

proptest! {
    #[test]
    fn mutated_clouds_are_read_or_refused_and_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        words in proptest::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 0..3),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut bytes = xyzircaedt();
        // The sizes and fields are in the first half.
        let half = bytes.len() - 100;
        for (at, value) in &changes {
            bytes[at.index(half)] = *value;
        }
        for (at, value) in &words {
            let at = at.index(half / 4) * 4;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        if let Ok(message) = PointCloud2Msg::decode(&bytes) {
            let mut cloud = PointCloud::default();
            match read_cloud(&message, KEEP, &mut cloud) {
                Ok(summary) => prop_assert!(cloud.len() == summary.points && summary.points <= bytes.len()),
                Err(_) => prop_assert_eq!(cloud, PointCloud::default()),
            }
        }
    }
}
