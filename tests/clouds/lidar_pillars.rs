//! Points to pillars, features and maps.

use crate::support;
use std::collections::BTreeMap;

use proptest::prelude::*;
use sensorium::lidar::{
    CellOrder, Columns, EncoderInput, FeatureRows, PillarCell, PillarGridSpec, PillarSet, PillarStats,
    PointColumns, SlotFill, SlotHistory, assign_pillars, canvas_gather_index, decorate, finite_rows,
    nonzero_rows, range_mask, scatter_canvas, seeded_permutation,
};
use sensorium::numeric::{f16_to_f32, round_to_bf16};

/// The grid of Autoware's `lidar_centerpoint`: 480 x 480 cells of 0.32 m.
fn autoware() -> PillarGridSpec {
    PillarGridSpec::new([-76.8, -76.8, -4.0], [76.8, 76.8, 6.0], [0.32, 0.32, 10.0]).unwrap()
}

/// 8 x 5 cells of sizes that float32 does not hold.
fn small() -> PillarGridSpec {
    PillarGridSpec::new([-0.7, -1.1, -3.0], [1.7, 0.4, 5.0], [0.3, 0.3, 8.0]).unwrap()
}

/// Points row by row.
#[derive(Debug, Clone, PartialEq)]
struct Points {
    columns: Vec<Vec<f32>>,
}

impl Points {
    fn new(rows: &[Vec<f32>], features: usize) -> Self {
        let column = |i: usize| rows.iter().map(|row| row[i]).collect();
        Self {
            columns: (0..features).map(column).collect(),
        }
    }

    /// The first `features` of `stored` little-endian float32 values a point.
    fn from_bytes(bytes: &[u8], stored: usize, features: usize) -> Self {
        let values = support::floats(bytes);
        let rows: Vec<_> = values.chunks(stored).map(<[f32]>::to_vec).collect();
        Self::new(&rows, features)
    }

    fn rows(&self) -> Vec<Vec<f32>> {
        (0..self.columns[0].len())
            .map(|i| self.columns.iter().map(|column| column[i]).collect())
            .collect()
    }

    fn borrow(&self) -> PointColumns<'_> {
        let extra: Vec<&[f32]> = self.columns[3..].iter().map(Vec::as_slice).collect();
        PointColumns::new(&self.columns[0], &self.columns[1], &self.columns[2], &extra).unwrap()
    }

    fn assign(&self, grid: PillarGridSpec, seed: Option<u64>) -> PillarSet {
        let mut set = PillarSet::new(grid);
        assign_pillars(&self.borrow(), seed, &mut set);
        set
    }
}

fn xyz(points: &[[f32; 3]]) -> Points {
    let rows: Vec<_> = points.iter().map(|p| vec![p[0], p[1], p[2], 0.0]).collect();
    Points::new(&rows, 4)
}

/// Every point of a set, pillar by pillar, with the place.
fn contents(set: &PillarSet) -> Vec<(PillarCell, Vec<Vec<f32>>)> {
    let pillar = |i: usize| {
        let rows: Vec<_> = set
            .points(i)
            .chunks(set.point_features())
            .map(<[f32]>::to_vec)
            .collect();
        assert_eq!(rows.len(), set.num_points(i));
        (set.coords()[i], rows)
    };
    (0..set.len()).map(pillar).collect()
}

/// Place and points of a pillar.
type Pillar = (PillarCell, Vec<Vec<f32>>);

/// The rules once more, point by point with a map in place of counters.
fn by_the_rules(points: &Points, grid: &PillarGridSpec, seed: Option<u64>) -> (Vec<Pillar>, PillarStats) {
    let rows = points.rows();
    let given = rows.len().min(grid.cloud_capacity());
    let mut order: Vec<u32> = (0..given as u32).collect();
    if let Some(seed) = seed {
        seeded_permutation(given as u32, seed, &mut order);
    }
    let mut stats = PillarStats {
        points: rows.len(),
        over_capacity: rows.len() - given,
        ..PillarStats::default()
    };
    let (min, max, voxel) = (grid.range_min_m(), grid.range_max_m(), grid.voxel_size_m());
    let mut cells: BTreeMap<u32, (PillarCell, Vec<Vec<f32>>)> = BTreeMap::new();
    for i in order {
        let row = &rows[i as usize];
        if row.iter().any(|v| !v.is_finite()) {
            stats.not_finite += 1;
            continue;
        }
        if (0..3).any(|axis| row[axis] < min[axis] || row[axis] >= max[axis]) {
            stats.out_of_range += 1;
            continue;
        }
        let index = |axis: usize, cells: usize| {
            let index = ((row[axis] - min[axis]) / voxel[axis]).floor() as i64;
            index.clamp(0, cells as i64 - 1) as u16
        };
        let (ix, iy) = (index(0, grid.grid_x()), index(1, grid.grid_y()));
        let rank = match grid.order() {
            CellOrder::FlippedX => {
                (grid.grid_x() as u32 - 1 - u32::from(ix)) * grid.grid_y() as u32 + u32::from(iy)
            }
            CellOrder::Raster => u32::from(iy) * grid.grid_x() as u32 + u32::from(ix),
        };
        let (_, pillar) = cells.entry(rank).or_insert((PillarCell { iy, ix }, Vec::new()));
        if pillar.len() == grid.max_points_per_pillar() {
            stats.over_slots += 1;
        } else {
            pillar.push(row.clone());
        }
    }
    stats.pillars_total = cells.len();
    let mut pillars: Vec<_> = cells.into_values().collect();
    let dropped = pillars.split_off(pillars.len().min(grid.max_pillars()));
    stats.pillars_dropped = dropped.len();
    stats.over_pillars = dropped.iter().map(|(_, rows)| rows.len()).sum();
    stats.kept = pillars.iter().map(|(_, rows)| rows.len()).sum();
    (pillars, stats)
}

/// The kernel's features of one pillar: (slots, encoder), and what is in slots without a point.
fn features_by_the_rules(
    (place, rows): &(PillarCell, Vec<Vec<f32>>),
    grid: &PillarGridSpec,
    input: EncoderInput,
    fill: SlotFill,
) -> Vec<f32> {
    let mut sum = [0.0_f32; 3];
    for row in rows {
        (0..3).for_each(|axis| sum[axis] += row[axis]);
    }
    let count = rows.len() as f32;
    let (voxel, min) = (grid.voxel_size_m(), grid.range_min_m());
    let index = [f32::from(place.ix), f32::from(place.iy), 0.0];
    let with_z = matches!(input, EncoderInput::Ten | EncoderInput::Eleven);
    let mut out = Vec::new();
    for row in rows {
        out.extend(row);
        for axis in 0..3 {
            let mean = sum[axis] / count;
            out.push(row[axis] - mean);
        }
        for axis in 0..if with_z { 3 } else { 2 } {
            let half = voxel[axis] / 2.0;
            let step = index[axis] * voxel[axis];
            let centre = (half + step) + min[axis];
            out.push(row[axis] - centre);
        }
    }
    assert_eq!(out.len(), rows.len() * input.size());
    let empty = match fill {
        SlotFill::Zeros => vec![0.0; input.size()],
        SlotFill::FirstPoint => out[..input.size()].to_vec(),
    };
    while out.len() < grid.max_points_per_pillar() * input.size() {
        out.extend(&empty);
    }
    out
}

const INPUTS: [EncoderInput; 4] = [
    EncoderInput::Nine,
    EncoderInput::Ten,
    EncoderInput::Eleven,
    EncoderInput::Twelve,
];

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Points on a coarse lattice and beside it, some outside, some that are no numbers.
fn any_points(features: usize) -> impl Strategy<Value = Points> {
    let value = prop_oneof![
        30 => -1.4_f32..2.0,
        10 => (-12_i8..20).prop_map(|v| f32::from(v) * 0.1),
        1 => prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE, -0.7, 1.7]),
    ];
    let row = prop::collection::vec(value, features);
    prop::collection::vec(row, 0..250).prop_map(move |rows| Points::new(&rows, features))
}

fn any_grid() -> impl Strategy<Value = PillarGridSpec> {
    let order = prop::sample::select(vec![CellOrder::FlippedX, CellOrder::Raster]);
    let slots = prop::sample::select(vec![1_usize, 2, 5, 20, 32]);
    (order, slots, 1_usize..60, 1_usize..300).prop_map(|(order, slots, pillars, capacity)| {
        small()
            .with_order(order)
            .with_max_points_per_pillar(slots)
            .and_then(|grid| grid.with_max_pillars(pillars))
            .and_then(|grid| grid.with_cloud_capacity(capacity))
            .unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pillars_and_features_follow_the_rules_bit_for_bit(
        grid in any_grid(),
        (input, points) in prop::sample::select(INPUTS.to_vec())
            .prop_flat_map(|input| (Just(input), any_points(input.point_features()))),
        seed in prop::option::of(any::<u64>()),
        fill in prop::sample::select(vec![SlotFill::Zeros, SlotFill::FirstPoint]),
    ) {
        let (pillars, stats) = by_the_rules(&points, &grid, seed);
        let set = points.assign(grid, seed);
        prop_assert_eq!(contents(&set), pillars.clone());
        prop_assert_eq!(set.stats(), stats);
        let PillarStats { over_capacity, not_finite, out_of_range, over_slots, over_pillars, kept, .. } = stats;
        let told = over_capacity + not_finite + out_of_range + over_slots + over_pillars + kept;
        prop_assert_eq!(told, points.rows().len());

        let slots = grid.max_points_per_pillar();
        let mut expected: Vec<f32> = pillars.iter().flat_map(|pillar| features_by_the_rules(pillar, &grid, input, fill)).collect();
        let row = slots * input.size();
        expected.resize(expected.len() + 3 * row, 0.0);
        let mut dense = vec![9.0; expected.len()];
        decorate(&set, input, FeatureRows::Dense(&mut dense), fill, None).unwrap();
        prop_assert_eq!(bits(&dense), bits(&expected));

        // The layouts of the device: 32 slots of 16 values, the first slot once more where the grid has fewer.
        let wide: Vec<f32> = expected
            .chunks(row)
            .flat_map(|row| {
                let slot = move |i: usize| &row[i * input.size()..][..input.size()];
                (0..32).flat_map(move |i| {
                    let values = slot(if i < slots { i } else { 0 });
                    values.iter().copied().chain(std::iter::repeat_n(0.0, 16 - input.size()))
                })
            })
            .collect();
        let mut device = vec![9.0; wide.len()];
        decorate(&set, input, FeatureRows::Device32(&mut device), fill, None).unwrap();
        prop_assert_eq!(bits(&device), bits(&wide));
        let mut codes = vec![9; wide.len()];
        decorate(&set, input, FeatureRows::DeviceBf16(&mut codes), fill, None).unwrap();
        let rounded: Vec<u16> = wide.iter().map(|&v| (round_to_bf16(v).to_bits() >> 16) as u16).collect();
        prop_assert_eq!(codes, rounded);
    }

    #[test]
    fn a_buffer_used_again_holds_what_a_cleared_one_holds(
        frames in prop::collection::vec((any_points(4), any_grid(), any::<bool>(), any::<bool>()), 1..6),
    ) {
        let (mut dense, mut dense_history) = (vec![7.0; 60 * 32 * 9], SlotHistory::default());
        let (mut device, mut device_history) = (vec![7; 60 * 512], SlotHistory::default());
        for (points, grid, other, first) in frames {
            let fill = if first { SlotFill::FirstPoint } else { SlotFill::Zeros };
            let set = points.assign(grid, None);
            let input = if other { EncoderInput::Ten } else { EncoderInput::Nine };
            // Sizes that come again take the buffer up where they left it only if nothing came between.
            let length = 60 * grid.max_points_per_pillar() * input.size();
            dense.resize(length, 7.0);
            let mut cleared = vec![7.0; length];
            decorate(&set, input, FeatureRows::Dense(&mut cleared), fill, None).unwrap();
            decorate(&set, input, FeatureRows::Dense(&mut dense), fill, Some(&mut dense_history)).unwrap();
            prop_assert_eq!(bits(&dense), bits(&cleared));
            let mut cleared = vec![7; 60 * 512];
            decorate(&set, input, FeatureRows::DeviceBf16(&mut cleared), fill, None).unwrap();
            decorate(&set, input, FeatureRows::DeviceBf16(&mut device), fill, Some(&mut device_history)).unwrap();
            prop_assert_eq!(&device, &cleared);
        }
    }

    #[test]
    fn a_map_of_scattered_rows_is_the_map_of_gathered_ones(points in any_points(4), channels in 1_usize..5) {
        let grid = small();
        let set = points.assign(grid, None);
        let table: Vec<f32> = (0..set.len() * channels).map(|i| i as f32 + 1.0).collect();
        let cells = grid.grid_x() * grid.grid_y();
        let mut map = vec![5.0; channels * cells];
        scatter_canvas(&table, set.coords(), &grid, channels, &mut map).unwrap();
        let mut index = vec![77; cells];
        canvas_gather_index(set.coords(), &grid, 1000, &mut index).unwrap();
        for iy in 0..grid.grid_y() {
            for ix in 0..grid.grid_x() {
                let cell = iy * grid.grid_x() + ix;
                let pillar = set.coords().iter().position(|p| (usize::from(p.iy), usize::from(p.ix)) == (iy, ix));
                prop_assert_eq!(index[cell], pillar.map_or(1000, |pillar| pillar as u32));
                for channel in 0..channels {
                    let expected = pillar.map_or(0.0, |pillar| table[pillar * channels + channel]);
                    prop_assert_eq!(map[channel * cells + cell], expected);
                }
            }
        }
    }

    #[test]
    fn a_permutation_holds_every_number_once(length in 0_u32..500, seed in any::<u64>()) {
        let mut order = vec![9];
        seeded_permutation(length, seed, &mut order);
        order.sort_unstable();
        prop_assert_eq!(order, (0..length).collect::<Vec<_>>());
    }
}

#[test]
fn a_seed_stands_for_the_same_order_for_ever() {
    let order = |length, seed| {
        let mut order = Vec::new();
        seeded_permutation(length, seed, &mut order);
        order
    };
    assert_eq!(order(10, 0), ORDER_0);
    assert_eq!(order(10, 1_234_567), ORDER_1234567);
    // Every order of three is as likely as any other.
    let mut seen = BTreeMap::new();
    for seed in 0..6000 {
        *seen.entry(order(3, seed)).or_insert(0) += 1;
    }
    assert!(
        seen.len() == 6 && seen.values().all(|n| (900..1100).contains(n)),
        "{seen:?}"
    );
}

/// As `tests/oracles/pillars.py` computes them.
const ORDER_0: [u32; 10] = [4, 9, 2, 5, 1, 7, 6, 0, 3, 8];
const ORDER_1234567: [u32; 10] = [6, 9, 0, 7, 2, 5, 8, 4, 1, 3];

#[test]
fn masks_tell_points_that_are_worth_keeping() {
    let x = [1.0, f32::NAN, 0.0, -0.0, 2.0, -1.0, 3.0];
    let y = [0.0, 0.0, 0.0, 0.0, f32::INFINITY, 0.0, 0.0];
    let z = [0.0, 0.0, 0.0, 0.0, 0.0, f32::NEG_INFINITY, 0.0];
    let columns = Columns {
        x: &x,
        y: &y,
        z: &z,
        intensity: &[],
    };
    let mut mask = vec![true; 100];
    assert_eq!(finite_rows(&columns, &mut mask), Ok(4));
    assert_eq!(mask, [true, false, true, true, false, false, true]);
    assert_eq!(nonzero_rows(&columns, &mut mask), Ok(5));
    assert_eq!(mask, [true, true, false, false, true, true, true]);
    assert_eq!(range_mask(&columns, [0.0; 3], [3.0, 1.0, 1.0], &mut mask), Ok(3));
    assert_eq!(mask, [true, false, true, true, false, false, false]);
    let short = Columns {
        z: &z[1..],
        ..columns
    };
    assert!(finite_rows(&short, &mut mask).is_err());
}

#[test]
fn the_number_of_cells_is_that_of_float32() {
    assert_eq!(
        (autoware().grid_x(), autoware().grid_y(), autoware().num_cells()),
        (480, 480, 230_400)
    );
    // 2.4 / 0.3 and 1.5 / 0.3 in float32, whole parts; in float64 the first of these is 7.999…
    assert_eq!((small().grid_x(), small().grid_y()), (8, 5));
    let tiny = PillarGridSpec::new([-121.6, -121.6, -3.0], [121.6, 121.6, 5.0], [0.32, 0.32, 8.0]).unwrap();
    assert_eq!((tiny.grid_x(), tiny.grid_y()), (760, 760));
}

#[test]
fn grids_that_cannot_be_are_refused_in_words() {
    let refused = |min, max, voxel| PillarGridSpec::new(min, max, voxel).unwrap_err().to_string();
    let (min, max, voxel) = ([-1.0; 3], [1.0; 3], [0.5; 3]);
    assert!(refused(max, min, voxel).contains("the range along x goes from 1 to -1 m"));
    assert!(refused(min, [1.0, f64::NAN, 1.0], voxel).contains("along y"));
    assert!(refused(min, max, [0.5, 0.5, 0.0]).contains("a cell measures 0 m along z"));
    assert!(refused(min, max, [3.0, 0.5, 2.0]).contains("make 0 x 4 cells"));
    assert!(refused(min, max, [1e-5, 0.5, 2.0]).contains("x 4 cells"));
    assert!(refused(min, max, [1e-30; 3]).contains("cells"));
    let grid = autoware();
    assert!(
        grid.with_max_points_per_pillar(256)
            .unwrap_err()
            .to_string()
            .contains("256; give 1 to 255")
    );
    assert!(
        grid.with_max_pillars(0)
            .unwrap_err()
            .to_string()
            .contains("max_pillars is 0")
    );
    assert!(grid.with_cloud_capacity(0).is_err());
}

/// autoware_universe PR 9795: x = 76.799995 is inside the range, but the division rounds up to cell 480 of 480.
#[test]
fn a_point_one_step_inside_the_upper_bound_is_in_the_last_cell() {
    let (min, max) = (-76.8_f32, 76.8_f32);
    let below = max.next_down();
    assert_eq!(((below - min) / 0.32_f32).floor(), 480.0);
    let place = |x: f32, y: f32, z: f32| {
        let set = xyz(&[[x, y, z]]).assign(autoware(), None);
        assert_eq!(set.stats().kept + set.stats().out_of_range, 1);
        set.coords().first().map(|place| (place.ix, place.iy))
    };
    assert_eq!(place(below, below, 6.0_f32.next_down()), Some((479, 479)));
    assert_eq!(place(min, min, -4.0), Some((0, 0)));
    assert_eq!(place(0.0, min, 0.0), Some((240, 0)));
    for outside in [
        [max, 0.0, 0.0],
        [0.0, max, 0.0],
        [0.0, 0.0, 6.0],
        [min.next_down(), 0.0, 0.0],
        [0.0, min.next_down(), 0.0],
        [0.0, 0.0, (-4.0_f32).next_down()],
    ] {
        assert_eq!(place(outside[0], outside[1], outside[2]), None, "{outside:?}");
    }
}

/// autoware_universe PR 5824: more pillars than memory for them ended in an illegal access.
#[test]
fn of_40001_pillars_the_first_40000_stay_and_the_rest_is_counted() {
    // Two points a cell, cell by cell from the back to the front.
    let middle = |i: usize| (i as f32 + 0.5) * 0.32 - 76.8;
    let points: Vec<[f32; 3]> = (0..40_001)
        .flat_map(|i| {
            [
                [middle(i / 480), middle(i % 480), 0.0],
                [middle(i / 480), middle(i % 480), 1.0],
            ]
        })
        .collect();
    for (order, lost) in [(CellOrder::FlippedX, (0, 479)), (CellOrder::Raster, (82, 479))] {
        let set = xyz(&points).assign(autoware().with_order(order), None);
        let stats = set.stats();
        assert_eq!(
            (set.len(), stats.pillars_total, stats.pillars_dropped),
            (40_000, 40_001, 1)
        );
        assert_eq!((stats.kept, stats.over_pillars, stats.over_slots), (80_000, 2, 0));
        assert!(!set.coords().iter().any(|p| (p.ix, p.iy) == lost), "{order:?}");
        let rank = |p: &PillarCell| match order {
            CellOrder::FlippedX => (479 - u32::from(p.ix)) * 480 + u32::from(p.iy),
            CellOrder::Raster => u32::from(p.iy) * 480 + u32::from(p.ix),
        };
        assert!(set.coords().is_sorted_by_key(rank));
    }
}

/// Lidar_AI_Solution issue 267: more than 800,000 points ended the program.
#[test]
fn of_a_cloud_beyond_the_capacity_the_first_points_stay_and_the_rest_is_counted() {
    let rows: Vec<[f32; 3]> = (0..800_005)
        .map(|i| {
            [
                (i % 997) as f32 * 0.15 - 76.0,
                (i % 1009) as f32 * 0.15 - 76.0,
                0.0,
            ]
        })
        .collect();
    let grid = autoware().with_cloud_capacity(800_000).unwrap();
    for seed in [None, Some(3)] {
        let (all, first) = (
            xyz(&rows).assign(grid, seed),
            xyz(&rows[..800_000]).assign(grid, seed),
        );
        assert_eq!(all.stats().over_capacity, 5);
        assert_eq!(contents(&all), contents(&first));
    }
    let Some(path) = support::data("lidar/kitti_full360/000009.bin") else {
        return;
    };
    let seven_times = std::fs::read(path).unwrap().repeat(7);
    let set = Points::from_bytes(&seven_times, 4, 4).assign(grid, None);
    assert_eq!((set.stats().points, set.stats().over_capacity), (806_925, 6_925));
}

/// autoware_universe PR 3123: points that are NaN pass a filter that drops what lies outside.
#[test]
fn a_point_with_a_value_that_is_no_number_is_dropped_and_counted() {
    let bad = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let rows: Vec<Vec<f32>> = (0..16)
        .map(|i| {
            let mut row = vec![1.0; 4];
            row[i % 4] = bad[i / 4];
            row
        })
        .collect();
    let set = Points::new(&rows, 4).assign(autoware(), None);
    assert_eq!((set.len(), set.stats().not_finite, set.stats().kept), (0, 16, 0));
}

/// autoware_universe PR 373 and its family: an empty cloud ended the node.
#[test]
fn an_empty_cloud_between_two_others_makes_no_pillars_and_clears_the_features() {
    let mut set = PillarSet::new(autoware());
    let (mut features, mut history) = (vec![1.0; 2 * 32 * 9], SlotHistory::default());
    let one = xyz(&[[1.0, 2.0, 3.0]]);
    let none = Points::new(&[], 4);
    let counts = [&one, &none, &one].map(|points| {
        assign_pillars(&points.borrow(), None, &mut set);
        decorate(
            &set,
            EncoderInput::Nine,
            FeatureRows::Dense(&mut features),
            SlotFill::Zeros,
            Some(&mut history),
        )
        .unwrap();
        let written = features.iter().filter(|&&v| v != 0.0).count();
        (set.len(), set.stats().points, written)
    });
    // x, y, z and the offsets to the middle along x and y; lag and offsets to the mean are 0.
    assert_eq!(counts, [(1, 1, 5), (0, 0, 0), (1, 1, 5)]);
    let untouched = PillarSet::new(autoware());
    decorate(
        &untouched,
        EncoderInput::Twelve,
        FeatureRows::Dense(&mut []),
        SlotFill::Zeros,
        None,
    )
    .unwrap();
    assert_eq!((untouched.num_points(0), untouched.points(0).len()), (0, 0));
}

#[test]
fn encoders_points_and_memory_that_do_not_fit_are_refused_and_nothing_is_written() {
    let set = xyz(&[[1.0, 2.0, 3.0]]).assign(autoware(), None);
    let refused = |input, out: FeatureRows<'_>| {
        decorate(&set, input, out, SlotFill::Zeros, None)
            .unwrap_err()
            .to_string()
    };
    let mut memory = vec![3.0; 32 * 16];
    let text = refused(EncoderInput::Eleven, FeatureRows::Device32(&mut memory));
    assert!(
        text.contains("an encoder of 11 values takes points of 5 values, but the pillars hold points of 4"),
        "{text}"
    );
    let text = refused(EncoderInput::Nine, FeatureRows::Dense(&mut memory));
    assert!(
        text.contains("1 pillars need rows of 288 values, but the slice given holds 512"),
        "{text}"
    );
    let text = refused(EncoderInput::Nine, FeatureRows::DeviceBf16(&mut []));
    assert!(text.contains("rows of 512 values"), "{text}");
    let many = PillarSet::new(autoware().with_max_points_per_pillar(33).unwrap());
    let text = decorate(
        &many,
        EncoderInput::Nine,
        FeatureRows::Device32(&mut memory),
        SlotFill::Zeros,
        None,
    )
    .unwrap_err();
    assert!(
        text.to_string()
            .contains("33 slots, but a row of the device has 32"),
        "{text}"
    );
    assert!(
        EncoderInput::from_size(8)
            .unwrap_err()
            .to_string()
            .contains("is 8; 9, 10, 11")
    );
    assert!((9..=12).all(|size| EncoderInput::from_size(size).unwrap().size() == size));
    assert!(memory.iter().all(|&v| v == 3.0));
    let column = [0.0; 2];
    let refused = |extra: &[&[f32]]| {
        PointColumns::new(&column, &column, &column, extra)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&[&column[..]; 5]).contains("a point has 8 columns, but at most 7"));
    assert!(refused(&[&column[..], &column[1..]]).contains("after z holds 1 values, but x holds 2"));
}

#[test]
fn maps_that_do_not_fit_are_refused_and_nothing_is_written() {
    let (grid, place) = (small(), PillarCell { iy: 4, ix: 7 });
    let mut map = vec![3.0; 2 * 40];
    let refused = |result: Result<(), _>| -> String {
        let error: sensorium::lidar::CanvasError = result.unwrap_err();
        error.to_string()
    };
    let text = refused(scatter_canvas(&[1.0], &[place], &grid, 2, &mut map));
    assert!(text.contains("1 features do not make 1 rows"), "{text}");
    let text = refused(scatter_canvas(&[1.0], &[place], &grid, 1, &mut map));
    assert!(
        text.contains("the map holds 80 values, but 40 are needed (1 channels of 5 x 8 cells)"),
        "{text}"
    );
    let outside = PillarCell { iy: 5, ix: 7 };
    let text = refused(scatter_canvas(&[1.0; 4], &[place, outside], &grid, 2, &mut map));
    assert!(
        text.contains("the pillar 1 lies in cell x 7, y 5, outside the grid of 8 x 5"),
        "{text}"
    );
    assert!(map.iter().all(|&v| v == 3.0));
    let mut index = vec![3; 40];
    let text = refused(canvas_gather_index(&[place, place], &grid, 1, &mut index));
    assert!(
        text.contains("the sentinel 1 is also the number of one of 2 pillars"),
        "{text}"
    );
    assert!(canvas_gather_index(&[outside], &grid, 9, &mut index).is_err());
    assert!(canvas_gather_index(&[place], &grid, 9, &mut index[1..]).is_err());
    assert!(index.iter().all(|&v| v == 3));
}

/// Real clouds, and one that makes more pillars than are allowed.
fn clouds() -> Option<Vec<(&'static str, Points)>> {
    let read = |path| Some(std::fs::read(support::data(path)?).unwrap());
    let mut clouds = Vec::new();
    for (name, path, stored, features) in [
        ("kitti", "lidar/kitti_full360/000009.bin", 4, 4),
        ("kitti_front", "lidar/kitti_cudapp/000000.bin", 4, 4),
        ("kitti_front_2", "lidar/kitti_mmdet3d/000008.bin", 4, 4),
        (
            "nuscenes",
            "lidar/nuscenes_n015/n015-2018-07-24-11-22-45+0800__LIDAR_TOP__1532402927647951.pcd.bin",
            5,
            5,
        ),
        ("waymo", "lidar/waymo_tiny/0000000.bin", 6, 5),
    ] {
        clouds.push((name, Points::from_bytes(&read(path)?, stored, features)));
    }
    // float16: x, y, z, intensity, time lag.
    let bytes = read("lidar/nuscenes_10sweep/ff9eff4389a740848f9a56ad749a4ae8.bin")?;
    let values = bytes
        .as_chunks::<2>()
        .0
        .iter()
        .map(|&b| f16_to_f32(u16::from_le_bytes(b)));
    let rows: Vec<_> = values
        .collect::<Vec<f32>>()
        .chunks(5)
        .map(<[f32]>::to_vec)
        .collect();
    clouds.push(("nuscenes_10", Points::new(&rows, 5)));
    Some(clouds)
}

#[test]
fn pillars_of_real_clouds_equal_those_of_numpy_bit_for_bit() {
    let Some(mut oracle) = support::oracle("pillars.py") else {
        return;
    };
    let Some(clouds) = clouds() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut cases = Vec::new();
    let mut ours = Vec::new();
    for (i, (cloud, points)) in clouds.iter().enumerate() {
        let features = points.columns.len();
        for (variant, seed, order, slots, pillars) in [
            ("input", None, CellOrder::FlippedX, 32, 40_000),
            ("shuffled", Some(i as u64), CellOrder::FlippedX, 32, 40_000),
            ("few", Some(u64::MAX), CellOrder::Raster, 20, 700),
        ] {
            let input = match (features, variant) {
                (4, "few") => EncoderInput::Ten,
                (4, _) => EncoderInput::Nine,
                _ => EncoderInput::Eleven,
            };
            let name = format!("{cloud}_{variant}");
            let bytes: Vec<u8> = points
                .rows()
                .concat()
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect();
            std::fs::write(folder.path().join(format!("{name}.points")), bytes).unwrap();
            cases.push(serde_json::json!({
                "name": name, "columns": features, "min": [-76.8, -76.8, -4.0], "max": [76.8, 76.8, 6.0],
                "voxel": [0.32, 0.32, 10.0], "slots": slots, "max_pillars": pillars, "seed": seed,
                "order": if order == CellOrder::Raster { "raster" } else { "flipped_x" }, "encoder": input.size(),
            }));
            let grid = autoware()
                .with_order(order)
                .with_max_points_per_pillar(slots)
                .and_then(|grid| grid.with_max_pillars(pillars))
                .unwrap();
            ours.push((name, points.assign(grid, seed), input));
        }
    }
    let list = serde_json::to_vec(&cases).unwrap();
    std::fs::write(folder.path().join("cases.json"), list).unwrap();
    support::run(oracle.arg(folder.path()));

    let read =
        |name: &str, suffix: &str| std::fs::read(folder.path().join(format!("{name}.{suffix}"))).unwrap();
    let totals: serde_json::Value = serde_json::from_slice(&read("totals", "json")).unwrap();
    for (name, set, input) in ours {
        let cells: Vec<u8> = set
            .coords()
            .iter()
            .flat_map(|p| [p.iy.to_le_bytes(), p.ix.to_le_bytes()].concat())
            .collect();
        assert_eq!(cells, read(&name, "cells"), "{name}");
        let counts: Vec<u8> = (0..set.len()).map(|i| set.num_points(i) as u8).collect();
        assert_eq!(counts, read(&name, "counts"), "{name}");
        let mut features = vec![0.0; set.len() * set.grid().max_points_per_pillar() * input.size()];
        decorate(
            &set,
            input,
            FeatureRows::Dense(&mut features),
            SlotFill::Zeros,
            None,
        )
        .unwrap();
        let expected = support::floats(&read(&name, "features"));
        assert!(bits(&features) == bits(&expected), "{name}: features differ");
        let stats = set.stats();
        let inside = stats.points - stats.not_finite - stats.out_of_range;
        assert_eq!(
            totals[&name],
            serde_json::json!([stats.pillars_total, inside]),
            "{name}"
        );
        assert!(set.len() > 30, "{name}: {stats:?}");
        println!("{name}: {} pillars, {stats:?}", set.len());
    }
}
