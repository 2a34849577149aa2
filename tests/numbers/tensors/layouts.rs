//! Tiles, and tensors brought to a fixed size.

use std::borrow::Cow;

use half::bf16;
use sensorium::device::{BufferClass, Cq, Device, DeviceError};
use sensorium::ops::OpContext;
use sensorium::tensor::tile::FACE;
use sensorium::tensor::{
    CapacityError, DType, Element, HostTensor, LaidOut, Layout, Shape, TILE, TensorError, TensorSpec,
    TiledTensor, as_4d, pad_to_capacity, pad_to_tile, round_up, tile_padded_shape,
};

use crate::tensors::open;

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap()
}

fn counting(dims: &[usize]) -> HostTensor {
    let values: Vec<u32> = (1..=dims.iter().product::<usize>() as u32).collect();
    HostTensor::from_slice(dims, &values).unwrap()
}

fn values<T: Element>(tensor: &HostTensor) -> Vec<T> {
    tensor.as_slice::<T>().unwrap().to_vec()
}

#[test]
fn shapes_are_padded_to_whole_tiles_in_their_last_two_dimensions() {
    assert_eq!(
        (round_up(0, 32), round_up(1, 32), round_up(64, 32)),
        (Some(0), Some(32), Some(64))
    );
    assert_eq!((round_up(5, 0), round_up(usize::MAX, 32)), (None, None));
    for (dims, padded) in [
        (&[][..], &[32, 32][..]),
        (&[5], &[32, 32]),
        (&[33], &[32, 64]),
        (&[32, 64], &[32, 64]),
        (&[1, 1, 31, 65], &[1, 1, 32, 96]),
        (&[3, 33, 1], &[3, 64, 32]),
        (&[2, 0, 7], &[2, 0, 32]),
        (&[1, 2, 3, 4, 5, 6], &[1, 2, 3, 4, 32, 32]),
    ] {
        assert_eq!(
            tile_padded_shape(&shape(dims)).unwrap(),
            shape(padded),
            "{dims:?}"
        );
    }
    let widest = shape(&[isize::MAX as usize]);
    assert!(matches!(
        tile_padded_shape(&widest),
        Err(TensorError::TooLarge { .. })
    ));
}

#[test]
fn four_dimensions_come_from_fewer_and_never_from_more() {
    for (dims, four) in [
        (&[][..], [1, 1, 1, 1]),
        (&[7], [1, 1, 1, 7]),
        (&[2, 3], [1, 1, 2, 3]),
        (&[4, 0, 2, 3], [4, 0, 2, 3]),
    ] {
        assert_eq!(as_4d(&shape(dims)).unwrap(), shape(&four));
    }
    let error = as_4d(&shape(&[1, 1, 2, 3, 4])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a form of four dimensions does not fit shape [1, 1, 2, 3, 4]"
    );
}

#[test]
fn padding_to_tiles_keeps_the_tensor_at_the_low_end_and_copies_only_where_something_is_missing() {
    let tensor = counting(&[2, 3, 33]);
    let padded = pad_to_tile(&tensor, 7_u32).unwrap();
    assert_eq!(*padded.shape(), shape(&[2, 32, 64]));
    for ((plane, row, column), &value) in padded
        .array::<u32>()
        .unwrap()
        .into_dimensionality::<ndarray::Ix3>()
        .unwrap()
        .indexed_iter()
    {
        let inside = row < 3 && column < 33;
        let expected = if inside {
            (plane * 99 + row * 33 + column) as u32 + 1
        } else {
            7
        };
        assert_eq!(value, expected, "{plane} {row} {column}");
    }
    let row = counting(&[5]);
    let padded = pad_to_tile(&row, 0_u32).unwrap();
    assert_eq!(*padded.shape(), shape(&[32, 32]));
    assert_eq!(values::<u32>(&padded)[..6], [1, 2, 3, 4, 5, 0]);
    let whole = counting(&[2, 32, 64]);
    assert!(matches!(pad_to_tile(&whole, 0_u32).unwrap(), Cow::Borrowed(same) if std::ptr::eq(same, &whole)));
    for tensor in [&whole, &tensor] {
        assert!(matches!(
            pad_to_tile(tensor, 0.0_f32),
            Err(TensorError::DTypeMismatch {
                expected: DType::F32,
                found: DType::U32
            })
        ));
    }
}

/// The tiled order by walking tiles, faces, rows and columns, and asking at each place what lies there.
fn walked(tensor: &HostTensor, planes: usize, rows: usize, columns: usize) -> Vec<u32> {
    let dense = values::<u32>(tensor);
    let mut out = Vec::new();
    for plane in 0..planes {
        for tile_row in 0..rows.div_ceil(TILE) {
            for tile_column in 0..columns.div_ceil(TILE) {
                for (face_row, face_column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    for r in 0..FACE {
                        for c in 0..FACE {
                            let row = tile_row * TILE + face_row * FACE + r;
                            let column = tile_column * TILE + face_column * FACE + c;
                            let inside = row < rows && column < columns;
                            out.push(if inside {
                                dense[(plane * rows + row) * columns + column]
                            } else {
                                0
                            });
                        }
                    }
                }
            }
        }
    }
    out
}

#[test]
fn tiles_lie_plane_by_plane_and_face_by_face() {
    // One tile: where the corners of the four faces lie.
    let one = counting(&[32, 32]);
    let LaidOut::Tile(tile) = one.to_layout(Layout::Tile).unwrap() else {
        panic!("not in tiles")
    };
    let order = values::<u32>(tile.storage());
    assert_eq!(
        [order[0], order[15], order[16], order[255]],
        [1, 16, 33, 15 * 32 + 16]
    );
    assert_eq!(
        [order[256], order[512], order[768], order[1023]],
        [17, 16 * 32 + 1, 16 * 32 + 17, 1024]
    );
    for (dims, [planes, rows, columns]) in [
        (&[][..], [1, 1, 1]),
        (&[50], [1, 1, 50]),
        (&[33, 70], [1, 33, 70]),
        (&[3, 17, 16], [3, 17, 16]),
        (&[2, 1, 3, 64, 31], [6, 64, 31]),
        (&[2, 0, 31], [2, 0, 31]),
    ] {
        let tensor = counting(dims);
        let tiled = tensor.to_layout(Layout::Tile).unwrap();
        assert_eq!(tiled.bytes().len(), tiled.spec().bytes(), "{dims:?}");
        assert_eq!(
            bytemuck::cast_slice::<u8, u32>(tiled.bytes()),
            walked(&tensor, planes, rows, columns),
            "{dims:?}"
        );
        let LaidOut::Tile(tiled) = tiled else {
            panic!("not in tiles")
        };
        let back = tiled.to_layout(Layout::RowMajor).unwrap();
        assert_eq!((back.spec(), back.bytes()), (tensor.spec(), tensor.bytes()));
    }
}

#[test]
fn the_layout_that_a_tensor_has_costs_nothing() {
    let tensor = counting(&[40, 40]);
    let same = tensor.to_layout(Layout::RowMajor).unwrap();
    assert!(matches!(same, LaidOut::RowMajor(Cow::Borrowed(same)) if std::ptr::eq(same, &tensor)));
    let tiled = TiledTensor::zeros(shape(&[40, 40]), DType::Bf16).unwrap();
    let same = tiled.to_layout(Layout::Tile).unwrap();
    assert!(matches!(same, LaidOut::Tile(Cow::Borrowed(same)) if std::ptr::eq(same, &tiled)));
}

#[test]
fn elements_of_every_width_are_moved_whole() {
    fn round_trip<T: Element + PartialEq + std::fmt::Debug>(make: impl Fn(usize) -> T) {
        let elements: Vec<T> = (0..35 * 49).map(make).collect();
        let tensor = HostTensor::from_slice(&[35, 49], &elements).unwrap();
        let LaidOut::Tile(tiled) = tensor.to_layout(Layout::Tile).unwrap() else {
            panic!("not in tiles")
        };
        let places = tiled.storage().as_slice::<T>().unwrap();
        // Row 20, column 40: second column of tiles, bottom left face.
        assert_eq!(places[1024 + 512 + 4 * 16 + 8], elements[20 * 49 + 40]);
        let mut read_back = TiledTensor::zeros(shape(&[35, 49]), T::DTYPE).unwrap();
        read_back.bytes_mut().copy_from_slice(tiled.storage().bytes());
        assert_eq!(
            read_back.to_layout(Layout::RowMajor).unwrap().bytes(),
            tensor.bytes()
        );
    }
    round_trip(|i| i as u8);
    round_trip(|i| bf16::from_bits(i as u16));
    round_trip(|i| i as f32);
    round_trip(|i| (i as i64) << 40);
}

#[test]
fn a_tiled_spec_counts_its_padding_and_is_refused_where_tiles_are_unknown() {
    let spec = TensorSpec::new(&[2, 33, 5], DType::Bf16).unwrap();
    let tiled = spec.with_layout(Layout::Tile).unwrap();
    assert_eq!((spec.bytes(), tiled.bytes()), (2 * 33 * 5 * 2, 2 * 64 * 32 * 2));
    assert_eq!(tiled.to_string(), "bfloat16 [2, 33, 5] in tile layout");
    assert_eq!(tiled.with_layout(Layout::RowMajor).unwrap(), spec);
    let large = TensorSpec::new(&[1 << 58], DType::U8).unwrap();
    assert!(matches!(
        large.with_layout(Layout::Tile),
        Err(TensorError::TooLarge { .. })
    ));
    let forced = TensorSpec {
        layout: Layout::Tile,
        ..TensorSpec::new(&[isize::MAX as usize], DType::U8).unwrap()
    };
    assert_eq!(forced.bytes(), usize::MAX);
    let mut device = open(1);
    let before = device.memory();
    let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
    let error = ops.alloc(&tiled, BufferClass::Input).unwrap_err();
    assert!(matches!(
        error,
        DeviceError::UnsupportedLayout {
            backend: "cpu",
            layout: Layout::Tile
        }
    ));
    assert_eq!(
        error.to_string(),
        "the cpu device holds row-major tensors, not tile layout: convert with to_layout first"
    );
    assert_eq!(device.memory(), before);
    assert!(device.alloc(&spec, BufferClass::Input).is_ok());
}

#[test]
fn a_tensor_is_brought_to_a_capacity_along_any_axis() {
    let tensor = counting(&[3, 2]);
    let (padded, valid) = pad_to_capacity(&tensor, 5, 0, 9_u32, false).unwrap();
    assert_eq!((*padded.shape(), valid), (shape(&[5, 2]), 3));
    assert_eq!(values::<u32>(&padded), [1, 2, 3, 4, 5, 6, 9, 9, 9, 9]);
    let (padded, valid) = pad_to_capacity(&tensor, 4, 1, 0_u32, true).unwrap();
    assert_eq!((*padded.shape(), valid), (shape(&[3, 4]), 2));
    assert_eq!(values::<u32>(&padded), [1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 0, 0]);
    let (full, valid) = pad_to_capacity(&tensor, 3, 0, 9_u32, false).unwrap();
    assert_eq!((full.bytes(), valid), (tensor.bytes(), 3));
    let none = HostTensor::from_slice::<u32>(&[0, 2], &[]).unwrap();
    let (padded, valid) = pad_to_capacity(&none, 2, 0, 8_u32, false).unwrap();
    assert_eq!((values::<u32>(&padded), valid), (vec![8; 4], 0));
}

#[test]
fn too_much_for_a_capacity_is_an_error_or_is_cut_off_at_the_end() {
    let tensor = counting(&[3, 2]);
    let error = pad_to_capacity(&tensor, 2, 0, 9_u32, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "shape [3, 2] has 3 along axis 0, above the capacity of 2: raise the capacity or allow truncation"
    );
    let (cut, valid) = pad_to_capacity(&tensor, 2, 0, 9_u32, true).unwrap();
    assert_eq!((values::<u32>(&cut), valid), (vec![1, 2, 3, 4], 2));
    let (cut, valid) = pad_to_capacity(&tensor, 1, 1, 9_u32, true).unwrap();
    assert_eq!((values::<u32>(&cut), valid), (vec![1, 3, 5], 1));
    let (nothing, valid) = pad_to_capacity(&tensor, 0, 0, 9_u32, true).unwrap();
    assert_eq!((nothing.shape().elements(), valid), (0, 0));
    assert!(matches!(
        pad_to_capacity(&tensor, 5, 2, 9_u32, true),
        Err(CapacityError::Tensor(TensorError::BadAxis { .. }))
    ));
    assert!(matches!(
        pad_to_capacity(&tensor, 5, 0, 9.0_f32, true),
        Err(CapacityError::Tensor(TensorError::DTypeMismatch { .. }))
    ));
    assert!(matches!(
        pad_to_capacity(&tensor, usize::MAX, 0, 9_u32, true),
        Err(CapacityError::Tensor(TensorError::TooLarge { .. }))
    ));
}
