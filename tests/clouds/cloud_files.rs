//! Point-cloud files: PCD against pypcd4, NumPy arrays against numpy, and what damaged files do.

use crate::support;
use std::path::Path;

use proptest::prelude::*;
use sensorium::io::cloud::{CloudError, ReadOptions};
use sensorium::io::cloud_file::{
    CloudFile, CloudFileError, CloudFileOptions, CloudFormat, CloudWriteOptions, PcdEncoding, encode,
    left_out, parse, read, write,
};
use sensorium::lidar::PointCloud;

const ENCODINGS: [PcdEncoding; 3] = [
    PcdEncoding::Ascii,
    PcdEncoding::Binary,
    PcdEncoding::BinaryCompressed,
];

fn options(layout: Option<&str>) -> CloudFileOptions {
    CloudFileOptions {
        read: ReadOptions {
            keep_non_finite: true,
            ..ReadOptions::default()
        },
        layout: layout.map(|text| text.parse().unwrap()),
        max_unpacked_bytes: 256 << 20,
    }
}

fn open(path: &str) -> Option<CloudFile> {
    let path = support::data(path)?;
    Some(read(&path, &options(None)).unwrap())
}

/// What a refusal says, without the file's name in front.
fn told(error: &CloudFileError) -> String {
    match error {
        CloudFileError::In { source, .. } => told(source),
        error => error.to_string(),
    }
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    let (values, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty());
    values.iter().map(|&b| f64::from_le_bytes(b)).collect()
}

/// Columns of a file as pypcd4 reads them.
fn pypcd4(path: &Path, names: &[&str]) -> Option<Vec<Vec<f64>>> {
    let mut oracle = support::oracle("cloud_files.py")?;
    let values = doubles(&support::run(oracle.arg("pcd").arg(path).args(names)));
    let points = values.len() / names.len();
    Some(
        (0..names.len())
            .map(|i| values[i * points..(i + 1) * points].to_vec())
            .collect(),
    )
}

fn assert_column(ours: &[f32], theirs: &[f64], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (i, (&a, &b)) in ours.iter().zip(theirs).enumerate() {
        let same = (a.is_nan() && b.is_nan()) || a.to_bits() == (b as f32).to_bits();
        assert!(same, "{what} {i}: {a} {b}");
    }
}

/// Every PCD file of the data folder that is one: points, points that are nowhere, size.
const PCD_FILES: [(&str, usize, usize, [usize; 2]); 26] = [
    ("lidar/pcd_pypcd4/ascii.pcd", 213, 0, [213, 1]),
    ("lidar/pcd_pypcd4/ascii_organized.pcd", 8, 0, [4, 2]),
    ("lidar/pcd_pypcd4/ascii_with_empty_points.pcd", 0, 0, [0, 0]),
    ("lidar/pcd_pypcd4/ascii_with_underscore.pcd", 213, 0, [213, 1]),
    ("lidar/pcd_pypcd4/binary.pcd", 213, 0, [213, 1]),
    ("lidar/pcd_pypcd4/binary_compressed.pcd", 213, 0, [213, 1]),
    ("lidar/pcd_pypcd4/binary_compressed_organized.pcd", 8, 0, [4, 2]),
    ("lidar/pcd_small/nebula_ascii_xyz.pcd", 2, 0, [2, 1]),
    ("lidar/pcd_small/nebula_binary_xyz_pcl.pcd", 2, 0, [2, 1]),
    ("lidar/pcl_test/bun0.pcd", 397, 0, [397, 1]),
    ("lidar/pcl_test/car6.pcd", 10031, 0, [10031, 1]),
    ("lidar/pcl_test/colored_cloud.pcd", 1000, 0, [1, 1000]),
    ("lidar/pcl_test/lamppost.pcd", 1771, 0, [1771, 1]),
    ("lidar/pcl_test/milk.pcd", 13704, 0, [13704, 1]),
    ("lidar/pcl_test/milk_color.pcd", 13704, 0, [13704, 1]),
    ("lidar/pcl_test/noisy_slice_displaced.pcd", 3782, 0, [3782, 1]),
    ("lidar/pcl_test/office1_keypoints.pcd", 1318, 0, [1318, 1]),
    ("lidar/pcl_test/pcl_logo.pcd", 12909, 0, [12909, 1]),
    ("lidar/pcl_test/sac_plane_test.pcd", 3283, 0, [3283, 1]),
    ("lidar/autoware_ground_seg/test.pcd", 65536, 0, [1024, 64]),
    ("lidar/cloudini/lidar.pcd", 115_385, 0, [115_385, 1]),
    ("bags/nebula_40p/1673400149711850138.pcd", 56762, 0, [56762, 1]),
    ("bags/nebula_qt64/1673401196087570870.pcd", 34158, 0, [34158, 1]),
    ("bags/nebula_vlp16/1673400472138016708.pcd", 14831, 0, [14831, 1]),
    ("bags/nebula_vlp32/1713492677464078412.pcd", 26216, 0, [26216, 1]),
    (
        "bags/nebula_vls128/1585897255376374245.pcd",
        208_680,
        0,
        [208_680, 1],
    ),
];

#[test]
fn pcd_files_of_pcl_autoware_and_others_are_read_as_pypcd4_reads_them() {
    let mut compared = 0;
    for (path, points, non_finite, size) in PCD_FILES {
        let Some(file) = open(path) else {
            return;
        };
        assert_eq!((file.cloud.len(), file.size), (points, size), "{path}");
        assert_eq!(
            (file.summary.non_finite, file.summary.implausible),
            (non_finite, 0),
            "{path}"
        );
        // pypcd4 does not read an empty cloud.
        if points == 0 {
            continue;
        }
        let with_intensity = !file.cloud.intensity.is_empty();
        let names = if with_intensity {
            &["x", "y", "z", "intensity"][..]
        } else {
            &["x", "y", "z"]
        };
        let Some(theirs) = pypcd4(&support::data(path).unwrap(), names) else {
            return;
        };
        assert_column(&file.cloud.x, &theirs[0], path);
        assert_column(&file.cloud.y, &theirs[1], path);
        assert_column(&file.cloud.z, &theirs[2], path);
        if with_intensity {
            assert_column(&file.cloud.intensity, &theirs[3], path);
        }
        compared += 1;
    }
    assert_eq!(compared, PCD_FILES.len() - 1);
}

#[test]
fn autowares_columns_are_read_from_a_pcd_file() {
    let path = "bags/nebula_vlp16/1673400472138016708.pcd";
    let Some(file) = open(path) else {
        return;
    };
    let cloud = &file.cloud;
    assert_eq!(
        (cloud.ring.len(), cloud.return_type.len(), cloud.time_ns.len()),
        (14831, 14831, 14831)
    );
    assert_eq!(cloud.time_ns[..3], [2384, 6914, 11444]);
    let Some(theirs) = pypcd4(
        &support::data(path).unwrap(),
        &["channel", "return_type", "time_stamp"],
    ) else {
        return;
    };
    let rings = cloud.ring.iter().map(|&ring| f64::from(ring));
    let returns = cloud.return_type.iter().map(|&kind| f64::from(kind));
    let times = cloud.time_ns.iter().map(|&time| time as f64);
    assert!(rings.eq(theirs[0].iter().copied()), "rings");
    assert!(returns.eq(theirs[1].iter().copied()), "kinds of return");
    assert!(times.eq(theirs[2].iter().copied()), "times");
}

fn some_points() -> PointCloud {
    let number = |i: usize| (i as f32 * 0.0731 - 20.0) * (1.0 + (i % 7) as f32);
    let points = 0..500;
    PointCloud {
        x: points.clone().map(number).collect(),
        y: points.clone().map(|i| number(i * 3 % 500)).collect(),
        z: points.clone().map(|i| number(i % 9) * 1e-3).collect(),
        intensity: points.clone().map(|i| (i % 256) as f32).collect(),
        ring: points.clone().map(|i| (i % 32) as u16).collect(),
        time_ns: points.clone().map(|i| i as i64 * 200_123).collect(),
        return_type: points.map(|i| (i % 3) as u8).collect(),
    }
}

#[test]
fn a_cloud_written_in_any_encoding_is_read_back_exactly_here_and_by_pypcd4() {
    let folder = tempfile::tempdir().unwrap();
    let mut cloud = some_points();
    (cloud.x[3], cloud.y[4]) = (f32::NAN, f32::INFINITY);
    let bare = PointCloud {
        x: vec![1.0],
        y: vec![2.0],
        z: vec![3.0],
        ..PointCloud::default()
    };
    for encoding in ENCODINGS {
        let pcd = CloudWriteOptions {
            pcd: encoding,
            ..CloudWriteOptions::default()
        };
        for (name, cloud) in [
            ("all", &cloud),
            ("bare", &bare),
            ("empty", &PointCloud::default()),
        ] {
            let path = folder.path().join(format!("{name}.pcd"));
            write(&path, cloud, pcd).unwrap();
            let back = read(&path, &options(None)).unwrap().cloud;
            let nan_aside = |cloud: &PointCloud| PointCloud {
                x: cloud
                    .x
                    .iter()
                    .map(|&x| if x.is_nan() { 0.0 } else { x })
                    .collect(),
                ..cloud.clone()
            };
            assert_eq!(nan_aside(&back), nan_aside(cloud), "{encoding:?} {name}");
            assert_eq!(
                back.x.iter().filter(|x| x.is_nan()).count(),
                usize::from(name == "all")
            );
        }
        let names = ["x", "y", "z", "intensity", "ring", "return_type", "t"];
        let Some(theirs) = pypcd4(&folder.path().join("all.pcd"), &names) else {
            continue;
        };
        assert_column(&cloud.x, &theirs[0], "x");
        assert_column(&cloud.y, &theirs[1], "y");
        assert_column(&cloud.intensity, &theirs[3], "intensity");
        let times: Vec<f64> = cloud.time_ns.iter().map(|&t| t as f64).collect();
        let rings: Vec<f64> = cloud.ring.iter().map(|&r| r.into()).collect();
        assert_eq!((&theirs[4], &theirs[6]), (&rings, &times));
    }
    let compressed = encode(
        &some_points(),
        CloudFormat::Pcd,
        CloudWriteOptions {
            pcd: PcdEncoding::BinaryCompressed,
            ..CloudWriteOptions::default()
        },
    );
    let plain = encode(&some_points(), CloudFormat::Pcd, CloudWriteOptions::default());
    assert!(compressed.unwrap().len() < plain.unwrap().len());
}

#[test]
fn sweeps_of_kitti_and_nuscenes_are_recognised_by_their_values() {
    let files = [
        ("lidar/kitti_full360/000009.bin", "f32:xyzi", 115_275),
        ("lidar/kitti_cudapp/000000.bin", "f32:xyzi", 20_285),
        ("lidar/kitti_cudapp/000001.bin", "f32:xyzi", 18_630),
        ("lidar/kitti_mmdet3d/000008.bin", "f32:xyzi", 17_238),
        (
            "lidar/nuscenes_n015/n015-2018-07-24-11-22-45+0800__LIDAR_TOP__1532402927647951.pcd.bin",
            "f32:xyzir",
            34_688,
        ),
        (
            "lidar/nuscenes_sweeps_tiny/n008-2018-09-18-12-07-26-0400__LIDAR_TOP__1537287083900561.pcd.bin",
            "f32:xyzir",
            400,
        ),
        (
            "lidar/nuscenes_sweeps_tiny/n015-2018-08-02-17-16-37+0800__LIDAR_TOP__1533201470898274.pcd.bin",
            "f32:xyzir",
            100,
        ),
        (
            "lidar/nuscenes_sweeps_tiny/n015-2018-08-02-17-16-37+0800__LIDAR_TOP__1533201470948018.pcd.bin",
            "f32:xyzir",
            100,
        ),
        (
            "lidar/nuscenes_10sweep/ff9eff4389a740848f9a56ad749a4ae8.bin",
            "f16:xyzil",
            271_156,
        ),
    ];
    for (path, layout, points) in files {
        let Some(file) = open(path) else {
            return;
        };
        assert_eq!((&*file.layout, file.cloud.len()), (layout, points), "{path}");
        assert_eq!((file.summary.non_finite, file.summary.implausible), (0, 0));
        if layout == "f16:xyzil" {
            // Lags of the sweeps: from 0 to 0.45 s before the stamp.
            let earliest = file.cloud.time_ns.iter().min().unwrap();
            assert_eq!(
                (*earliest, file.cloud.time_ns.iter().max()),
                (-450_195_313, Some(&0))
            );
        } else if layout == "f32:xyzir" {
            assert_eq!(file.cloud.ring.iter().max(), Some(&31));
        }
        let bytes = std::fs::read(support::data(path).unwrap()).unwrap();
        if layout.starts_with("f32") {
            let first = support::floats(&bytes[..12]);
            assert_eq!([file.cloud.x[0], file.cloud.y[0], file.cloud.z[0]], first[..]);
            assert!(matches!(file.format, CloudFormat::Bin));
        }
    }
    // Six columns are no layout that is found out, and one that can be named.
    let waymo = support::data("lidar/waymo_tiny/0000000.bin").unwrap();
    let error = told(&read(&waymo, &options(None)).unwrap_err());
    assert!(
        error.starts_with("19200 bytes could be no layout that is known; name the layout"),
        "{error}"
    );
    assert_eq!(read(&waymo, &options(Some("xyzi__"))).unwrap().cloud.len(), 800);
    let message = open("lidar/cloudini/dds_message.bin").unwrap();
    assert_eq!((message.cloud.len(), message.format), (64_000, CloudFormat::Cdr));
}

#[test]
fn a_table_that_fits_two_layouts_or_none_is_refused() {
    let of = |values: &[f32], layout| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        parse(&bytes, CloudFormat::Bin, &options(layout)).map(|file| file.layout)
    };
    // Twenty ones are five points of KITTI or four of nuScenes, with ring 1 or a lag of 1 s.
    let error = told(&of(&[1.0; 20], None).unwrap_err());
    assert!(
        error.starts_with("80 bytes could be f32:xyzi or f32:xyzir or f32:xyzil"),
        "{error}"
    );
    assert_eq!(of(&[1.0; 20], Some("xyzi")).unwrap(), "f32:xyzi");
    let error = told(&of(&[1.0; 21], Some("f32:xyzi")).unwrap_err());
    assert_eq!(
        error,
        "84 bytes are no whole number of points of layout f32:xyzi (16 bytes each)"
    );
    let error = told(&of(&[1.0, 2.0, 3.0, 0.5, 2.5], Some("xyzir")).unwrap_err());
    assert_eq!(
        error,
        "ring of point 0 is 2.5; a whole number from 0 to 65535 is expected"
    );
    for text in [
        "xyz:f32",
        "f8:xyz",
        "xy",
        "xyzz",
        "xyziq",
        "xyztl",
        "",
        &"_".repeat(70),
    ] {
        let parsed: Result<sensorium::io::cloud_file::TableLayout, _> = text.parse();
        assert!(matches!(parsed, Err(CloudFileError::LayoutText { .. })), "{text}");
    }
}

#[test]
fn arrays_of_numpy_are_read_in_every_type_and_order() {
    let Some(mut oracle) = support::oracle("cloud_files.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(oracle.arg("make-npy").arg(folder.path()));
    let reference = support::floats(&std::fs::read(folder.path().join("reference.f32")).unwrap());
    let open = |name: &str| read(&folder.path().join(name), &options(None));
    let names = [
        "little_f2",
        "little_f4",
        "little_f8",
        "big_f2",
        "big_f4",
        "big_f8",
        "fortran_f4",
        "organised_f4",
        "version2",
    ];
    for name in names {
        let file = open(&format!("{name}.npy")).unwrap();
        let cloud = &file.cloud;
        let rows: Vec<f32> = (0..cloud.len())
            .flat_map(|i| [cloud.x[i], cloud.y[i], cloud.z[i], cloud.intensity[i]])
            .collect();
        assert_eq!(rows, reference, "{name}");
        assert_eq!(file.size, if name == "organised_f4" { [20, 5] } else { [100, 1] });
    }
    let refused = |name: &str| told(&open(name).unwrap_err());
    assert_eq!(
        refused("whole.npy"),
        "not a NumPy array of points: its type is int32; float16, float32 or float64 is expected"
    );
    assert_eq!(
        refused("flat.npy"),
        "not a NumPy array of points: its shape is [12]; [points, columns] is expected"
    );
    assert!(refused("fortran_organised.npy").contains("save it in C order"));
    assert!(refused("narrow.npy").contains("no layout that is known"));

    let range_image = "lidar/kitti_range_images/2011_09_26_0001_0000000010.npy";
    if let Some(path) = support::data(range_image) {
        let file = read(&path, &options(Some("xyzi__"))).unwrap();
        assert_eq!((file.cloud.len(), file.size), (64 * 512, [512, 64]));
        assert!(told(&read(&path, &options(Some("xyzi"))).unwrap_err()).contains("6 columns of float32"));
    }
}

#[test]
fn archives_of_numpy_are_read_by_the_names_of_their_arrays() {
    let Some(mut oracle) = support::oracle("cloud_files.py") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    support::run(oracle.arg("make-npz").arg(folder.path()));
    let reference = doubles(&std::fs::read(folder.path().join("reference.f64")).unwrap());
    let open = |name: &str| read(&folder.path().join(name), &options(None));
    for name in ["stored.npz", "packed.npz", "big.npz"] {
        let file = open(name).unwrap();
        let cloud = &file.cloud;
        let wide = |column: &[f32]| column.iter().copied().map(f64::from).collect::<Vec<_>>();
        let mut columns = [&cloud.x, &cloud.y, &cloud.z, &cloud.intensity]
            .map(|c| wide(c))
            .concat();
        columns.extend(cloud.ring.iter().copied().map(f64::from));
        columns.extend(cloud.time_ns.iter().map(|&ns| ns as f64));
        assert_eq!(columns, reference, "{name}");
        assert_eq!((file.size, file.format), ([1000, 1], CloudFormat::Npz));
    }
    let single = open("single.npz").unwrap();
    assert_eq!((single.cloud.len(), single.format), (1000, CloudFormat::Npz));
    assert_eq!(f64::from(single.cloud.y[1]), reference[1001]);
    let refused = |name: &str| told(&open(name).unwrap_err());
    for (name, reason) in [
        ("short.npz", "array ring has 999 values, and intensity has 1000"),
        (
            "flat.npz",
            "array z has shape [1000, 1]; one dimension is expected",
        ),
        (
            "words.npz",
            "array x: not a NumPy array of points: its type is '<U1'",
        ),
        (
            "bomb.npz",
            "array x: the arrays unpack to more than 268435456 bytes",
        ),
    ] {
        let text = refused(name);
        assert!(
            text.starts_with(&format!("not a NumPy archive of points: {reason}")),
            "{name}: {text}"
        );
    }
    assert_eq!(
        refused("no_y.npz"),
        "the cloud has no field y; its fields are: x, z"
    );
}

#[test]
fn archives_written_here_hold_every_column_and_numpy_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let cloud = some_points();
    write(&path, &cloud, CloudWriteOptions::default()).unwrap();
    assert_eq!(read(&path, &options(None)).unwrap().cloud, cloud);
    assert!(left_out(&cloud, CloudFormat::Npz).is_empty());
    if let Some(mut oracle) = support::oracle("cloud_files.py") {
        let output = String::from_utf8(support::run(oracle.arg("npz").arg(&path))).unwrap();
        let arrays: Vec<serde_json::Value> = output
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let named: Vec<(&str, &str)> = arrays
            .iter()
            .map(|array| (array["name"].as_str().unwrap(), array["type"].as_str().unwrap()))
            .collect();
        let expected = [
            ("x", "<f4"),
            ("y", "<f4"),
            ("z", "<f4"),
            ("intensity", "<f4"),
            ("ring", "<u2"),
            ("return_type", "|u1"),
            ("t", "<i8"),
        ];
        assert_eq!(named, expected);
        let x = arrays[0]["values"].as_array().unwrap();
        assert!(
            x.iter()
                .map(|value| value.as_f64().unwrap() as f32)
                .eq(cloud.x.iter().copied())
        );
        assert_eq!(arrays[6]["values"], serde_json::json!(cloud.time_ns));
    }
    let empty = encode(
        &PointCloud::default(),
        CloudFormat::Npz,
        CloudWriteOptions::default(),
    )
    .unwrap();
    let read = parse(&empty, CloudFormat::Npz, &options(None)).unwrap();
    assert!(read.cloud.is_empty());
}

#[test]
fn arrays_and_tables_written_here_are_those_of_numpy_and_kitti() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = some_points();
    let kitti = PointCloud {
        ring: vec![],
        ..cloud.clone()
    };
    for (cloud, columns) in [(&cloud, 5), (&kitti, 4)] {
        let (npy, bin) = (folder.path().join("a.npy"), folder.path().join("a.bin"));
        write(&npy, cloud, CloudWriteOptions::default()).unwrap();
        write(&bin, cloud, CloudWriteOptions::default()).unwrap();
        for path in [&npy, &bin] {
            let back = read(path, &options(None)).unwrap().cloud;
            let expected = PointCloud {
                time_ns: vec![],
                return_type: vec![],
                ..cloud.clone()
            };
            assert_eq!(back, expected, "{}", path.display());
        }
        let Some(mut oracle) = support::oracle("cloud_files.py") else {
            continue;
        };
        let output = support::run(oracle.arg("npy").arg(&npy));
        let end = output.iter().position(|&b| b == b'\n').unwrap();
        assert_eq!(&output[..end], format!("[500, {columns}]").as_bytes());
        let values = doubles(&output[end + 1..]);
        assert_eq!(
            values[columns..columns + 4],
            [cloud.x[1], cloud.y[1], cloud.z[1], 1.0].map(f64::from)
        );
        let table = support::floats(&std::fs::read(&bin).unwrap());
        assert!(table.iter().zip(&values).all(|(&a, &b)| f64::from(a) == b) && table.len() == values.len());
    }
    let cdr = folder.path().join("a.cdr");
    let stamped = CloudWriteOptions {
        stamp_ns: 5,
        frame_id: "top",
        ..CloudWriteOptions::default()
    };
    write(&cdr, &cloud, stamped).unwrap();
    let back = read(&cdr, &options(None)).unwrap();
    assert_eq!((back.cloud, back.summary.stamp_ns), (cloud, Some(5)));
    let far = CloudWriteOptions {
        stamp_ns: i64::MAX,
        ..stamped
    };
    assert!(matches!(
        write(&cdr, &kitti, far),
        Err(CloudFileError::Stamp { .. })
    ));
    let ply = write(&folder.path().join("a.ply"), &kitti, stamped);
    assert!(matches!(ply, Err(CloudFileError::UnknownFormat { .. })));
}

fn pcd(header: &str, body: &[u8]) -> Vec<u8> {
    [header.as_bytes(), body].concat()
}

fn refused(bytes: &[u8]) -> String {
    told(&parse(bytes, CloudFormat::Pcd, &options(None)).unwrap_err())
}

const XYZ: &str = "FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\n";

/// PCL PR 6122 and PR 2281, issues 2138 and 5854, PR 4566, pcd-rs PR 10, pypcd issue 36: headers believed, or searched for
/// in the points.
#[test]
fn a_pcd_header_ends_at_its_data_line_and_is_checked_before_memory_is_asked_for() {
    // 13.265934 is 44 41 54 41 in memory: "DATA".
    let first = f32::from_bits(u32::from_le_bytes(*b"DATA"));
    let body: Vec<u8> = [first, 1.0, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let header = format!("# .PCD\nVERSION .7\n{XYZ}WIDTH 1\nHEIGHT 1\nPOINTS 1\nDATA binary\n");
    let file = parse(&pcd(&header, &body), CloudFormat::Pcd, &options(None)).unwrap();
    assert_eq!((file.cloud.x[0], file.cloud.z[0]), (first, 2.0));
    // Pages of zeros behind the points.
    let padded = [&body[..], &[0; 4096]].concat();
    assert_eq!(
        parse(&pcd(&header, &padded), CloudFormat::Pcd, &options(None)).unwrap(),
        file
    );
    assert_eq!(
        refused(&pcd(&header, &body[..11])),
        "the PCD header needs 12 bytes of points, and 11 follow it"
    );

    assert_eq!(
        refused(b""),
        "the file has no PCD header: there is no DATA line in its first 0 bytes"
    );
    assert_eq!(
        refused(b"VERSION .7\nFIEL"),
        "line 2 of the PCD header is \"FIEL\": not a line of a PCD header"
    );
    let of = |lines: &str| refused(format!("{lines}DATA binary\n").as_bytes());
    assert_eq!(of(XYZ), "the PCD header has no WIDTH line");
    assert_eq!(
        of(&format!("{XYZ}WIDTH x\nHEIGHT 1\n")),
        "line 5 of the PCD header is \"x\": a whole number is expected"
    );
    assert_eq!(
        of(&format!("{XYZ}WIDTH -1\nHEIGHT 1\n")),
        "line 5 of the PCD header is \"-1\": a whole number is expected"
    );
    assert_eq!(
        of(&format!("{XYZ}WIDTH 3\nHEIGHT 2\nPOINTS 5\n")),
        "the PCD header says WIDTH 3, HEIGHT 2 and POINTS 5, which is not their product"
    );
    assert!(of(&format!("{XYZ}WIDTH 4294967296\nHEIGHT 4294967296\n")).contains("not their product"));
    assert_eq!(
        of("FIELDS x y z\nSIZE 4 4\nTYPE F F F\nWIDTH 1\n"),
        "the PCD header has 3 FIELDS, but 2 values of SIZE"
    );
    assert!(of("FIELDS x\nSIZE 3\nTYPE F\nWIDTH 1\n").contains("types are F of size 4 or 8"));
    assert!(of("FIELDS x\nSIZE 4\nTYPE F\nCOUNT 4294967295\nWIDTH 1\n").contains("shorter than 2 GiB"));
    assert_eq!(
        of("SIZE 4\nSIZE 4\n"),
        "line 2 of the PCD header is \"SIZE 4\": the second one of its kind"
    );
    assert!(
        refused(format!("{XYZ}WIDTH 1\nHEIGHT 1\nDATA text\n").as_bytes())
            .contains("ascii, binary or binary_compressed")
    );

    let ascii = |points: u32, body: &str| {
        pcd(
            &format!("{XYZ}WIDTH {points}\nHEIGHT 1\nDATA ascii\n"),
            body.as_bytes(),
        )
    };
    assert_eq!(
        refused(&ascii(2, "1 2 3\n")),
        "the PCD header says 2 points, and 1 lines of points follow it"
    );
    assert_eq!(
        refused(&ascii(1, "1 2 3\n4 5 6\n")),
        "the PCD header says 1 points, and 2 lines of points follow it"
    );
    assert_eq!(
        refused(&ascii(4_000_000_000, "1 2 3\n")),
        "the PCD header says 4000000000 points, and 1 lines of points follow it"
    );
    assert_eq!(
        refused(&ascii(1, "1 2\n")),
        "point 0 of the PCD file, field z: the line ends before it"
    );
    assert_eq!(
        refused(&ascii(1, "1 2 3 4\n")),
        "point 0 of the PCD file, field z: the line goes on after it"
    );
    assert_eq!(
        refused(&ascii(1, "1 two 3\n")),
        "point 0 of the PCD file, field y: \"two\" is no float32"
    );

    // A hundred bytes that claim 256 MiB.
    let compressed = |points: u32, packed: u32, unpacked: u32, block: &[u8]| {
        let header = format!("{XYZ}WIDTH {points}\nHEIGHT 1\nDATA binary_compressed\n");
        pcd(
            &header,
            &[&packed.to_le_bytes()[..], &unpacked.to_le_bytes(), block].concat(),
        )
    };
    let huge = 256 << 20;
    assert_eq!(
        refused(&compressed(huge / 12, 4, huge / 12 * 12, &[0xff; 4])),
        "the compressed block of the PCD file says 4 bytes packed and 268435452 unpacked, but the header needs 268435452 \
         and 4 bytes follow"
    );
    // Eight bytes short, as a reader that forgot the two lengths would have it.
    let block = [&[11][..], &body].concat();
    assert_eq!(
        parse(&compressed(1, 13, 12, &block), CloudFormat::Pcd, &options(None))
            .unwrap()
            .cloud
            .x,
        [first]
    );
    assert!(refused(&compressed(1, 13, 12, &block[..5])).contains("5 bytes follow"));
    assert!(refused(&compressed(1, 13, 24, &block)).contains("24 unpacked, but the header needs 12"));
    assert_eq!(
        refused(&compressed(1, 5, 12, &block)),
        "the compressed block of the PCD file is damaged at byte 0"
    );
    assert_eq!(
        refused(compressed(1, 2, 12, &[0xff])[..].split_last().unwrap().1),
        "the compressed block of the PCD \
        file says 2 bytes packed and 12 unpacked, but the header needs 12 and 0 bytes follow"
    );

    for (path, text) in [
        (
            "lidar/pcd_pypcd4/ascii_empty.pcd",
            "no DATA line in its first 0 bytes",
        ),
        (
            "lidar/pcd_pypcd4/ascii_invalid_header.pcd",
            "not a line of a PCD header",
        ),
        (
            "lidar/pcd_pypcd4/ascii_multi_count.pcd",
            "field intensity has 4 elements a point; 1 is expected",
        ),
    ] {
        let Some(path) = support::data(path) else {
            return;
        };
        let error = read(&path, &options(None)).unwrap_err();
        assert!(
            error.to_string().contains(text) && error.to_string().contains("pcd_pypcd4"),
            "{error}"
        );
    }
    // Without the list it can be read.
    let mut coordinates = options(None);
    coordinates.read.intensity = false;
    let path = support::data("lidar/pcd_pypcd4/ascii_multi_count.pcd").unwrap();
    assert_eq!(read(&path, &coordinates).unwrap().cloud.len(), 8);
}

#[test]
fn an_array_that_lies_about_its_header_or_shape_is_refused() {
    let npy = |len: u32, header: &str, data: &[u8]| {
        [
            b"\x93NUMPY\x02\x00",
            &len.to_le_bytes()[..],
            header.as_bytes(),
            data,
        ]
        .concat()
    };
    let refused = |bytes: &[u8]| told(&parse(bytes, CloudFormat::Npy, &options(None)).unwrap_err());
    let header = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}\n");
    let of = |shape: &str| npy(header(shape).len() as u32, &header(shape), &[0; 24]);
    assert_eq!(
        parse(&of("(2, 3)"), CloudFormat::Npy, &options(None))
            .unwrap()
            .cloud
            .len(),
        2
    );
    assert!(refused(&of("(3, 3)")).contains("its shape [3, 3] does not fit its 24 bytes of float32"));
    assert!(refused(&of("(9223372036854775807, 9223372036854775807)")).contains("does not fit"));
    assert!(refused(&npy(u32::MAX, &header("(2, 3)"), &[])).contains("its header claims 4294967295 bytes"));
    let nested = format!("{}\n", "(".repeat(4000));
    assert!(refused(&npy(nested.len() as u32, &nested, &[])).contains("nested"));
    assert!(refused(b"\x93NUMPY").contains("ends in its header"));
    assert!(refused(b"PK\x03\x04").contains("does not start as one"));
    assert_eq!(
        parse(
            &of("(0, 3)")[..of("(0, 3)").len() - 24],
            CloudFormat::Npy,
            &options(None)
        )
        .unwrap()
        .cloud
        .len(),
        0
    );
}

#[test]
fn a_refused_cloud_is_told_of_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.cdr");
    std::fs::write(&path, [0, 1, 0]).unwrap();
    let error = read(&path, &options(None)).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("cut.cdr: 3 bytes are too few for a CDR message (its header alone is 4)"),
        "{error}"
    );
    let CloudFileError::In { source, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(*source, CloudFileError::Cloud(CloudError::Cdr(_))));
    let missing = read(&folder.path().join("none.pcd"), &options(None)).unwrap_err();
    assert!(matches!(missing, CloudFileError::Read { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn mutated_files_are_read_or_refused_and_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
        header_only in any::<bool>(),
    ) {
        let mut cloud = some_points();
        for column in [&mut cloud.x, &mut cloud.y, &mut cloud.z, &mut cloud.intensity] {
            column.truncate(20);
        }
        cloud.ring.truncate(20);
        cloud.time_ns.truncate(20);
        cloud.return_type.truncate(20);
        let pcd = ENCODINGS.map(|pcd| (CloudFormat::Pcd, pcd));
        let others = [CloudFormat::Npy, CloudFormat::Npz, CloudFormat::Bin, CloudFormat::Cdr].map(|f| (f, PcdEncoding::Binary));
        for (format, pcd) in pcd.into_iter().chain(others) {
            let options_of = CloudWriteOptions { pcd, ..CloudWriteOptions::default() };
            let mut bytes = encode(&cloud, format, options_of).unwrap();
            let range = if header_only { bytes.len().min(260) } else { bytes.len() };
            for (at, value) in &changes {
                bytes[at.index(range)] = *value;
            }
            if cuts {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            if let Ok(file) = parse(&bytes, format, &options(None)) {
                prop_assert_eq!(file.cloud.len(), file.summary.points);
                prop_assert!(file.cloud.len() <= bytes.len());
            }
        }
    }
}
