//! Rows picked by an index in a buffer.

use sensorium::device::OpDesc;
use sensorium::tensor::{DType, Element, HostTensor, View};

use crate::kernels::harness::{Random, dense, element, run_everywhere};

/// Gathers from random tables through views of every kind; what the index cannot reach must stay as it was.
fn check<T: Element + PartialEq + std::fmt::Debug>(seed: u64, make: impl Fn(u64) -> T) {
    let mut r = Random(seed);
    for _ in 0..60 {
        let (known, n, columns) = (r.range(0, 40), r.range(0, 70), r.range(1, 40));
        let step = r.pick(&[1, 1, 2]);
        let mut table = dense(T::DTYPE, &[known, columns]);
        let mut dst = dense(T::DTYPE, &[n, columns]);
        let pitches = [
            columns * step + r.pick(&[0, 3]),
            columns * step + r.pick(&[0, 0, 5]),
        ];
        for (view, pitch) in [&mut table.view, &mut dst.view].into_iter().zip(pitches) {
            view.strides[..2].copy_from_slice(&[pitch as isize, step as isize]);
            view.offset = r.pick(&[0, 2]);
        }
        let mut index = dense(DType::U32, &[n]);
        index.view.strides[0] = r.pick(&[1, 2]);
        let entries: Vec<u32> = (0..2 * n)
            .map(|_| match r.range(0, 4) {
                0 => r.pick(&[known as u32, known as u32 + 1, u32::MAX, 1 << 31]),
                _ => r.range(0, known.max(1) - 1) as u32,
            })
            .collect();
        let buffer = |r: &mut Random, len: usize| {
            let values: Vec<T> = (0..len).map(|_| make(r.bits())).collect();
            HostTensor::from_slice(&[len], &values).unwrap()
        };
        let source = buffer(&mut r, known * pitches[0] + 2);
        let before = buffer(&mut r, n * pitches[1] + 2);
        let picks = HostTensor::from_slice(&[2 * n], &entries).unwrap();
        let op = OpDesc::GatherRows { table, index, dst };
        let after = run_everywhere(&op, 2, |_| vec![source.clone(), picks.clone(), before.clone()]);
        let mut expected = before.as_slice::<T>().unwrap().to_vec();
        let source = source.as_slice::<T>().unwrap();
        let entry = |row: usize| entries[element(&index.view, &[row])] as usize;
        let place = |view: &View, row: usize, column: usize| element(view, &[row, column]);
        for (row, column) in (0..n).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            expected[place(&dst.view, row, column)] = match entry(row) {
                from if from < known => source[place(&table.view, from, column)],
                _ => T::zeroed(),
            };
        }
        assert_eq!(after.as_slice::<T>().unwrap(), expected, "{op:?}");
    }
}

#[test]
fn rows_of_every_width_are_picked_and_others_are_zeros() {
    check(31, |bits| bits as u8 | 1);
    check(32, |bits| half::bf16::from_f32((bits >> 40) as f32 + 1.0));
    check(33, |bits| (bits >> 40) as f32 + 1.0);
    check(34, |bits| bits | 1);
}
