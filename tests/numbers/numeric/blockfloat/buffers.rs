//! What is refused, tiles, and tensors of block floats.

use proptest::prelude::*;
use sensorium::numeric::blockfloat::{
    BlockFloatError, BlockFormat, BlockTensor, decode_into, decode_tiles, encode_finite_into, encode_into,
    encode_tiles,
};

use super::{FORMATS, Random, bits, mixed_magnitudes, round_trip};

#[test]
fn the_first_value_that_is_not_finite_is_named() {
    for (bad, text) in [
        (f32::INFINITY, "inf"),
        (f32::NEG_INFINITY, "-inf"),
        (f32::NAN, "NaN"),
    ] {
        for index in [0, 15, 16, 39] {
            let mut values: Vec<f32> = (0..40).map(|i| i as f32 - 20.0).collect();
            values[index] = bad;
            values[39] = f32::NAN;
            let text = if index == 39 { "NaN" } else { text };
            let error =
                encode_finite_into(BlockFormat::Bfp4, &values, &mut [0; 3], &mut [0; 24]).unwrap_err();
            assert!(matches!(error, BlockFloatError::NotFinite { index: i, .. } if i == index));
            assert_eq!(
                error.to_string(),
                format!(
                    "value {index} is {text}; block floats of weights must be finite, so check where it comes from"
                )
            );
            assert_eq!(
                BlockTensor::encode(BlockFormat::Bfp8, &values)
                    .unwrap_err()
                    .to_string(),
                error.to_string()
            );
        }
    }
    encode_finite_into(BlockFormat::Bfp4, &[f32::MAX; 17], &mut [0; 2], &mut [0; 16]).unwrap();
}

#[test]
fn buffers_of_wrong_lengths_are_refused_with_the_right_one() {
    let format = BlockFormat::Bfp4;
    let values = [1.0; 33];
    let short = encode_into(format, &values, &mut [0; 2], &mut [0; 24]).unwrap_err();
    assert_eq!(
        short.to_string(),
        "2 exponent bytes for 33 values; give one for each 16 or part of 16: 3"
    );
    let long = encode_into(format, &values, &mut [0; 3], &mut [0; 25]).unwrap_err();
    assert_eq!(
        long.to_string(),
        "25 mantissa bytes for 33 bfp4 values; give 8 for each 16 or part of 16: 24"
    );
    let mut target = [0.0; 33];
    assert_eq!(decode_into(format, &[0; 2], &[0; 24], &mut target), Err(short));
    assert_eq!(decode_into(format, &[0; 3], &[0; 25], &mut target), Err(long));
}

#[test]
fn a_tile_takes_the_bytes_of_ttnn() {
    assert_eq!(BlockFormat::Bfp8.tile_bytes(), 1088);
    assert_eq!(BlockFormat::Bfp4.tile_bytes(), 576);
    assert_eq!(BlockFormat::Bfp8.bytes_for(33, 64), Ok(4 * 1088));
    assert_eq!(BlockFormat::Bfp4.bytes_for(1, 1), Ok(576));
    assert_eq!(BlockFormat::Bfp4.bytes_for(0, 7), Ok(0));
    for (rows, cols) in [(usize::MAX, usize::MAX), (usize::MAX, 2), (1 << 40, 1 << 33)] {
        let error = BlockFormat::Bfp8.bytes_for(rows, cols).unwrap_err();
        assert_eq!(error, BlockFloatError::TooLarge { rows, cols });
        assert_eq!(decode_tiles(BlockFormat::Bfp8, rows, cols, &[]), Err(error));
    }

    // Face by face: each face row of this tile has an exponent of its own.
    let values: Vec<f32> = (0..1024)
        .map(|i| {
            let (row, col) = (i / 32, i % 32);
            2_f32.powi(row + 32 * (col / 16)) * (1.0 + (col % 16) as f32 / 64.0)
        })
        .collect();
    let tile = encode_tiles(BlockFormat::Bfp8, 32, 32, &values).unwrap();
    let face = |first: u8| (first..first + 16).collect::<Vec<u8>>();
    assert_eq!(tile[..64], [face(127), face(159), face(143), face(175)].concat());
    for codes in tile[64..].chunks(16) {
        assert_eq!(codes, face(64));
    }
    assert_eq!(decode_tiles(BlockFormat::Bfp8, 32, 32, &tile).unwrap(), values);
}

#[test]
fn tiles_of_the_wrong_size_are_refused() {
    assert_eq!(
        encode_tiles(BlockFormat::Bfp8, 3, 5, &[0.0; 14])
            .unwrap_err()
            .to_string(),
        "14 values for a matrix of 3 x 5; give them row by row, without padding"
    );
    assert!(encode_tiles(BlockFormat::Bfp8, usize::MAX / 4, 16, &[]).is_err());
    for bytes in [0, 1087, 1089, 2 * 1088] {
        assert_eq!(
            decode_tiles(BlockFormat::Bfp8, 3, 5, &vec![0; bytes])
                .unwrap_err()
                .to_string(),
            format!("{bytes} bytes of bfp8 tiles for a matrix of 3 x 5; 1088 needed")
        );
    }
}

#[test]
fn a_tensor_keeps_its_values_through_its_bytes() {
    let values: Vec<f32> = (0..100).map(|i| ((i * 37 % 100) as f32 - 50.0) / 64.0).collect();
    for format in FORMATS {
        let tensor = BlockTensor::encode(format, &values).unwrap();
        assert_eq!((tensor.format(), tensor.len()), (format, 100));
        assert_eq!(tensor.as_bytes().len(), 7 * format.block_bytes());
        assert_eq!(tensor.exponents().len(), 7);
        assert_eq!(
            bits(&tensor.decode()),
            bits(&round_trip(format, &values)),
            "{format}"
        );

        let bytes = tensor.as_bytes().to_vec();
        let read = BlockTensor::from_bytes(format, 100, bytes.clone()).unwrap();
        assert_eq!(read, tensor);
        let mut target = [f32::NAN; 100];
        read.decode_into(&mut target).unwrap();
        assert_eq!(bits(&target), bits(&tensor.decode()));
        assert_eq!(
            read.decode_into(&mut target[1..]).unwrap_err().to_string(),
            "a slice of 99 values cannot take the 100 values of the tensor; give one as long"
        );

        for count in [0, 96, 113, usize::MAX / 2, usize::MAX] {
            let error = BlockTensor::from_bytes(format, count, bytes.clone()).unwrap_err();
            assert!(matches!(error, BlockFloatError::PackedBytes { .. }), "{error}");
        }
        let mut damaged = bytes;
        damaged[3] = 255;
        assert_eq!(
            BlockTensor::from_bytes(format, 100, damaged),
            Err(BlockFloatError::BlockNotFinite { block: 3 })
        );
    }
    let empty = BlockTensor::encode(BlockFormat::Bfp8, &[]).unwrap();
    assert!(empty.is_empty() && empty.decode().is_empty() && empty.as_bytes().is_empty());
}

proptest! {
    #[test]
    fn any_bytes_decode_to_a_matrix_or_an_error(
        rows in 0_usize..70,
        cols in 0_usize..70,
        bytes in prop::collection::vec(any::<u8>(), 0..5000),
        huge in any::<[usize; 2]>(),
    ) {
        for format in FORMATS {
            let _ = decode_tiles(format, huge[0], huge[1], &bytes);
            let _ = BlockTensor::from_bytes(format, huge[0], bytes.clone());
            let needed = format.bytes_for(rows, cols).unwrap();
            prop_assert_eq!(decode_tiles(format, rows, cols, &bytes).is_ok(), bytes.len() == needed);
            let fitting: Vec<u8> = bytes.iter().copied().cycle().take(needed).collect();
            if fitting.len() == needed {
                prop_assert_eq!(decode_tiles(format, rows, cols, &fitting).unwrap().len(), rows * cols);
            }
            let values = bytes.len() / format.block_bytes() * 16;
            if let Ok(tensor) = BlockTensor::from_bytes(format, values, bytes.clone()) {
                prop_assert!(tensor.decode().iter().all(|v| v.is_finite()));
            }
        }
    }

    #[test]
    fn a_tiled_matrix_has_the_values_of_its_rows_in_sixteens(
        rows in 0_usize..40,
        cols in 0_usize..80,
        seed in any::<u64>(),
    ) {
        let values = mixed_magnitudes(rows * cols, &mut Random(seed));
        for format in FORMATS {
            let tiles = encode_tiles(format, rows, cols, &values).unwrap();
            let found = decode_tiles(format, rows, cols, &tiles).unwrap();
            let expected: Vec<f32> = if cols == 0 {
                Vec::new()
            } else {
                values.chunks(cols).flat_map(|row| round_trip(format, row)).collect()
            };
            prop_assert_eq!(bits(&found), bits(&expected));
        }
    }
}
