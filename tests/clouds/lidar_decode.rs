//! Centre heads become boxes bit for bit as the plain formula says, from any memory layout.

use crate::support;
use sensorium::lidar::{
    Box3d, CenterHeadDecode, CenterHeadParams, CenterHeads, DecodeConfigError, DecodeCounts, Gates,
    HeadChannels, HeadPlanes, HeadsError, head_values_at, sort_by_score,
};

const CLASSES: usize = 5;
const LIMITS: [f64; 3] = [8.0, 14.0, 18.0];

/// Pseudo-random numbers from -1 to 1.
fn random(state: &mut u64) -> f32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// All heads of a grid, as planes one after the other.
#[derive(Clone)]
struct Net {
    grid: [usize; 2],
    variance: bool,
    values: Vec<f32>,
}

impl Net {
    fn new(grid: [usize; 2], variance: bool, seed: u64) -> Self {
        let state = &mut (seed | 1);
        let cells = grid[0] * grid[1];
        let channels = HeadChannels::centerpoint(CLASSES, variance);
        let mut values = Vec::new();
        for (count, scale) in [
            (channels.heatmap, 6.0),
            (channels.offset, 1.0),
            (channels.z, 3.0),
            (channels.dim, 1.5),
            (channels.rot, 1.0),
            (channels.vel, 9.0),
        ] {
            for _ in 0..count * cells {
                values.push(random(state) * scale);
            }
        }
        Self {
            grid,
            variance,
            values,
        }
    }

    fn cells(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    fn channels(&self) -> HeadChannels {
        HeadChannels::centerpoint(CLASSES, self.variance)
    }

    /// Channel `channel` of all packed columns at a cell.
    fn at(&self, channel: usize, cell: usize) -> f32 {
        self.values[channel * self.cells() + cell]
    }

    fn set(&mut self, channel: usize, cell: usize, value: f32) {
        let cells = self.cells();
        self.values[channel * cells + cell] = value;
    }

    fn planes(&self) -> CenterHeads<'_> {
        let c = self.channels();
        let mut rest = self.values.as_slice();
        let mut take = |channels: usize| {
            let (head, tail) = rest.split_at(channels * self.cells());
            rest = tail;
            head
        };
        let planes = HeadPlanes {
            heatmap: take(c.heatmap),
            offset: take(c.offset),
            z: take(c.z),
            dim: take(c.dim),
            rot: take(c.rot),
            vel: take(c.vel),
        };
        CenterHeads::planes(planes, c, self.cells()).unwrap()
    }

    /// Rows of `row` values, NaN in the padding.
    fn rows(&self, row: usize) -> Vec<f32> {
        let columns = self.channels().columns();
        (0..self.cells() * row)
            .map(|i| {
                if i % row < columns {
                    self.at(i % row, i / row)
                } else {
                    f32::NAN
                }
            })
            .collect()
    }

    fn params(&self) -> CenterHeadParams {
        CenterHeadParams {
            voxel_size_m: [0.32, 0.4],
            range_min_m: [-9.6, -8.1],
            downsample_factor: 2,
            grid: self.grid,
            has_variance: self.variance,
            has_twist: true,
        }
    }

    fn decoder(&self, gates: &Gates) -> CenterHeadDecode {
        CenterHeadDecode::new(&self.params(), gates.clone()).unwrap()
    }
}

fn gates(scores: [[f64; CLASSES]; 3]) -> Gates {
    Gates::new(CLASSES, &LIMITS, &scores.concat(), &[0.3, 0.2, 0.0, 0.5, -1.0]).unwrap()
}

fn usual() -> Gates {
    gates([
        [0.35, 0.5, 0.9, 0.1, 0.97],
        [0.4, 0.45, 0.7, 0.2, 0.99],
        [0.3, 0.6, 0.95, 0.5, 0.98],
    ])
}

/// The formula, cell by cell, without any shortcut.
fn by_the_formula(net: &Net, gates: &Gates) -> Vec<Box3d> {
    let rounded = |f: fn(f64) -> f64, x: f32| f(f64::from(x)) as f32;
    let exp = |x: f32| rounded(f64::exp, x);
    let ln = |x: f32| rounded(f64::ln, x);
    let twice = if net.variance { 2 } else { 1 };
    let (offset, z) = (CLASSES, CLASSES + 2 * twice);
    let (dim, rot, vel) = (z + twice, z + 4 * twice, z + 6 * twice);
    let params = net.params();
    let cell_m = params
        .voxel_size_m
        .map(|v| v as f32 * params.downsample_factor as f32);
    let mut boxes = Vec::new();
    for cell in 0..net.cells() {
        let (mut label, mut score, mut entropy) = (None, -1.0_f32, 0.0_f32);
        for class in 0..CLASSES {
            let logit = net.at(class, cell);
            let s = 1.0_f32 / (1.0_f32 + exp(-logit));
            let p = logit.clamp(1e-6, 1.0 - 1e-6);
            entropy += (-p * ln(p) - (1.0 - p) * ln(1.0 - p)) * std::f32::consts::LOG2_E;
            if s > score {
                (label, score) = (Some(class), s);
            }
        }
        let Some(label) = label else { continue };
        let (ix, iy) = (cell % net.grid[0], cell / net.grid[0]);
        let x = cell_m[0] * (ix as f32 + net.at(offset, cell)) + params.range_min_m[0] as f32;
        let y = cell_m[1] * (iy as f32 + net.at(offset + 1, cell)) + params.range_min_m[1] as f32;
        let distance = (x * x + y * y).sqrt();
        let Some(bin) = LIMITS.iter().position(|&limit| distance < limit as f32) else {
            continue;
        };
        if score < gates.score_thresholds()[bin * CLASSES + label] {
            continue;
        }
        let (sin, cos) = (net.at(rot, cell), net.at(rot + 1, cell));
        let norm = (sin * sin + cos * cos).sqrt();
        let threshold = gates.yaw_norm_thresholds()[label];
        if norm < threshold || norm.is_nan() || score == 0.0 {
            continue;
        }
        let mut decoded = Box3d {
            label: label as u32,
            score,
            position_m: [x, y, net.at(z, cell)],
            size_m: [1, 0, 2].map(|i| exp(net.at(dim + i, cell))),
            yaw_rad: f64::from(sin).atan2(f64::from(cos)) as f32,
            velocity_mps: [net.at(vel, cell), net.at(vel + 1, cell)],
            cell: cell as u32,
            ..Box3d::default()
        };
        if net.variance {
            let (ss, cc) = (sin * sin, cos * cos);
            let norm_sq = (ss + cc) * (ss + cc);
            decoded.entropy = entropy;
            decoded.variance = Some(sensorium::lidar::Box3dVariance {
                position_m2: [
                    cell_m[0] * exp(net.at(offset + 2, cell)),
                    cell_m[0] * exp(net.at(offset + 3, cell)),
                    exp(net.at(z + 1, cell)),
                ],
                log_size: [4, 3, 5].map(|i| exp(net.at(dim + i, cell))),
                yaw_rad2: (cc * exp(net.at(rot + 2, cell)) + ss * exp(net.at(rot + 3, cell))) / norm_sq,
                velocity_m2ps2: [exp(net.at(vel + 2, cell)), exp(net.at(vel + 3, cell))],
            });
        }
        boxes.push(decoded);
    }
    boxes
}

fn decode(net: &Net, gates: &Gates, heads: &CenterHeads<'_>) -> (Vec<Box3d>, DecodeCounts) {
    let mut boxes = Vec::new();
    let counts = net.decoder(gates).decode(heads, &mut boxes).unwrap();
    let DecodeCounts {
        seen,
        kept,
        below_score,
        out_of_range,
        weak_heading,
        non_finite,
        bad_label,
    } = counts;
    assert_eq!(
        (seen, seen, kept),
        (
            net.cells(),
            kept + below_score + out_of_range + weak_heading + non_finite + bad_label,
            boxes.len()
        )
    );
    (boxes, counts)
}

#[test]
fn a_head_decodes_to_the_bits_of_the_formula_from_planes_and_from_rows() {
    let mut seen = DecodeCounts::default();
    for (grid, variance, seed) in [
        ([47, 31], false, 1),
        ([33, 64], true, 2),
        ([1, 1], true, 3),
        ([7, 93], false, 4),
    ] {
        let net = Net::new(grid, variance, seed << 40);
        for gates in [
            usual(),
            gates([[0.0; CLASSES]; 3]),
            usual().with_score_threshold(0.999),
        ] {
            let expected = by_the_formula(&net, &gates);
            let (boxes, counts) = decode(&net, &gates, &net.planes());
            assert_eq!(boxes, expected);
            for row in [net.channels().columns(), 32] {
                let rows = net.rows(row);
                let heads = CenterHeads::packed_rows(&rows, row, net.channels(), net.cells()).unwrap();
                assert_eq!(decode(&net, &gates, &heads), (expected.clone(), counts));
            }
            seen.kept += counts.kept;
            seen.below_score += counts.below_score;
            seen.out_of_range += counts.out_of_range;
            seen.weak_heading += counts.weak_heading;
        }
    }
    assert!(
        seen.kept > 500 && seen.below_score > 500 && seen.out_of_range > 50 && seen.weak_heading > 50,
        "the cases are one-sided: {seen:?}"
    );
}

#[test]
fn a_head_decodes_to_the_bits_of_numpy() {
    for (variance, seed) in [(false, 11), (true, 12)] {
        let Some(mut oracle) = support::oracle("lidar_decode.py") else {
            return;
        };
        let net = Net::new([120, 90], variance, seed);
        let gates = usual();
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let params = net.params();
        let config = serde_json::json!({
            "grid": net.grid, "voxel_m": params.voxel_size_m, "range_min_m": params.range_min_m,
            "downsample": params.downsample_factor, "limits_m": LIMITS, "variance": variance,
            "scores": gates.score_thresholds().chunks(CLASSES).collect::<Vec<_>>(),
            "yaw_norms": [0.3, 0.2, 0.0, 0.5, -1.0],
        });
        std::fs::write(path("config"), config.to_string()).unwrap();
        let bytes: Vec<u8> = net.values.iter().flat_map(|v| v.to_le_bytes()).collect();
        std::fs::write(path("heads"), bytes).unwrap();
        support::run(oracle.args([path("config"), path("heads"), path("out")]));
        let expected = support::floats(&std::fs::read(path("out")).unwrap());

        let (boxes, _) = decode(&net, &gates, &net.planes());
        let ours: Vec<f32> = boxes
            .iter()
            .flat_map(|b| {
                let mut row = vec![b.cell as f32, b.label as f32, b.score, b.entropy];
                row.extend(b.position_m);
                row.extend(b.size_m);
                row.push(b.yaw_rad);
                row.extend(b.velocity_mps);
                if let Some(v) = b.variance {
                    row.extend(v.position_m2);
                    row.extend(v.log_size);
                    row.push(v.yaw_rad2);
                    row.extend(v.velocity_m2ps2);
                }
                row
            })
            .collect();
        assert!(boxes.len() > 200, "{} boxes", boxes.len());
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&ours), bits(&expected));
        println!("{} boxes, {} numbers equal", boxes.len(), ours.len());
    }
}

#[test]
fn a_cell_decodes_to_the_numbers_worked_out_by_hand() {
    let mut net = Net::new([4, 3], false, 5);
    net.values.fill(0.0);
    for cell in 0..12 {
        for class in 0..CLASSES {
            net.set(class, cell, -9.0);
        }
    }
    // Cell (2, 1); classes 1 and 3 tie, the first wins.
    let cell = 6;
    net.set(1, cell, 2.0);
    net.set(3, cell, 2.0);
    net.set(5, cell, 0.25);
    net.set(6, cell, -0.5);
    net.set(7, cell, 1.5);
    for (channel, metres) in [(8, 2.0_f32), (9, 4.0), (10, 1.5)] {
        net.set(channel, cell, metres.ln());
    }
    net.set(11, cell, 0.6);
    net.set(12, cell, 0.8);
    net.set(13, cell, 3.0);
    net.set(14, cell, -1.0);
    let (boxes, _) = decode(&net, &usual(), &net.planes());
    let [b] = boxes[..] else { panic!("{boxes:?}") };
    assert_eq!((b.label, b.cell, b.velocity_mps), (1, 6, [3.0, -1.0]));
    let close = |a: f32, b: f64| assert!((f64::from(a) - b).abs() < 1e-5, "{a} is not {b}");
    close(b.score, 1.0 / (1.0 + (-2.0_f64).exp()));
    // No half cell: 0.64 * (2 + 0.25) - 9.6 and 0.8 * (1 - 0.5) - 8.1.
    close(b.position_m[0], -8.16);
    close(b.position_m[1], -7.7);
    close(b.position_m[2], 1.5);
    close(b.size_m[0], 4.0);
    close(b.size_m[1], 2.0);
    close(b.size_m[2], 1.5);
    close(b.yaw_rad, 0.6_f64.atan2(0.8));
}

#[test]
fn numbers_that_are_none_become_no_box_and_are_counted() {
    let good = Net::new([24, 24], true, 21);
    let gates = gates([[0.2; CLASSES]; 3]);
    let (boxes, before) = decode(&good, &gates, &good.planes());
    assert_eq!(before.non_finite, 0);
    let columns = good.channels().columns();
    let victims: Vec<usize> = boxes.iter().map(|b| b.cell as usize).take(columns * 3).collect();
    assert_eq!(victims.len(), columns * 3);
    let mut bad = good.clone();
    let mut expected = boxes.clone();
    let mut hit = Vec::new();
    for (i, &cell) in victims.iter().enumerate() {
        let channel = i % columns;
        let value = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][i / columns];
        // A logit of minus infinity is a score of zero.
        if value == f32::NEG_INFINITY && channel < CLASSES {
            continue;
        }
        bad.set(channel, cell, value);
        hit.push(cell as u32);
    }
    expected.retain(|b| !hit.contains(&b.cell));
    let rows = bad.rows(columns + 3);
    let packed = CenterHeads::packed_rows(&rows, columns + 3, bad.channels(), bad.cells()).unwrap();
    for heads in [bad.planes(), packed] {
        let (kept, counts) = decode(&bad, &gates, &heads);
        assert_eq!(kept, expected);
        assert_eq!(counts.non_finite, hit.len(), "{counts:?}");
        assert_eq!(counts.kept + hit.len(), before.kept);
    }
}

#[test]
fn logits_of_nan_alone_and_of_minus_infinity_alone_are_no_boxes() {
    let mut net = Net::new([5, 5], false, 31);
    for cell in 0..25 {
        for class in 0..CLASSES {
            net.set(class, cell, if cell < 10 { f32::NAN } else { f32::NEG_INFINITY });
        }
    }
    let (boxes, counts) = decode(&net, &gates([[0.0; CLASSES]; 3]), &net.planes());
    assert_eq!((boxes.len(), counts.non_finite, counts.below_score), (0, 10, 15));
}

#[test]
fn chosen_cells_decode_to_the_rows_of_the_whole_and_say_why_others_are_dropped() {
    let mut net = Net::new([40, 30], true, 41);
    net.set(7, 77, f32::NAN);
    let gates = usual();
    let decoder = net.decoder(&gates);
    let cells: Vec<u32> = (0..1200).rev().collect();
    let values = head_values_at(&net.planes(), &cells).unwrap();
    let rows = net.rows(40);
    let packed = CenterHeads::packed_rows(&rows, 40, net.channels(), net.cells()).unwrap();
    assert_eq!(
        format!("{:?}", head_values_at(&packed, &cells).unwrap()),
        format!("{values:?}")
    );
    let decoded = decoder.decode_cells(&values, &cells).unwrap();
    assert_eq!(decoded.len(), cells.len());
    let mut kept: Vec<Box3d> = decoded.iter().filter(|d| d.keep()).map(|d| d.decoded).collect();
    kept.reverse();
    let (boxes, counts) = decode(&net, &gates, &net.planes());
    assert_eq!(kept, boxes);
    let out_of_range = decoded.iter().filter(|d| d.distance_bin.is_none()).count();
    assert!(out_of_range >= counts.out_of_range && counts.out_of_range > 0);
    for d in decoded.iter().filter(|d| d.finite) {
        let b = &d.decoded;
        let distance = (b.position_m[0] * b.position_m[0] + b.position_m[1] * b.position_m[1]).sqrt();
        assert_eq!(
            d.distance_bin,
            LIMITS.iter().position(|&limit| distance < limit as f32)
        );
        let threshold = d
            .distance_bin
            .map(|bin| gates.score_thresholds()[bin * CLASSES + b.label as usize]);
        assert_eq!(threshold, d.distance_bin.map(|_| d.score_threshold));
        assert_eq!(d.passes_score, threshold.is_some_and(|t| b.score >= t));
        assert_eq!(
            d.passes_yaw_norm,
            d.yaw_norm >= gates.yaw_norm_thresholds()[b.label as usize]
        );
    }
    assert_eq!(
        head_values_at(&net.planes(), &[1200]).unwrap_err().to_string(),
        "cell 1200 is outside a head of 1200 cells"
    );
    let error = decoder.decode_cells(&values, &cells[1..]).unwrap_err();
    assert!(
        matches!(
            error,
            HeadsError::Cells {
                got: 1200,
                expected: 1199
            }
        ),
        "{error}"
    );
}

#[test]
fn equal_scores_are_sorted_by_cell() {
    let mut boxes: Vec<Box3d> = [(0.5, 9), (0.9, 4), (0.5, 2), (0.9, 1), (0.7, 3)]
        .map(|(score, cell)| Box3d {
            score,
            cell,
            ..Box3d::default()
        })
        .to_vec();
    sort_by_score(&mut boxes);
    assert_eq!(boxes.iter().map(|b| b.cell).collect::<Vec<_>>(), [1, 4, 3, 2, 9]);
}

#[test]
fn thresholds_outside_their_range_become_zero_as_in_autoware() {
    let made = Gates::new(
        2,
        &[50.0, 50.0, 90.0],
        &[0.5, -0.1, 1.0, 0.999, f64::NAN, f64::INFINITY],
        &[1.0, 0.3],
    )
    .unwrap();
    assert_eq!(made.score_thresholds(), [0.5, 0.0, 0.0, 0.999, 0.0, 0.0]);
    assert_eq!(made.yaw_norm_thresholds(), [0.0, 0.3]);
    assert_eq!(made.with_score_threshold(7.0).score_thresholds(), [0.0; 6]);
    let lists = Gates::from_class_lists(&[50.0, 90.0], &[vec![0.1, 0.2], vec![0.3, 0.4]], &[0.0; 2]).unwrap();
    assert_eq!(lists.score_thresholds(), [0.1, 0.3, 0.2, 0.4]);
}

#[test]
fn wrong_parameters_are_told_with_what_to_do() {
    let new = |limits: &[f64], scores: &[f64], yaw: &[f64]| {
        Gates::new(2, limits, scores, yaw).unwrap_err().to_string()
    };
    for (message, part) in [
        (new(&[], &[], &[0.0; 2]), "give at least one upper limit"),
        (new(&[9.0, 5.0], &[0.1; 4], &[0.0; 2]), "[1] = 5 does not ascend"),
        (
            new(&[f64::NAN], &[0.1; 2], &[0.0; 2]),
            "[0] = NaN does not ascend",
        ),
        (
            new(&[9.0], &[0.1; 3], &[0.0; 2]),
            "3 score thresholds for 1 distance bins and 2 classes",
        ),
        (
            new(&[9.0], &[0.1; 2], &[0.0; 3]),
            "3 yaw_norm_thresholds for 2 classes",
        ),
        (
            Gates::from_class_lists(&[9.0, 10.0], &[[0.1, 0.2].as_slice(), &[0.1]], &[0.0; 2])
                .unwrap_err()
                .to_string(),
            "1 score thresholds for 2 distance bins",
        ),
    ] {
        assert!(message.contains(part), "{message}");
    }
    let net = Net::new([4, 4], false, 51);
    let params = CenterHeadParams {
        grid: [0, 4],
        ..net.params()
    };
    assert_eq!(
        CenterHeadDecode::new(&params, usual()).unwrap_err(),
        DecodeConfigError::Grid { x: 0, y: 4 }
    );
}

#[test]
fn outputs_of_another_network_are_refused() {
    let net = Net::new([6, 4], false, 61);
    let mut out = Vec::new();
    let with_variance = Net::new([6, 4], true, 61);
    let error = with_variance
        .decoder(&usual())
        .decode(&net.planes(), &mut out)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("offset head has 2 channels, the decoder reads 4"),
        "{error}"
    );
    let error = net
        .decoder(&usual())
        .decode(&Net::new([6, 5], false, 1).planes(), &mut out)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("30 cells, the grid of the parameters has 24"),
        "{error}"
    );
    let rows = net.rows(16);
    let short = CenterHeads::packed_rows(&rows[1..], 16, net.channels(), net.cells()).unwrap_err();
    assert!(short.to_string().contains("383 values"), "{short}");
    let narrow = CenterHeads::packed_rows(&rows, 14, net.channels(), net.cells()).unwrap_err();
    assert_eq!(narrow, HeadsError::Row { row: 14, columns: 15 });
    assert!(out.is_empty());
}

#[test]
fn a_head_without_speeds_decodes_without_them() {
    let net = Net::new([9, 9], false, 71);
    let channels = HeadChannels {
        vel: 0,
        ..net.channels()
    };
    let rows: Vec<f32> = net
        .rows(15)
        .chunks(15)
        .flat_map(|row| row[..13].to_vec())
        .collect();
    let heads = CenterHeads::packed_rows(&rows, 13, channels, net.cells()).unwrap();
    let params = CenterHeadParams {
        has_twist: false,
        ..net.params()
    };
    let mut boxes = Vec::new();
    CenterHeadDecode::new(&params, usual())
        .unwrap()
        .decode(&heads, &mut boxes)
        .unwrap();
    let expected: Vec<Box3d> = by_the_formula(&net, &usual())
        .into_iter()
        .map(|b| Box3d {
            velocity_mps: [0.0; 2],
            ..b
        })
        .collect();
    assert_eq!(boxes, expected);
    let error = net.decoder(&usual()).decode(&heads, &mut boxes).unwrap_err();
    assert!(error.to_string().contains("vel head has 0 channels"), "{error}");
}

#[test]
fn a_head_of_one_class_decodes_alike_from_planes_and_from_rows() {
    let cells = 30 * 20;
    let channels = HeadChannels::centerpoint(1, false);
    let state = &mut (81_u64 << 40);
    let rows: Vec<f32> = (0..cells * 12).map(|_| random(state) * 2.0).collect();
    let column = |first: usize, count: usize| -> Vec<f32> {
        (0..count * cells)
            .map(|i| rows[i % cells * 12 + first + i / cells])
            .collect()
    };
    let (heatmap, offset, z, dim) = (column(0, 1), column(1, 2), column(3, 1), column(4, 3));
    let (rot, vel) = (column(7, 2), column(9, 2));
    let planes = HeadPlanes {
        heatmap: &heatmap,
        offset: &offset,
        z: &z,
        dim: &dim,
        rot: &rot,
        vel: &vel,
    };
    let params = CenterHeadParams {
        voxel_size_m: [0.5; 2],
        range_min_m: [-7.0; 2],
        downsample_factor: 1,
        grid: [30, 20],
        has_variance: false,
        has_twist: true,
    };
    let decoder = CenterHeadDecode::new(&params, Gates::new(1, &[100.0], &[0.6], &[0.0]).unwrap()).unwrap();
    let decode = |heads: &CenterHeads<'_>| {
        let mut boxes = Vec::new();
        decoder.decode(heads, &mut boxes).unwrap();
        boxes
    };
    let boxes = decode(&CenterHeads::planes(planes, channels, cells).unwrap());
    let above = heatmap
        .iter()
        .filter(|&&logit| 1.0 / (1.0 + (-logit).exp()) >= 0.6)
        .count();
    assert_eq!(boxes.len(), above);
    assert_eq!(
        decode(&CenterHeads::packed_rows(&rows, 12, channels, cells).unwrap()),
        boxes
    );
}
