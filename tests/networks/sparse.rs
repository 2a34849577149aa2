//! Rulebooks of sparse convolutions against dense convolutions, sets found by trial, and spconv's construction.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use sensorium::lidar::sparse::{
    NO_NEIGHBOR, NeighborMap, SparseError, SparseLevel, SparseWindow, SubmRule, conv_out_shape,
    dense_gather_index, gather_index, im2col, im2col_index, iter_taps, kernel_offsets, neighbor_stats,
    pairs_count, select_capacity, strided_neighbor_map, strided_neighbor_map_into, subm_neighbor_map,
    subm_neighbor_map_into,
};

type Voxel = [i32; 3];

/// Repeatable pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// Different voxels between `low` and `high` (exclusive), in no order.
    fn voxels(&mut self, count: usize, low: Voxel, high: Voxel) -> Vec<Voxel> {
        let mut seen = BTreeSet::new();
        let mut voxels = Vec::new();
        for _ in 0..count {
            let voxel = [0, 1, 2].map(|axis| {
                let span = (high[axis] - low[axis]) as u64;
                low[axis] + (self.next() % span) as i32
            });
            if seen.insert(voxel) {
                voxels.push(voxel);
            }
        }
        voxels
    }
}

fn window(kernel: [usize; 3], stride: [usize; 3], padding: [usize; 3]) -> SparseWindow {
    SparseWindow::new(kernel, stride, padding, [1; 3]).unwrap()
}

/// The strided layers of BEVFusion's encoder.
fn bevfusion_windows() -> [SparseWindow; 4] {
    [
        window([3; 3], [2; 3], [1; 3]),
        window([3; 3], [2; 3], [1; 3]),
        window([3; 3], [2; 3], [1, 1, 0]),
        window([1, 1, 3], [1, 1, 2], [0; 3]),
    ]
}

/// The input that an output sees through a tap.
fn seen(output: Voxel, tap: [usize; 3], window: &SparseWindow) -> [i64; 3] {
    [0, 1, 2].map(|axis| {
        i64::from(output[axis]) * window.stride()[axis] as i64 - window.padding()[axis] as i64
            + (tap[axis] * window.dilation()[axis]) as i64
    })
}

/// A dense 3-D cross-correlation in f64 over zero padding: `[X, Y, Z, Cout]`.
fn dense_conv(
    input: &[f64],
    shape: [usize; 3],
    [cin, cout]: [usize; 2],
    weight: &[f64],
    window: &SparseWindow,
) -> Vec<f64> {
    let out = conv_out_shape(shape, window).unwrap();
    let mut y = Vec::with_capacity(out.iter().product::<usize>() * cout);
    let taps: Vec<_> = iter_taps(window.kernel()).collect();
    for place in iter_taps(out) {
        let mut sums = vec![0.0; cout];
        for (k, tap) in taps.iter().enumerate() {
            let from = seen(place.map(|v| v as i32), *tap, window);
            if (0..3).any(|axis| from[axis] < 0 || from[axis] >= shape[axis] as i64) {
                continue;
            }
            let [x, y, z] = from.map(|v| v as usize);
            let row = &input[((x * shape[1] + y) * shape[2] + z) * cin..][..cin];
            for (o, sum) in sums.iter_mut().enumerate() {
                let weights = &weight[(o * taps.len() + k) * cin..][..cin];
                *sum += row.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>();
            }
        }
        y.extend(sums);
    }
    y
}

/// The gather form in f64: weights `[Cout, K, Cin]`.
fn gather_conv(features: &[f64], [cin, cout]: [usize; 2], map: &NeighborMap, weight: &[f64]) -> Vec<f64> {
    let taps = map.taps();
    let mut y = Vec::new();
    for row in map.index().chunks_exact(taps) {
        for o in 0..cout {
            let products = row.iter().enumerate().filter(|(_, entry)| **entry != NO_NEIGHBOR);
            y.push(
                products
                    .map(|(k, &entry)| {
                        let x = &features[entry as usize * cin..][..cin];
                        let w = &weight[(o * taps + k) * cin..][..cin];
                        x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>()
                    })
                    .sum(),
            );
        }
    }
    y
}

fn scatter(level: &SparseLevel, features: &[f64], channels: usize) -> Vec<f64> {
    let shape = level.spatial_shape();
    let mut dense = vec![0.0; shape.iter().product::<usize>() * channels];
    for (row, cell) in level.linear_index().unwrap().into_iter().enumerate() {
        dense[cell as usize * channels..][..channels]
            .copy_from_slice(&features[row * channels..][..channels]);
    }
    dense
}

fn assert_close(found: &[f64], exact: &[f64]) {
    assert_eq!(found.len(), exact.len());
    let worst = found
        .iter()
        .zip(exact)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(worst < 1e-12, "off by {worst}");
}

/// The map straight from its definition, by a table of voxels.
fn map_by_definition(input: &[Voxel], output: &[Voxel], window: &SparseWindow) -> Vec<u32> {
    let rows: HashMap<[i64; 3], u32> = (input.iter().enumerate())
        .map(|(row, v)| (v.map(i64::from), row as u32))
        .collect();
    let mut map = Vec::new();
    for &voxel in output {
        for tap in iter_taps(window.kernel()) {
            map.push(
                rows.get(&seen(voxel, tap, window))
                    .copied()
                    .unwrap_or(NO_NEIGHBOR),
            );
        }
    }
    map
}

/// Output voxels by trying every tap of every cell of the output grid.
fn outputs_by_trial(input: &[Voxel], out_shape: [usize; 3], window: &SparseWindow) -> Vec<Voxel> {
    let active: BTreeSet<[i64; 3]> = input.iter().map(|v| v.map(i64::from)).collect();
    let cells = iter_taps(out_shape).map(|cell| cell.map(|v| v as i32));
    let reached =
        |cell: &Voxel| iter_taps(window.kernel()).any(|tap| active.contains(&seen(*cell, tap, window)));
    cells.filter(reached).collect()
}

/// spconv's construction of sub-manifold pairs as it is documented: for the first half of the taps look up the
/// neighbour where it lies inside the grid, and enter the pair under the tap and, the other way round, its opposite.
fn spconv_construction(
    voxels: &[Voxel],
    shape: [usize; 3],
    kernel: [usize; 3],
    dilation: [usize; 3],
) -> Vec<u32> {
    let taps = kernel.iter().product::<usize>();
    let table: HashMap<Voxel, u32> = voxels
        .iter()
        .enumerate()
        .map(|(row, &v)| (v, row as u32))
        .collect();
    let mut map = vec![NO_NEIGHBOR; voxels.len() * taps];
    for (row, voxel) in voxels.iter().enumerate() {
        for (k, tap) in iter_taps(kernel).enumerate().take(taps / 2 + 1) {
            if k == taps / 2 {
                map[row * taps + k] = row as u32;
                continue;
            }
            let place = [0, 1, 2].map(|axis| {
                voxel[axis] - (kernel[axis] / 2 * dilation[axis]) as i32 + (tap[axis] * dilation[axis]) as i32
            });
            let valid = (0..3).all(|axis| 0 <= place[axis] && (place[axis] as usize) < shape[axis]);
            if let (true, Some(&found)) = (valid, table.get(&place)) {
                map[row * taps + k] = found;
                map[found as usize * taps + (taps - 1 - k)] = row as u32;
            }
        }
    }
    map
}

#[test]
fn maps_give_what_dense_convolutions_give_at_active_voxels() {
    let mut r = Random(1);
    let shape = [14, 11, 9];
    let level = SparseLevel::new(&r.voxels(170, [0; 3], shape.map(|v| v as i32)), shape).unwrap();
    for (case, strided) in bevfusion_windows().iter().enumerate() {
        let channels = [[4, 6], [6, 5], [3, 8], [8, 8]][case];
        let [cin, cout] = channels;
        let mut values = |count: usize| (0..count).map(|_| r.unit()).collect::<Vec<f64>>();
        let features = values(level.num_active() * cin);
        let dense = scatter(&level, &features, cin);
        for submanifold in [true, false] {
            let (out, map, window) = match submanifold {
                true => {
                    let map = subm_neighbor_map(&level, [3; 3], [1; 3], SubmRule::Spconv).unwrap();
                    (
                        level.clone(),
                        map,
                        SparseWindow::submanifold([3; 3], [1; 3]).unwrap(),
                    )
                }
                false => {
                    let (out, map) = strided_neighbor_map(&level, strided).unwrap();
                    (out, map, *strided)
                }
            };
            let weight = values(cout * window.taps() * cin);
            let found = gather_conv(&features, channels, &map, &weight);
            let exact = dense_conv(&dense, shape, channels, &weight, &window);
            let at = out.linear_index().unwrap();
            let exact: Vec<f64> = at
                .iter()
                .flat_map(|&cell| exact[cell as usize * cout..][..cout].to_vec())
                .collect();
            assert_close(&found, &exact);
            if !submanifold {
                let ones = dense_conv(
                    &scatter(&level, &vec![1.0; level.num_active()], 1),
                    shape,
                    [1, 1],
                    &vec![1.0; window.taps()],
                    &window,
                );
                let reached = ones.iter().filter(|&&sum| sum > 0.5).count();
                assert_eq!(
                    out.num_active(),
                    reached,
                    "every output that sees a voxel is active"
                );
                assert!(
                    at.windows(2).all(|pair| pair[0] < pair[1]),
                    "outputs are in ascending order"
                );
            }
        }
    }
}

#[test]
fn the_levels_of_bevfusion_have_their_grids_and_outputs() {
    let mut r = Random(2);
    let mut level =
        SparseLevel::new(&r.voxels(3000, [600, 600, 0], [700, 700, 41]), [1440, 1440, 41]).unwrap();
    let shapes = [[720, 720, 21], [360, 360, 11], [180, 180, 5], [180, 180, 2]];
    let mut kept = (SparseLevel::empty([1; 3]).unwrap(), NeighborMap::default());
    for (window, shape) in bevfusion_windows().iter().zip(shapes) {
        assert_eq!(conv_out_shape(level.spatial_shape(), window).unwrap(), shape);
        let (out, map) = strided_neighbor_map(&level, window).unwrap();
        assert_eq!(out.spatial_shape(), shape);
        assert_eq!(
            map.index(),
            map_by_definition(level.coords(), out.coords(), window)
        );
        let mut reached = BTreeSet::new();
        for voxel in level.coords() {
            for tap in iter_taps(window.kernel()) {
                let up = [0, 1, 2].map(|axis| voxel[axis] + window.padding()[axis] as i32 - tap[axis] as i32);
                let stride = window.stride().map(|s| s as i32);
                let place = [0, 1, 2].map(|axis| up[axis].div_euclid(stride[axis]));
                let whole = (0..3).all(|axis| up[axis].rem_euclid(stride[axis]) == 0);
                if whole && out.in_grid(place) {
                    reached.insert(place);
                }
            }
        }
        assert_eq!(out.coords(), reached.into_iter().collect::<Vec<_>>());
        // A level and a map of another frame are no different.
        strided_neighbor_map_into(&level, window, &mut kept.0, &mut kept.1).unwrap();
        assert_eq!((kept.0.coords(), &kept.1), (out.coords(), &map));
        level = out;
    }
}

#[test]
fn voxels_outside_the_grid_count_as_spconv_counts_them() {
    let mut r = Random(3);
    let shape = [8, 7, 6];
    let mut differs = 0;
    for round in 0..20 {
        let voxels = r.voxels(150, [-3, -3, -3], [11, 10, 9]);
        let level = SparseLevel::new(&voxels, shape).unwrap();
        assert!(!level.all_in_grid());
        let (kernel, dilation) = (
            [[3; 3], [5, 3, 1], [3, 1, 3]][round % 3],
            [[1; 3], [2, 1, 1]][round % 2],
        );
        let spconv = subm_neighbor_map(&level, kernel, dilation, SubmRule::Spconv).unwrap();
        assert_eq!(
            spconv.index(),
            spconv_construction(&voxels, shape, kernel, dilation)
        );
        let exact = subm_neighbor_map(&level, kernel, dilation, SubmRule::Exact).unwrap();
        let window = SparseWindow::submanifold(kernel, dilation).unwrap();
        assert_eq!(exact.index(), map_by_definition(&voxels, &voxels, &window));
        differs += usize::from(exact != spconv);

        let inside: Vec<Voxel> = voxels.into_iter().filter(|&v| level.in_grid(v)).collect();
        let level = SparseLevel::new(&inside, shape).unwrap();
        let both = [SubmRule::Spconv, SubmRule::Exact]
            .map(|rule| subm_neighbor_map(&level, kernel, dilation, rule).unwrap());
        assert_eq!(both[0], both[1], "inside the grid the rules are one");
    }
    assert!(differs > 10);
}

#[test]
fn voxels_are_found_wherever_they_are() {
    let far = [i32::MIN, i32::MAX, 7];
    let voxels = [[5, 1, 2], [0, 0, 0], far, [-1, 0, 0], [5, 1, 1]];
    let level = SparseLevel::new(&voxels, [8, 8, 8]).unwrap();
    for (row, &voxel) in voxels.iter().enumerate() {
        assert_eq!(level.lookup(voxel), Some(row as u32));
    }
    for missing in [
        [5, 1, 3],
        [5, 1, 0],
        [5, 2, 1],
        [4, 1, 1],
        [i32::MAX, i32::MIN, 7],
    ] {
        assert_eq!(level.lookup(missing), None);
    }
    assert_eq!(voxels.map(|v| level.in_grid(v)), [true, true, false, false, true]);
    assert_eq!(level.to_string(), "5 active voxels in 8 x 8 x 8 cells, 2 outside");
    let exact = subm_neighbor_map(&level, [3; 3], [1; 3], SubmRule::Exact).unwrap();
    let window = SparseWindow::submanifold([3; 3], [1; 3]).unwrap();
    assert_eq!(exact.index(), map_by_definition(&voxels, &voxels, &window));
    let inside = SparseLevel::new(&[[1, 2, 3], [0, 7, 7]], [8, 9, 10]).unwrap();
    assert_eq!(inside.linear_index().unwrap(), [(9 + 2) * 10 + 3, 77]);
    assert!(matches!(
        level.linear_index(),
        Err(SparseError::OutOfGrid { row: 2, voxel, .. }) if voxel == far
    ));
}

#[test]
fn taps_are_numbered_with_z_fastest() {
    let taps: Vec<_> = iter_taps([2, 1, 3]).collect();
    assert_eq!(
        taps,
        [[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 0], [1, 0, 1], [1, 0, 2]]
    );
    assert_eq!(
        kernel_offsets([2, 1, 3], [3, 1, 2]).unwrap(),
        [
            [-3, 0, -2],
            [-3, 0, 0],
            [-3, 0, 2],
            [0, 0, -2],
            [0, 0, 0],
            [0, 0, 2]
        ]
    );
}

#[test]
fn tile_ordered_indices_stand_for_the_im2col_matrix() {
    let mut r = Random(5);
    let level = SparseLevel::new(&r.voxels(75, [0; 3], [6, 6, 6]), [6; 3]).unwrap();
    let map = subm_neighbor_map(&level, [3; 3], [1; 3], SubmRule::Spconv).unwrap();
    let (rows, taps) = (96, 27);
    let sentinel = 96_u32;
    let mut plain = vec![7; rows * taps];
    gather_index(&map, sentinel, &mut plain).unwrap();
    for (row, entries) in plain.chunks(taps).enumerate() {
        for (k, &entry) in entries.iter().enumerate() {
            let expected = map
                .index()
                .get(row * taps + k)
                .filter(|&&entry| entry != NO_NEIGHBOR);
            assert_eq!(entry, expected.copied().unwrap_or(sentinel));
        }
    }
    for cin in [32, 64, 128] {
        let table: Vec<f32> = (0..level.num_active() * cin).map(|_| r.unit() as f32).collect();
        let mut tiled = vec![9; rows * taps];
        im2col_index(&map, sentinel, 32, &mut tiled).unwrap();
        let matrix = im2col(&table, cin, &tiled, (taps, 32), sentinel).unwrap();
        // What a gather in tile order leaves in memory: tiles of 32 x 32 of `[taps * 32, cin]`, block after block.
        for (block, entries) in tiled.chunks(taps * 32).enumerate() {
            for (tile_row, picks) in entries.chunks(32).enumerate() {
                for tile_column in 0..cin / 32 {
                    for (v, &pick) in picks.iter().enumerate() {
                        for c in 0..32 {
                            let from = table.get(pick as usize * cin + tile_column * 32 + c);
                            let row = block * 32 + v;
                            let column = tile_row * cin + tile_column * 32 + c;
                            let expected = from.copied().unwrap_or(0.0);
                            assert_eq!(matrix[row * taps * cin + column], expected);
                            // The same row by the plain index.
                            assert_eq!(plain[row * taps + column / cin], pick);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn dense_gathers_put_every_voxel_at_its_cell() {
    let mut r = Random(6);
    let shape = [5, 6, 4];
    let level = SparseLevel::new(&r.voxels(40, [0; 3], [5, 6, 4]), shape).unwrap();
    let sentinel = level.num_active() as u32;
    for split in 0..3 {
        let mut index = vec![1; 120];
        dense_gather_index(&level, sentinel, split, &mut index).unwrap();
        let axes: Vec<usize> = (0..3).filter(|&axis| axis != split).collect();
        for [s, a, b] in iter_taps([shape[split], shape[axes[0]], shape[axes[1]]]) {
            let mut voxel = [0; 3];
            (voxel[split], voxel[axes[0]], voxel[axes[1]]) = (s as i32, a as i32, b as i32);
            let entry = index[(s * shape[axes[0]] + a) * shape[axes[1]] + b];
            assert_eq!(entry, level.lookup(voxel).unwrap_or(sentinel));
        }
    }
}

#[test]
fn capacities_and_statistics_are_those_of_the_map() {
    assert_eq!(select_capacity(0, &[10, 20]).unwrap(), (10, false));
    assert_eq!(select_capacity(10, &[10, 20]).unwrap(), (10, false));
    assert_eq!(select_capacity(11, &[10, 20]).unwrap(), (20, false));
    assert_eq!(select_capacity(21, &[10, 20]).unwrap(), (20, true));
    for buckets in [&[][..], &[20, 10], &[10, 10]] {
        assert!(matches!(
            select_capacity(1, buckets),
            Err(SparseError::Buckets { .. })
        ));
    }
    let level = SparseLevel::new(&[[0, 0, 0], [0, 0, 1], [0, 0, 2], [3, 3, 3]], [4; 3]).unwrap();
    let map = subm_neighbor_map(&level, [3; 3], [1; 3], SubmRule::Exact).unwrap();
    let stats = neighbor_stats(&map);
    assert_eq!((stats.rows, stats.pairs, stats.max_taps), (4, 8, 3));
    assert_eq!((stats.mean_taps, pairs_count(&map)), (2.0, 8));
    let none = subm_neighbor_map(
        &SparseLevel::empty([4; 3]).unwrap(),
        [3; 3],
        [1; 3],
        SubmRule::Exact,
    )
    .unwrap();
    assert_eq!((neighbor_stats(&none).mean_taps, none.rows()), (0.0, 0));
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let voxels = [[1, 2, 3], [0, 0, 0], [1, 2, 3]];
    let duplicate = SparseLevel::new(&voxels, [4; 3]).unwrap_err();
    assert_eq!(
        duplicate,
        SparseError::Duplicate {
            first: 0,
            second: 2,
            voxel: [1, 2, 3]
        }
    );
    assert!(duplicate.to_string().contains("give each active voxel once"));
    for shape in [[0, 1, 1], [1 << 30, 1, 1], [1 << 29; 3]] {
        assert!(matches!(
            SparseLevel::new(&[], shape),
            Err(SparseError::Shape { .. })
        ));
    }
    let level = SparseLevel::new(&[[0, 0, 0], [9, 0, 0]], [4; 3]).unwrap();
    let error = strided_neighbor_map(&level, &window([3; 3], [2; 3], [1; 3])).unwrap_err();
    assert!(matches!(
        error,
        SparseError::OutOfGrid {
            row: 1,
            voxel: [9, 0, 0],
            ..
        }
    ));
    assert!(
        error
            .to_string()
            .contains("a strided layer needs all voxels inside")
    );

    let rule = |text: &str| text.parse::<SubmRule>();
    assert_eq!(
        (rule("spconv"), rule("exact")),
        (Ok(SubmRule::Spconv), Ok(SubmRule::Exact))
    );
    assert_eq!(rule("alias"), Err(SparseError::AliasRule));
    assert!(matches!(rule("other"), Err(SparseError::UnknownRule { .. })));
    let even = subm_neighbor_map(&level, [2, 3, 3], [1; 3], SubmRule::Spconv);
    assert_eq!(even, Err(SparseError::EvenKernel { kernel: [2, 3, 3] }));

    let bad = |k, s, p, d| SparseWindow::new(k, s, p, d).unwrap_err();
    assert!(matches!(
        bad([0, 1, 1], [1; 3], [0; 3], [1; 3]),
        SparseError::Window { what: "kernel", .. }
    ));
    assert!(matches!(
        bad([1; 3], [0; 3], [0; 3], [1; 3]),
        SparseError::Window { what: "stride", .. }
    ));
    assert!(matches!(
        bad([1; 3], [1; 3], [0; 3], [0; 3]),
        SparseError::Window { what: "dilation", .. }
    ));
    assert!(matches!(
        bad([1; 3], [1; 3], [usize::MAX; 3], [1; 3]),
        SparseError::Padding { .. }
    ));
    assert!(matches!(
        bad([17; 3], [1; 3], [0; 3], [1; 3]),
        SparseError::KernelVolume { .. }
    ));
    let none = conv_out_shape([2, 9, 9], &window([3; 3], [1; 3], [0; 3])).unwrap_err();
    assert!(matches!(
        none,
        SparseError::NoOutput {
            axis: 0,
            cells: 2,
            ..
        }
    ));

    let map = subm_neighbor_map(&level, [1; 3], [1; 3], SubmRule::Exact).unwrap();
    let mut index = [0; 4];
    assert!(matches!(
        gather_index(&map, 1, &mut index),
        Err(SparseError::Sentinel { sentinel: 1, rows: 2 })
    ));
    assert!(matches!(
        gather_index(&map, 4, &mut index[..1]),
        Err(SparseError::Capacity { capacity: 1, rows: 2 })
    ));
    assert!(matches!(
        im2col_index(&map, 4, 3, &mut index),
        Err(SparseError::Block { rows: 4, block: 3 })
    ));
    assert!(matches!(
        im2col_index(&map, 4, 0, &mut index),
        Err(SparseError::Block { .. })
    ));
    assert!(matches!(
        im2col(&[0.0; 4], 2, &[0, 2], (1, 1), 9),
        Err(SparseError::Entry {
            position: 1,
            value: 2,
            rows: 2
        })
    ));
    assert!(matches!(
        im2col(&[0.0; 5], 2, &[0], (1, 1), 9),
        Err(SparseError::Length { .. })
    ));
    assert!(matches!(
        dense_gather_index(&map_level(), 9, 3, &mut index),
        Err(SparseError::Axis { found: 3 })
    ));
    assert!(matches!(
        dense_gather_index(&map_level(), 9, 0, &mut index),
        Err(SparseError::Length {
            expected: 8,
            found: 4,
            ..
        })
    ));
    assert_eq!(index, [0; 4], "nothing was written");
    let mut reused = SparseLevel::new(&[[1, 1, 1]], [4; 3]).unwrap();
    reused.set(&voxels).unwrap_err();
    assert_eq!((reused.num_active(), reused.lookup([1, 1, 1])), (0, None));
    let mut map = NeighborMap::default();
    subm_neighbor_map_into(&reused, [3; 3], [1; 3], SubmRule::Exact, &mut map).unwrap();
    assert_eq!((map.rows(), map.taps()), (0, 27));
}

fn map_level() -> SparseLevel {
    SparseLevel::new(&[[0, 0, 0]], [2; 3]).unwrap()
}

#[test]
fn a_map_that_memory_cannot_hold_is_refused() {
    let voxels: Vec<Voxel> = (0..100_000).map(|i| [i, 0, 0]).collect();
    let level = SparseLevel::new(&voxels, [100_000, 1, 1]).unwrap();
    let wide = SparseWindow::new([16; 3], [1; 3], [15; 3], [1; 3]).unwrap();
    assert_eq!(
        strided_neighbor_map(&level, &wide).unwrap_err(),
        SparseError::TooLarge {
            rows: 100_000,
            taps: 4096
        }
    );
    let kernel = [15; 3];
    assert_eq!(
        subm_neighbor_map(&level, kernel, [1; 3], SubmRule::Exact).unwrap_err(),
        SparseError::TooLarge {
            rows: 100_000,
            taps: 3375
        }
    );
}

/// Kernel, stride, padding and dilation of any form.
fn any_window() -> impl Strategy<Value = SparseWindow> {
    let axis = || (1..=4_usize, 1..=3_usize, 0..=3_usize, 1..=3_usize);
    [axis(), axis(), axis()].prop_map(|axes| {
        let of = |pick: fn((usize, usize, usize, usize)) -> usize| axes.map(pick);
        SparseWindow::new(of(|a| a.0), of(|a| a.1), of(|a| a.2), of(|a| a.3)).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Flat, tall (above the height of a mask) and wide grids; any geometry.
    #[test]
    fn strided_maps_are_what_trial_finds(
        window in any_window(),
        shape in prop_oneof![Just([9, 8, 7]), Just([3, 5, 90]), Just([4, 4, 64]), Just([30, 2, 1])],
        seed in any::<u64>(),
        count in 0..120_usize,
    ) {
        let voxels = Random(seed).voxels(count, [0; 3], shape.map(|v| v as i32));
        let level = SparseLevel::new(&voxels, shape).unwrap();
        match (conv_out_shape(shape, &window), strided_neighbor_map(&level, &window)) {
            (Ok(out_shape), Ok((out, map))) => {
                prop_assert_eq!(out.spatial_shape(), out_shape);
                prop_assert_eq!(out.coords(), outputs_by_trial(&voxels, out_shape, &window));
                prop_assert_eq!(map.index(), map_by_definition(&voxels, out.coords(), &window));
                prop_assert_eq!((map.rows(), map.inputs()), (out.num_active(), voxels.len()));
                for (row, &voxel) in out.coords().iter().enumerate() {
                    prop_assert_eq!(out.lookup(voxel), Some(row as u32));
                }
            }
            (Err(a), Err(b)) => prop_assert_eq!(a, b),
            (a, b) => prop_assert!(false, "{:?} but {:?}", a, b.map(|_| ())),
        }
    }

    #[test]
    fn submanifold_maps_are_what_trial_finds(
        kernel in [1..=4_usize, 1..=4, 1..=5],
        dilation in [1..=3_usize, 1..=2, 1..=3],
        low in prop_oneof![Just([0; 3]), Just([-4, -2, -3]), Just([-4, -2, -80])],
        seed in any::<u64>(),
        count in 0..150_usize,
    ) {
        let shape = [7, 6, 6];
        let voxels = Random(seed).voxels(count, low, [9, 8, 9]);
        let level = SparseLevel::new(&voxels, shape).unwrap();
        let exact = subm_neighbor_map(&level, kernel, dilation, SubmRule::Exact).unwrap();
        let window = SparseWindow::submanifold(kernel, dilation).unwrap();
        prop_assert_eq!(exact.index(), map_by_definition(&voxels, &voxels, &window));
        match subm_neighbor_map(&level, kernel, dilation, SubmRule::Spconv) {
            Ok(map) => prop_assert_eq!(map.index(), spconv_construction(&voxels, shape, kernel, dilation)),
            Err(error) => prop_assert_eq!(error, SparseError::EvenKernel { kernel }),
        }
    }
}
