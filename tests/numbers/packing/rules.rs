//! Where tensors lie: the rules, written down once more.

use half::bf16;
use proptest::prelude::*;
use sensorium::tensor::pack::{PACK_ROW_ELEMS, SINGLE_ROW_MAX_ELEMS};
use sensorium::tensor::{DType, PackError, PackLayout, PackOptions, TensorSpec};

use crate::packing::{plan, rows_of, shape};

/// What one tensor takes in rows of `row`, and its pitch, or `None` if it is refused: the written rules by search,
/// without a divisor in common.
fn searched(dims: &[usize], row: usize, size: usize) -> Option<(usize, usize)> {
    let width = dims.last().copied().unwrap_or(1);
    let numel: usize = dims.iter().product();
    let rows = numel / width;
    let up = |from: usize, step: usize| (from..).find(|x| x % step == 0).unwrap();
    if numel * size <= 65_536 || rows == 1 {
        return Some((up(numel, row), 0));
    }
    if width * size > 131_072 {
        return None;
    }
    // Zero rows are appended until rows of `pitch` fill whole rows of `row`.
    let filled = |pitch: usize| (rows..).find(|n| (n * pitch).is_multiple_of(row)).unwrap() * pitch;
    let mut alternatives = Vec::new();
    if up(numel, row) * size <= 131_072 {
        alternatives.push((up(numel, row), 0));
    } else {
        let mut multiple = 1;
        while row.is_multiple_of(multiple) {
            alternatives.push((filled(up(width, multiple)), up(width, multiple)));
            multiple *= 2;
        }
        alternatives.push((filled(up(width, row)), up(width, row)));
        alternatives.retain(|&(_, pitch)| pitch * size <= 131_072);
    }
    let best = alternatives.into_iter().min().unwrap();
    let contiguous = filled(width);
    let wasteful = contiguous as f64 - best.0 as f64 > numel as f64 / 8.0;
    Some(if wasteful { best } else { (contiguous, 0) })
}

/// Dimensions, row length asked for, (rows, row length, pitch).
type Example = (&'static [usize], Option<usize>, (usize, usize, usize));

#[test]
fn the_worked_examples_of_the_rules_lie_where_the_rules_say() {
    let examples: [Example; 23] = [
        // One row, padded to 32.
        (&[1], None, (1, 32, 0)),
        (&[1, 1, 1, 33], None, (1, 64, 0)),
        (&[1, 1, 2, 20001], None, (1, 40032, 0)),
        (&[131_072], None, (1, 131_072, 0)),
        // The first size above it.
        (&[131_073], None, (129, 1024, 0)),
        // "[1, 1, 2, 20001] fp32 as 80 MB" before there were pitches.
        (&[1, 1, 2, 20001], Some(1024), (40, 1024, 20480)),
        (&[1, 1, 1100, 33], Some(1024), (45, 1024, 36)),
        // YOLOX's head level and a map: "typical shapes keep the contiguous layout".
        (&[1, 14400, 13], None, (195, 1024, 0)),
        (&[240, 240], Some(1024), (60, 1024, 0)),
        (&[1, 1, 262_144, 16], None, (4096, 1024, 0)),
        // Flattened: 68,000 bytes, above 64 KiB, but a page below 128 KiB.
        (&[1, 1, 17, 1000], Some(1024), (17, 1024, 0)),
        // 64 KiB exactly, and one row more of a width that shares nothing with 1024.
        (&[16384], Some(1024), (16, 1024, 0)),
        (&[5, 3, 1093], Some(1024), (17, 1024, 0)),
        // Vectors of any width.
        (&[1, 1, 1, 100_000], Some(1024), (98, 1024, 0)),
        (&[40_000_000], None, (39063, 1024, 0)),
        (&[], Some(32), (1, 32, 0)),
        // Rows of exactly 128 KiB.
        (&[4, 32768], Some(1024), (128, 1024, 0)),
        // A row length that is no power of two: 96 itself is a pitch to round to, if 16 is not better.
        (&[400, 100], Some(96), (425, 96, 0)),
        (&[2, 32001], Some(96), (667, 96, 32016)),
        (&[2, 32017], Some(96), (668, 96, 32064)),
        (&[3, 11000], Some(4096), (9, 4096, 12288)),
        // 64 KiB exactly is flattened, although contiguous would waste only one row more.
        (&[256, 64], Some(96), (171, 96, 0)),
        // 131,040 bytes, but a page of 131,328 when padded: not flattened, and the best pitch saves less than 1/8.
        (&[504, 65], Some(96), (390, 96, 0)),
    ];
    for (dims, row_elems, (rows, elems, pitch)) in examples {
        let options = PackOptions {
            row_elems,
            ..PackOptions::default()
        };
        let layout = plan(&[("x", dims)], &options).unwrap();
        let entry = &layout.entries[0];
        assert_eq!(
            (layout.rows, layout.row_elems, entry.pitch),
            (rows, elems, pitch),
            "{dims:?}"
        );
        assert_eq!(layout.total, rows * elems);
        assert_eq!(
            layout.spec,
            TensorSpec::new(&[1, 1, rows, elems], DType::F32).unwrap()
        );
        assert_eq!((entry.offset, entry.numel), (0, dims.iter().product()));
    }
}

#[test]
fn the_limits_count_bytes_of_the_packed_type() {
    let as_bf16 = PackOptions {
        dtype: DType::Bf16,
        ..rows_of(1024)
    };
    // 40002 elements: a page of fp32 cannot hold them, one of bf16 can.
    let layout = plan(&[("x", &[1, 1, 2, 20001])], &as_bf16).unwrap();
    assert_eq!((layout.rows, layout.entries[0].pitch), (40, 0));
    // Rows of 40000 elements are 80 KB as bf16, 160 KB as fp32, whatever the type before.
    assert!(plan(&[("x", &[4, 40000])], &as_bf16).is_ok());
    assert!(matches!(
        plan(&[("x", &[4, 40000])], &rows_of(1024)),
        Err(PackError::WideRows { .. })
    ));
    // The limit of the single row counts elements.
    let default_bf16 = PackOptions {
        dtype: DType::Bf16,
        ..PackOptions::default()
    };
    assert_eq!(plan(&[("x", &[131_072])], &default_bf16).unwrap().rows, 1);
    assert_eq!(plan(&[("x", &[131_073])], &default_bf16).unwrap().rows, 129);
}

#[test]
fn several_tensors_of_one_row_lie_at_multiples_of_the_alignment() {
    let parts: [(&str, &[usize]); 3] = [("a", &[3, 5]), ("b", &[64]), ("c", &[1])];
    let layout = plan(&parts, &PackOptions::default()).unwrap();
    let places: Vec<_> = layout.entries.iter().map(|e| (e.offset, e.numel)).collect();
    assert_eq!(places, [(0, 15), (32, 64), (96, 1)]);
    assert_eq!((layout.rows, layout.total), (1, 128));
    let by_five = PackOptions {
        align: 5,
        ..PackOptions::default()
    };
    let layout = plan(&parts, &by_five).unwrap();
    assert_eq!(layout.entries[2].offset, 15 + 65);
    assert_eq!(layout.total, 85);
    // The sum decides, not the largest part; wide rows are nothing to a buffer of one row.
    let halves: [(&str, &[usize]); 2] = [("a", &[2, 32768]), ("b", &[65536])];
    assert_eq!(plan(&halves, &PackOptions::default()).unwrap().rows, 1);
    let more: [(&str, &[usize]); 3] = [("a", &[2, 32768]), ("b", &[65536]), ("c", &[1])];
    let layout = plan(&more, &PackOptions::default()).unwrap();
    assert_eq!((layout.rows, layout.row_elems), (64 + 64 + 1, PACK_ROW_ELEMS));
    assert_eq!(
        layout.entry("c").map(|entry| entry.offset),
        Some(SINGLE_ROW_MAX_ELEMS)
    );
    assert_eq!(layout.entry("d"), None);
}

#[test]
fn what_cannot_be_packed_is_refused_with_its_name() {
    let default = PackOptions::default();
    let refused =
        |tensors: &[(&str, &[usize])], options: &PackOptions| plan(tensors, options).unwrap_err().to_string();
    assert_eq!(
        refused(&[("boxes", &[1, 1, 4, 40000])], &default),
        "boxes of shape [1, 1, 4, 40000] has rows of 160000 bytes, wider than the supported 131072: give it a \
         narrower last dimension"
    );
    for row_elems in [0, 1, 31, 33, 1000] {
        let text = refused(&[("x", &[1])], &rows_of(row_elems));
        assert_eq!(
            text,
            format!("row_elems is {row_elems}; it must be a positive multiple of 32")
        );
    }
    assert!(refused(&[("x", &[1])], &rows_of(32800)).contains("rows of 131200 bytes"));
    assert!(plan(&[("x", &[1])], &rows_of(32768)).is_ok());
    let as_integers = PackOptions {
        dtype: DType::I32,
        ..default
    };
    assert!(refused(&[("x", &[1])], &as_integers).contains("not as int32"));
    let unaligned = PackOptions { align: 0, ..default };
    assert!(refused(&[("x", &[1])], &unaligned).contains("align is 0"));
    assert_eq!(refused(&[], &default), "there is no tensor to pack");
    assert_eq!(
        refused(&[("a", &[1]), ("empty", &[3, 0])], &default),
        "empty has shape [3, 0]: a tensor without elements cannot be packed"
    );
    assert!(refused(&[("a", &[1]), ("b", &[1]), ("a", &[2])], &default).contains("called a"));
    let huge: [(&str, &[usize]); 3] = [("a", &[1 << 61]), ("b", &[1 << 61]), ("c", &[1 << 61])];
    assert!(matches!(plan(&huge, &default), Err(PackError::TooLarge { .. })));
    // Padding alone can exceed what is addressable: the least pitch of this one already does.
    let tall: [(&str, &[usize]); 1] = [("a", &[(1 << 47) - 1, 32767])];
    assert!(matches!(plan(&tall, &default), Err(PackError::TooLarge { .. })));
}

fn dims() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        (1_usize..400, 1_usize..3000).prop_map(|(n, c)| vec![n, c]),
        (1_usize..40, 1_usize..34000).prop_map(|(n, c)| vec![1, 1, n, c]),
        (1_usize..5, 1_usize..90, 1_usize..70).prop_map(|(a, n, c)| vec![a, n, c]),
        (1_usize..200_000).prop_map(|c| vec![c]),
    ]
}

fn row_lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(1024_usize),
        Just(32),
        Just(96),
        Just(4096),
        (1_usize..1025).prop_map(|n| 32 * n)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_tensor_takes_what_a_search_over_the_alternatives_finds(
        dims in dims(),
        row in row_lengths(),
        short in any::<bool>(),
    ) {
        let dtype = if short { DType::Bf16 } else { DType::F32 };
        let options = PackOptions { dtype, ..rows_of(row) };
        let planned = plan(&[("x", &dims)], &options);
        match searched(&dims, row, dtype.size_bytes()) {
            None => prop_assert!(matches!(planned, Err(PackError::WideRows { .. })), "{planned:?}"),
            Some((elements, pitch)) => {
                let layout = planned.unwrap();
                prop_assert_eq!((layout.total, layout.entries[0].pitch), (elements, pitch));
                prop_assert_eq!(layout.total, layout.rows * row);
            }
        }
    }

    #[test]
    fn no_tensor_takes_more_than_1_4_times_its_size_and_one_row(dims in dims()) {
        if let Ok(layout) = plan(&[("x", &dims)], &rows_of(PACK_ROW_ELEMS)) {
            let own: usize = dims.iter().product();
            prop_assert!((layout.total as f64) < 1.4 * own as f64 + PACK_ROW_ELEMS as f64);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_place_is_one_element_or_one_zero(
        parts in prop::collection::vec(dims(), 1..5),
        row in prop_oneof![Just(None), row_lengths().prop_map(Some)],
    ) {
        let names: Vec<String> = (0..parts.len()).map(|i| format!("t{i}")).collect();
        let tensors: Vec<(&str, &[usize])> =
            names.iter().zip(&parts).map(|(name, dims)| (name.as_str(), &dims[..])).collect();
        let options = PackOptions { row_elems: row, ..PackOptions::default() };
        let Ok(layout) = plan(&tensors, &options) else { return Ok(()) };
        let mut seen = vec![0_u8; layout.total];
        let windows = layout.entries.iter().map(|entry| entry.window()).chain(layout.padding());
        for window in windows {
            let mut places = vec![window.offset as isize];
            for (&dim, &step) in window.shape.iter().zip(window.steps()) {
                places = places.iter().flat_map(|&p| (0..dim as isize).map(move |i| p + i * step)).collect();
            }
            for place in places {
                seen[place as usize] += 1;
            }
        }
        prop_assert!(seen.iter().all(|&count| count == 1));
        if layout.rows > 1 || row.is_some() {
            prop_assert!(layout.entries.iter().all(|entry| entry.offset % layout.row_elems == 0));
        }
        // A view holds the elements in order: place numbers, read through the view, grow.
        let flat: Vec<usize> = (0..layout.total).collect();
        for (entry, (name, view)) in layout.entries.iter().zip(layout.unpack(&flat).unwrap()) {
            prop_assert_eq!((entry.name.as_str(), view.shape()), (name, &entry.shape[..]));
            let width = *entry.shape.last().unwrap();
            for (index, &place) in view.iter().enumerate() {
                let step = if entry.pitch > 0 { entry.pitch } else { width };
                prop_assert_eq!(place, entry.offset + index / width * step + index % width);
            }
        }
        let short = &flat[1..];
        prop_assert_eq!(
            layout.unpack(short).unwrap_err(),
            PackError::Length { expected: layout.total, found: layout.total - 1 }
        );
    }
}

#[test]
fn an_entry_can_be_viewed_alone_in_any_buffer_that_reaches_far_enough() {
    let layout = plan(&[("a", &[2, 3]), ("b", &[4])], &PackOptions::default()).unwrap();
    let flat: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let b = layout.entry("b").unwrap();
    assert_eq!(
        b.view(&flat[..36]).unwrap().iter().copied().collect::<Vec<_>>(),
        [32., 33., 34., 35.]
    );
    assert_eq!(
        b.view(&flat[..35]).unwrap_err(),
        PackError::Length {
            expected: 36,
            found: 35
        }
    );
    assert!(b.view::<f32>(&[]).is_err());
}

#[test]
fn packing_is_exact_where_every_value_of_the_type_survives() {
    // Every value of the narrow types, by conversion and back.
    let survives = |dtype: DType, packed: DType| {
        let layout = PackLayout::plan(&[("x", shape(&[1]), dtype)], &PackOptions::default()).unwrap();
        layout.entries[0].always_exact(packed)
    };
    for byte in 0..=u8::MAX {
        assert_eq!(f32::from(bf16::from_f32(f32::from(byte))), f32::from(byte));
        assert_eq!(
            f32::from(bf16::from_f32(f32::from(byte as i8))),
            f32::from(byte as i8)
        );
    }
    assert!((0..=u16::MAX).any(|bits| {
        let half = half::f16::from_bits(bits);
        f32::from(half) != f32::from(bf16::from_f32(f32::from(half))) && !half.is_nan()
    }));
    assert_ne!(i64::from((1 << 24) + 1), ((1 << 24) + 1) as f32 as i64);
    for (dtype, in_f32, in_bf16) in [
        (DType::U8, true, true),
        (DType::I8, true, true),
        (DType::I32, false, false),
        (DType::U32, false, false),
        (DType::I64, false, false),
        (DType::F16, true, false),
        (DType::Bf16, true, true),
        (DType::F32, true, false),
    ] {
        assert_eq!(
            (survives(dtype, DType::F32), survives(dtype, DType::Bf16)),
            (in_f32, in_bf16),
            "{dtype}"
        );
    }
}
