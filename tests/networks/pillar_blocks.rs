//! The blocks of pillar detectors, alone and together, against their definitions in f64; every replay has the bits of an
//! eager run.

use crate::blocks;
use crate::graphs;
use std::sync::Arc;

use ndarray::{Array1, Array2, Array3, Array4, ArrayView3, s};
use sensorium::models::centerhead::{CenterHead, HeadSpec, merge_heads};
use sensorium::models::pillar_terms::{FoldedPfn, HiddenRounding, TwoTermPfn};
use sensorium::models::pillars::{
    FrameError, FrameShape, FrameStaging, PfnPlan, PillarFeatureNet, features_shape, pack_features,
    pack_inputs,
};
use sensorium::models::second::{Second, SecondFpn};
use sensorium::models::two_term::{TwoTermLinear, split_terms, split_terms_host};
use sensorium::models::{BlockError, ConvSpec, RowLinear, as_feature_map};
use sensorium::ops::gather::{check_index, gather_rows, scatter_rows};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor, TensorSpec};
use sensorium::trace::TraceContext;

use blocks::{Work, as_rows, assert_close, cpu, everywhere, numbers, stored, unit};
use graphs::Random;

fn array4(r: &mut Random, dims: (usize, usize, usize, usize), scale: f32) -> Array4<f32> {
    Array4::from_shape_simple_fn(dims, || unit(r) * scale)
}

fn biases(r: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| unit(r) * 0.2).collect()
}

/// A layer as a block takes it and as the definition takes it.
#[derive(Clone)]
struct Layer {
    weight: Array4<f32>,
    bias: Vec<f32>,
    stride: usize,
    pad: usize,
    relu: bool,
    transposed: bool,
}

impl Layer {
    fn conv(r: &mut Random, [cin, cout, kernel]: [usize; 3], stride: usize) -> Self {
        let scale = 1.7 / ((cin * kernel * kernel) as f32).sqrt();
        Self {
            weight: array4(r, (cout, cin, kernel, kernel), scale),
            bias: biases(r, cout),
            stride,
            pad: kernel / 2,
            relu: true,
            transposed: false,
        }
    }

    fn transposed(r: &mut Random, [cin, cout, kernel]: [usize; 3], stride: usize) -> Self {
        Self {
            weight: array4(r, (cin, cout, kernel, kernel), 1.7 / (cin as f32).sqrt()),
            bias: biases(r, cout),
            stride,
            pad: 0,
            relu: true,
            transposed: true,
        }
    }

    fn spec(&self) -> ConvSpec {
        let spec = match self.transposed {
            true => ConvSpec::conv_transpose(self.weight.view(), &self.bias, self.stride),
            false => ConvSpec::conv(self.weight.view(), &self.bias).stride(self.stride),
        };
        let spec = spec.padding(self.pad);
        if self.relu { spec } else { spec.linear() }
    }

    /// `[C, H, W]` to `[C, H, W]`, straight from the definition: every input value is added where it belongs.
    fn run(&self, x: &Array3<f64>) -> Array3<f64> {
        let (a, b, kernel, _) = self.weight.dim();
        let (cin, h, w) = x.dim();
        let size = |input: usize| match self.transposed {
            true => (input - 1) * self.stride + kernel - 2 * self.pad,
            false => (input + 2 * self.pad - kernel) / self.stride + 1,
        };
        let cout = if self.transposed { b } else { a };
        let (oh, ow) = (size(h), size(w));
        let mut y = Array3::from_shape_fn((cout, oh, ow), |(o, _, _)| f64::from(self.bias[o]));
        let at = |from: usize, tap: usize, out: usize| -> Option<usize> {
            let place = match self.transposed {
                true => (from * self.stride + tap).checked_sub(self.pad)?,
                false => {
                    let shifted = (from + self.pad).checked_sub(tap)?;
                    shifted
                        .is_multiple_of(self.stride)
                        .then_some(shifted / self.stride)?
                }
            };
            (place < out).then_some(place)
        };
        for (i, iy, ix) in (0..cin).flat_map(|i| (0..h).flat_map(move |y| (0..w).map(move |x| (i, y, x)))) {
            for (ky, kx) in (0..kernel).flat_map(|ky| (0..kernel).map(move |kx| (ky, kx))) {
                let (Some(oy), Some(ox)) = (at(iy, ky, oh), at(ix, kx, ow)) else {
                    continue;
                };
                for o in 0..cout {
                    let weight = match self.transposed {
                        true => self.weight[[i, o, ky, kx]],
                        false => self.weight[[o, i, ky, kx]],
                    };
                    y[[o, oy, ox]] += x[[i, iy, ix]] * f64::from(weight);
                }
            }
        }
        if self.relu {
            y.mapv_inplace(|v| v.max(0.0));
        }
        y
    }
}

fn concat(maps: &[Array3<f64>]) -> Array3<f64> {
    let views: Vec<_> = maps.iter().map(|map| map.view()).collect();
    ndarray::concatenate(ndarray::Axis(0), &views).unwrap()
}

/// `[H, W, C]` values as `[C, H, W]`.
fn planar(tensor: &HostTensor) -> Array3<f64> {
    let shape = tensor.shape().to_vec();
    let values = numbers(tensor);
    assert_eq!(shape[0], 1);
    let map = Array3::from_shape_vec((shape[1], shape[2], shape[3]), values).unwrap();
    map.permuted_axes([2, 0, 1]).as_standard_layout().into_owned()
}

/// A random map as the device stores it, `[1, H, W, C]`.
fn random_map(r: &mut Random, dtype: DType, [c, h, w]: [usize; 3]) -> HostTensor {
    let values: Vec<f32> = (0..c * h * w).map(|_| unit(r)).collect();
    stored(dtype, &[1, h, w, c], &values)
}

/// Work on the input `x` as a feature map; the maps that it makes are the outputs.
fn on_map(
    dims: [usize; 4],
    forward: impl Fn(&mut OpContext<'_>, &DeviceTensor) -> Result<Vec<DeviceTensor>, BlockError>
    + Send
    + Sync
    + 'static,
) -> Arc<Work> {
    Arc::new(move |context| {
        let x = as_feature_map(&context.input("x")?, dims)?;
        let maps = forward(context.ops(), &x)?;
        let named = maps.into_iter().enumerate();
        Ok(named.map(|(i, map)| (format!("y{i}"), as_rows(&map))).collect())
    })
}

/// Blocks of layers, shrinking by two each.
fn backbone(r: &mut Random, cin: usize, blocks: &[(usize, usize)]) -> Vec<Vec<Layer>> {
    let mut channels = cin;
    let mut made = Vec::new();
    for &(cout, count) in blocks {
        let layers = (0..count).map(|layer| {
            let spec = Layer::conv(r, [channels, cout, 3], if layer == 0 { 2 } else { 1 });
            channels = cout;
            spec
        });
        made.push(layers.collect());
    }
    made
}

fn specs(blocks: &[Vec<Layer>]) -> Vec<Vec<ConvSpec>> {
    let block = |layers: &Vec<Layer>| layers.iter().map(Layer::spec).collect();
    blocks.iter().map(block).collect()
}

fn run_backbone(blocks: &[Vec<Layer>], x: &Array3<f64>) -> Vec<Array3<f64>> {
    let mut last = x.clone();
    let run = |layers: &Vec<Layer>| {
        last = layers.iter().fold(last.clone(), |x, layer| layer.run(&x));
        last.clone()
    };
    blocks.iter().map(run).collect()
}

fn neck(r: &mut Random, inputs: &[usize], cout: usize) -> Vec<Layer> {
    let layers = inputs.iter().enumerate();
    layers
        .map(|(i, &cin)| match i {
            0 => Layer::conv(r, [cin, cout, 1], 1),
            _ => Layer::transposed(r, [cin, cout, 1 << i], 1 << i),
        })
        .collect()
}

struct Head {
    shared: Layer,
    heads: Vec<(&'static str, Layer, Layer)>,
}

impl Head {
    fn new(r: &mut Random, cin: usize, channels: usize) -> Self {
        let names = [
            ("heatmap", 5),
            ("reg", 2),
            ("height", 1),
            ("dim", 3),
            ("rot", 2),
            ("vel", 2),
        ];
        let heads = names.map(|(name, outputs)| {
            let hidden = Layer::conv(r, [channels, 8, 1], 1);
            let last = Layer {
                relu: false,
                ..Layer::conv(r, [8, outputs, 1], 1)
            };
            (name, hidden, last)
        });
        Self {
            shared: Layer::conv(r, [cin, channels, 3], 1),
            heads: heads.into(),
        }
    }

    fn specs(&self) -> Vec<HeadSpec> {
        let spec = |(name, hidden, last): &(&str, Layer, Layer)| HeadSpec {
            name: (*name).into(),
            hidden: hidden.spec(),
            output: last.spec(),
        };
        self.heads.iter().map(spec).collect()
    }

    /// Every head on its own.
    fn run(&self, x: &Array3<f64>) -> Vec<(&'static str, Array3<f64>)> {
        let shared = self.shared.run(x);
        let heads = self.heads.iter();
        heads
            .map(|(name, hidden, last)| (*name, last.run(&hidden.run(&shared))))
            .collect()
    }
}

#[test]
fn a_backbone_and_its_neck_follow_their_definition() {
    for dtype in [DType::F32, DType::Bf16] {
        let mut r = Random(1);
        let layers = backbone(&mut r, 6, &[(8, 2), (20, 3), (33, 1)]);
        let deblocks = neck(&mut r, &[8, 20, 33], 12);
        let x = random_map(&mut r, dtype, [6, 24, 32]);
        let (blocks, fpn) = (
            specs(&layers),
            deblocks.iter().map(Layer::spec).collect::<Vec<_>>(),
        );
        let found = everywhere(&[("x", x.clone())], || {
            let second = Second::new(blocks.clone()).unwrap();
            let neck = SecondFpn::new(fpn.clone()).unwrap();
            assert_eq!(
                second.out_shapes([1, 6, 24, 32]).unwrap(),
                [[1, 8, 12, 16], [1, 20, 6, 8], [1, 33, 3, 4]]
            );
            assert_eq!(neck.channels(), [12, 12, 12]);
            on_map([1, 24, 32, 6], move |ops, x| {
                let mut maps = second.forward(ops, x)?;
                maps.push(neck.forward(ops, &maps)?.joined);
                Ok(maps)
            })
        });
        let exact = run_backbone(&layers, &planar(&x));
        let joined: Vec<_> = deblocks
            .iter()
            .zip(&exact)
            .map(|(layer, x)| layer.run(x))
            .collect();
        for (i, exact) in exact.iter().enumerate() {
            assert_close(&format!("block {i}"), dtype, &planar(&found[i]), exact);
        }
        assert_close("neck", dtype, &planar(&found[3]), &concat(&joined));
    }
}

#[test]
fn transposed_convolutions_of_any_kernel_follow_their_definition() {
    let mut r = Random(2);
    for (kernel, stride, pad) in [
        (3, 2, 1),
        (4, 2, 1),
        (2, 2, 0),
        (3, 3, 0),
        (5, 2, 2),
        (3, 1, 1),
        (4, 3, 3),
    ] {
        let layer = Layer {
            pad,
            ..Layer::transposed(&mut r, [7, 5, kernel], stride)
        };
        let x = random_map(&mut r, DType::F32, [7, 6, 9]);
        let spec = layer.spec();
        let found = everywhere(&[("x", x.clone())], || {
            let neck = SecondFpn::new(vec![spec.clone()]).unwrap();
            on_map([1, 6, 9, 7], move |ops, x| {
                Ok(vec![neck.forward(ops, &[*x])?.joined])
            })
        });
        let what = format!("kernel {kernel}, stride {stride}, padding {pad}");
        assert_close(&what, DType::F32, &planar(&found[0]), &layer.run(&planar(&x)));
    }
}

#[test]
fn a_head_gives_what_each_head_gives_whether_its_inputs_are_joined_or_split() {
    for dtype in [DType::F32, DType::Bf16] {
        let mut r = Random(3);
        let head = Head::new(&mut r, 21, 16);
        let x = random_map(&mut r, dtype, [21, 12, 10]);
        let exact = head.run(&planar(&x));
        for (k_split, apart) in [(false, false), (false, true), (true, false), (true, true)] {
            let make = || {
                let split = [6, 8, 7];
                Arc::new(CenterHead::new(head.shared.spec(), &split, &head.specs(), k_split).unwrap())
            };
            let found = everywhere(&[("x", x.clone())], || {
                let head = make();
                Arc::new(move |context: &mut TraceContext<'_>| {
                    let x = as_feature_map(&context.input("x")?, [1, 12, 10, 21])?;
                    let ops = context.ops();
                    let mut maps = vec![x];
                    if apart {
                        maps.clear();
                        for (first, channels) in [(0, 6), (6, 8), (14, 7)] {
                            let spec = TensorSpec::new(&[1, 12, 10, channels], x.dtype)?;
                            let own = ops.alloc(&spec, sensorium::device::BufferClass::Intermediate)?;
                            let own = as_feature_map(&own, [1, 12, 10, channels])?;
                            let part = DeviceTensor {
                                view: x.view.slice(1, first, channels, 1)?,
                                ..x
                            };
                            ops.copy(&part, &own)?;
                            maps.push(own);
                        }
                    }
                    Ok(vec![("rows".to_owned(), head.forward(ops, &maps)?)])
                })
            });
            assert_eq!(found[0].dtype(), DType::F32);
            let maps = make().unpack(found[0].as_slice().unwrap(), [12, 10]).unwrap();
            for (name, exact) in &exact {
                let map = maps[*name].mapv(f64::from);
                assert_close(&format!("{name}, k_split {k_split}"), dtype, &map, exact);
            }
        }
    }
}

#[test]
fn merged_heads_lie_beside_each_other_and_are_padded_with_zeros() {
    let head = Head::new(&mut Random(4), 4, 6);
    let merged = merge_heads(&head.specs(), 32).unwrap();
    assert_eq!(merged.hidden_weight.dim(), (6, 48));
    assert_eq!(merged.output_weight.dim(), (48, 32));
    assert_eq!(merged.slices[3], ("dim".to_owned(), 8..11));
    let (_, hidden, last) = &head.heads[3];
    assert_eq!(merged.hidden_weight[[5, 26]], hidden.weight[[2, 5, 0, 0]]);
    assert_eq!(merged.output_weight[[30, 9]], last.weight[[1, 6, 0, 0]]);
    assert_eq!(merged.output_bias[10], last.bias[2]);
    let blocks = [(0..8, 0..5), (8..16, 5..7), (24..32, 8..11)];
    let inside = |i: usize, o: usize| blocks.iter().any(|(a, b)| a.contains(&i) && b.contains(&o));
    for i in (0..16).chain(24..32) {
        for o in (0..7).chain(8..11).chain(15..32) {
            assert!(inside(i, o) || merged.output_weight[[i, o]] == 0.0, "{i} {o}");
        }
    }
}

#[test]
fn dense_layers_follow_their_definition_over_rows_of_any_rank() {
    for dtype in [DType::F32, DType::Bf16] {
        let mut r = Random(5);
        let weight = Array2::from_shape_simple_fn((9, 20), || unit(&mut r) * 0.5);
        let bias = biases(&mut r, 20);
        let values: Vec<f32> = (0..4 * 7 * 9).map(|_| unit(&mut r)).collect();
        let x = stored(dtype, &[4, 7, 9], &values);
        let found = everywhere(&[("x", x.clone())], || {
            let layer = RowLinear::new("rows", weight.view(), Some(&bias), true).unwrap();
            Arc::new(move |context: &mut TraceContext<'_>| {
                let x = context.input("x")?;
                Ok(vec![("y".to_owned(), layer.forward(context.ops(), &x)?)])
            })
        });
        assert_eq!(&found[0].shape()[..], [4, 7, 20]);
        let rows = Array2::from_shape_vec((28, 9), numbers(&x)).unwrap();
        let sums = rows.dot(&weight.mapv(f64::from)) + Array1::from(bias.clone()).mapv(f64::from);
        let exact = sums.mapv(|v| v.max(0.0));
        assert_close("dense", dtype, &numbers(&found[0]), &exact);
    }
}

struct Pfn {
    w0: Array2<f32>,
    b0: Vec<f32>,
    w1: Array2<f32>,
    b1: Vec<f32>,
}

impl Pfn {
    fn new(r: &mut Random, features: usize, width: usize, outputs: usize) -> Self {
        Self {
            w0: Array2::from_shape_simple_fn((features, width), || unit(r) * 0.6),
            b0: biases(r, width),
            w1: Array2::from_shape_simple_fn((2 * width, outputs), || unit(r) * 0.4),
            b1: biases(r, outputs),
        }
    }

    fn plan(&self) -> PfnPlan {
        PfnPlan::from_weights(self.w0.view(), &self.b0, self.w1.view(), &self.b1).unwrap()
    }

    /// The literal encoder: the maximum beside every point, the second layer on all of it.
    fn run(&self, points: &Array3<f64>) -> Array2<f64> {
        let layer = |x: &Array2<f64>, w: &Array2<f32>, b: &[f32]| {
            let sums = x.dot(&w.mapv(f64::from)) + Array1::from(b.to_vec()).mapv(f64::from);
            sums.mapv(|v| v.max(0.0))
        };
        let top = |x: &Array2<f64>| x.fold_axis(ndarray::Axis(0), f64::MIN, |a, b| a.max(*b));
        let mut out = Array2::zeros((points.dim().0, self.b1.len()));
        for (pillar, mut row) in points.outer_iter().zip(out.outer_iter_mut()) {
            let first = layer(&pillar.to_owned(), &self.w0, &self.b0);
            let beside = top(&first).broadcast(first.dim()).unwrap().to_owned();
            let both = ndarray::concatenate(ndarray::Axis(1), &[first.view(), beside.view()]).unwrap();
            row.assign(&top(&layer(&both, &self.w1, &self.b1)));
        }
        out
    }
}

#[test]
fn a_whole_detector_follows_the_definition_of_its_parts() {
    let (pillars, points, features, side) = (40, 8, 9, 16);
    for dtype in [DType::F32, DType::Bf16] {
        let mut r = Random(6);
        let pfn = Pfn::new(&mut r, features, 16, 32);
        let layers = backbone(&mut r, 32, &[(16, 2), (24, 2), (32, 2)]);
        let deblocks = neck(&mut r, &[16, 24, 32], 16);
        let head = Head::new(&mut r, 48, 16);
        let values: Vec<f32> = (0..pillars * points * features)
            .map(|_| unit(&mut r) * 2.0)
            .collect();
        let x = stored(dtype, &features_shape(pillars, points, features), &values);
        let mut cells = vec![pillars as u32; side * side];
        (0..pillars as u32 - 3).for_each(|pillar| cells[(pillar as usize * 37) % (side * side)] = pillar);
        check_index(&cells, pillars, Some(pillars as u32)).unwrap();
        let index = HostTensor::from_slice(&[side * side], &cells).unwrap();
        let found = everywhere(&[("features", x.clone()), ("canvas_index", index)], || {
            let net = PillarFeatureNet::new(pfn.plan());
            let second = Second::new(specs(&layers)).unwrap();
            let neck = SecondFpn::new(deblocks.iter().map(Layer::spec).collect()).unwrap();
            let head = CenterHead::new(head.shared.spec(), &neck.channels(), &head.specs(), false).unwrap();
            Arc::new(move |context: &mut TraceContext<'_>| {
                let (x, index) = (context.input("features")?, context.input("canvas_index")?);
                let ops = context.ops();
                let rows = net.forward(ops, &x)?;
                let canvas = scatter_rows(ops, &rows, &index, [side, side])?;
                let blocks = second.forward(ops, &canvas)?;
                let maps = neck.forward(ops, &blocks)?;
                let out = head.forward(ops, &[maps.joined])?;
                Ok(vec![
                    ("rows".to_owned(), out),
                    ("canvas".to_owned(), as_rows(&canvas)),
                ])
            })
        });
        let rows = pfn.run(&Array3::from_shape_vec((pillars, points, features), numbers(&x)).unwrap());
        let canvas =
            Array3::from_shape_fn((32, side, side), |(c, y, x)| match cells[y * side + x] as usize {
                row if row < pillars => rows[[row, c]],
                _ => 0.0,
            });
        assert_close("canvas", dtype, &planar(&found[1]), &canvas);
        let blocks = run_backbone(&layers, &canvas);
        let parts: Vec<_> = deblocks
            .iter()
            .zip(&blocks)
            .map(|(layer, x)| layer.run(x))
            .collect();
        let exact: Vec<Array3<f64>> = head
            .run(&concat(&parts))
            .into_iter()
            .map(|(_, map)| map)
            .collect();
        assert_close("heads", dtype, &planar(&found[0]), &concat(&exact));
    }
}

#[test]
fn rows_that_a_table_does_not_have_are_zeros_and_an_index_is_checked_first() {
    let table: Vec<f32> = (0..15).map(|v| v as f32 + 1.0).collect();
    let index = [4_u32, 5, 0, u32::MAX, 2];
    let found = everywhere(
        &[
            ("table", HostTensor::from_slice(&[5, 3], &table).unwrap()),
            ("index", HostTensor::from_slice(&[1, 5], &index).unwrap()),
        ],
        || {
            Arc::new(|context: &mut TraceContext<'_>| {
                let (table, index) = (context.input("table")?, context.input("index")?);
                Ok(vec![(
                    "y".to_owned(),
                    gather_rows(context.ops(), &table, &index)?,
                )])
            })
        },
    );
    assert_eq!(
        found[0].as_slice::<f32>().unwrap(),
        [13., 14., 15., 0., 0., 0., 1., 2., 3., 0., 0., 0., 7., 8., 9.]
    );
    assert!(check_index(&[0, 4, 5], 5, Some(5)).is_ok());
    let error = check_index(&[0, 6, 7], 5, Some(5)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "entry 1 of the index is 6: the table has 5 rows, and 5 marks an empty place"
    );
    let error = check_index(&[5], 5, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "entry 0 of the index is 5: the table has 5 rows"
    );
}

/// The frame as it must lie in a slot, from the rules: cleared rows, repeated points, zero features.
fn expected_frame(features: &ArrayView3<'_, f32>, shape: &FrameShape) -> Vec<f32> {
    let (kept, points, width) = features.dim();
    let place = |p: usize, k: usize, f: usize| match (p < kept, f < width) {
        (true, true) => features[[p, if k < points { k } else { 0 }, f]],
        _ => 0.0,
    };
    let rows = (0..shape.pillars).flat_map(|p| (0..shape.points).map(move |k| (p, k)));
    rows.flat_map(|(p, k)| (0..shape.features).map(move |f| (p, k, f)))
        .map(|(p, k, f)| place(p, k, f))
        .collect()
}

#[test]
fn a_staged_frame_shows_nothing_of_the_frames_before_it() {
    let mut r = Random(8);
    for dtype in [DType::F32, DType::Bf16] {
        let shape = FrameShape {
            pillars: 9,
            points: 4,
            features: 5,
            cells: 12,
            dtype,
        };
        let mut device = cpu(1);
        let mut staging = FrameStaging::new(&mut device, shape, 2).unwrap();
        for (kept, points, width) in [
            (9, 4, 5),
            (8, 4, 5),
            (2, 4, 5),
            (3, 2, 5),
            (0, 1, 1),
            (5, 4, 3),
            (9, 4, 5),
        ] {
            let frame = Array3::from_shape_simple_fn((kept, points, width), || unit(&mut r));
            let cells: Vec<u32> = (0..12).map(|c| if c < kept { c as u32 } else { 9 }).collect();
            let staged = staging.write(frame.view(), &cells).unwrap();
            let expected = expected_frame(&frame.view(), &shape);
            let found = staged.features.bytes().unwrap();
            assert_eq!(found, stored(dtype, &[expected.len()], &expected).bytes());
            assert_eq!(
                staged.canvas_index.bytes().unwrap(),
                bytemuck::cast_slice::<u32, u8>(&cells)
            );
            assert_eq!(pack_features(frame.view(), &shape).unwrap(), expected);
        }
        // A view with gaps goes the slow way.
        let wide = Array3::from_shape_simple_fn((6, 4, 7), || unit(&mut r));
        let frame = wide.slice(s![.., .., 1..6]);
        let expected = expected_frame(&frame, &shape);
        let staged = staging.write(frame, &[9; 12]).unwrap();
        let found = staged.features.bytes().unwrap();
        assert_eq!(found, stored(dtype, &[expected.len()], &expected).bytes());
    }
}

#[test]
fn frames_that_do_not_fit_are_refused_and_the_next_one_is_taken() {
    let shape = FrameShape {
        pillars: 3,
        points: 2,
        features: 2,
        cells: 4,
        dtype: DType::F32,
    };
    let mut device = cpu(1);
    let mut staging = FrameStaging::new(&mut device, shape, 1).unwrap();
    let frame = Array3::<f32>::ones((2, 2, 2));
    let mut refused = |dims: (usize, usize, usize), cells: &[u32]| {
        let frame = Array3::<f32>::ones(dims);
        staging.write(frame.view(), cells).unwrap_err().to_string()
    };
    assert!(refused((4, 2, 2), &[3; 4]).starts_with("features [4, 2, 2] do not fit [3, 2, 2]"));
    assert!(refused((2, 0, 2), &[3; 4]).contains("do not fit"));
    assert_eq!(
        refused((2, 2, 2), &[3; 5]),
        "the canvas index has 5 entries for 4 cells"
    );
    // Row 2 exists, but is no pillar of this frame.
    assert!(refused((2, 2, 2), &[0, 1, 2, 3]).starts_with("canvas index: entry 2 of the index is 2"));
    staging.write(frame.view(), &[0, 1, 3, 3]).unwrap();
    let shape = FrameShape {
        dtype: DType::U8,
        ..shape
    };
    let error = FrameStaging::new(&mut device, shape, 1).unwrap_err();
    assert!(matches!(error, FrameError::DType(DType::U8)));
}

#[test]
fn blocks_that_do_not_hold_together_are_refused() {
    let mut r = Random(9);
    let text = |error: BlockError| error.to_string();
    let (a, b) = (
        Layer::conv(&mut r, [4, 6, 3], 1),
        Layer::conv(&mut r, [5, 6, 3], 1),
    );
    let refused = Second::new(vec![vec![a.spec()], vec![b.spec()]]).unwrap_err();
    assert_eq!(text(refused), "backbone.block1.conv0: 5 input channels behind 6");
    let short = ConvSpec::conv(a.weight.view(), &a.bias[1..]);
    let refused = SecondFpn::new(vec![short]).unwrap_err();
    assert_eq!(text(refused), "neck.deblock0: 5 biases for 6 output channels");
    let head = Head::new(&mut r, 8, 4);
    let refused = CenterHead::new(head.shared.spec(), &[4, 5], &head.specs(), true).unwrap_err();
    assert_eq!(
        text(refused),
        "head.shared: inputs of [4, 5] channels for a layer of 8"
    );
    let mut wide = head.specs();
    wide[1].hidden = Layer::conv(&mut r, [4, 8, 3], 1).spec();
    let refused = merge_heads(&wide, 1).unwrap_err();
    assert_eq!(
        text(refused),
        "head.reg: heads of 1 x 1 convolutions are expected"
    );
    let pfn = Pfn::new(&mut r, 9, 16, 32);
    let refused = PfnPlan::from_weights(pfn.w0.view(), &pfn.b0, pfn.w1.slice(s![..16, ..]), &pfn.b1);
    assert!(
        text(refused.unwrap_err()).contains("a second layer of 16 inputs behind a first one that needs 32")
    );
}

#[test]
fn a_refusal_leaves_nothing_allocated_but_weights() {
    let mut r = Random(10);
    let mut device = cpu(1);
    let layers = backbone(&mut r, 4, &[(8, 1), (8, 1)]);
    let second = Second::new(specs(&layers)).unwrap();
    let spec = TensorSpec::new(&[1, 8, 8, 5], DType::F32).unwrap();
    let mut ops = OpContext::new(&mut device, sensorium::device::Cq::COMPUTE);
    let x = ops.alloc(&spec, sensorium::device::BufferClass::Input).unwrap();
    let map = as_feature_map(&x, [1, 8, 8, 5]).unwrap();
    let before = ops.device.memory().used_bytes;
    let error = second.forward(&mut ops, &map).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("backbone.block0.conv0: the input has shape [1, 5, 8, 8], expected [N, 4, H, W]"),
        "{error}"
    );
    assert_eq!(ops.device.memory().used_bytes, before);
    let fit = DeviceTensor {
        view: map.view.slice(1, 0, 4, 1).unwrap(),
        ..map
    };
    let outputs = second.forward(&mut ops, &fit).unwrap();
    outputs.iter().for_each(|output| ops.free(output).unwrap());
    assert!(ops.device.memory().used_bytes > before);
    second.release(ops.device);
    assert_eq!(ops.device.memory().used_bytes, before);
}

/// Correlation, and the length of the difference relative to that of the exact values.
fn agreement(found: &[f64], exact: &Array2<f64>) -> (f64, f64) {
    assert_eq!(found.len(), exact.len());
    let count = found.len() as f64;
    let (ma, mb) = (found.iter().sum::<f64>() / count, exact.sum() / count);
    let [mut ab, mut aa, mut bb, mut off, mut all] = [0.0; 5];
    for (a, b) in found.iter().zip(exact) {
        ab += (a - ma) * (b - mb);
        aa += (a - ma) * (a - ma);
        bb += (b - mb) * (b - mb);
        off += (a - b) * (a - b);
        all += b * b;
    }
    (ab / (aa * bb).sqrt(), (off / all).sqrt())
}

/// Widths of CenterPoint, PointPainting and TransFusion: features, first layer, outputs, points of a pillar.
const DETECTORS: [[usize; 4]; 3] = [[9, 16, 32, 32], [16, 16, 32, 32], [11, 32, 64, 20]];

#[test]
fn the_matrix_form_of_the_feature_net_is_the_literal_encoder() {
    let mut r = Random(11);
    for [features, hidden, outputs, points] in DETECTORS {
        let pfn = Pfn::new(&mut r, features, hidden, outputs);
        let folded = FoldedPfn::new(&pfn.plan()).unwrap();
        let padded = (hidden + outputs).next_multiple_of(32);
        assert_eq!(folded.shapes(), [[16, 32], [32, padded], [padded, outputs]]);
        let x = Array3::from_shape_simple_fn((50, points, features), || unit(&mut r) * 2.0);
        let exact = pfn.run(&x.mapv(f64::from));
        let found = |rounding| -> Vec<f64> {
            let rows = folded.forward_host(x.view(), rounding).unwrap();
            rows.iter().map(|&v| v.into()).collect()
        };
        let (correlation, off) = agreement(&found(HiddenRounding::None), &exact);
        assert!(correlation > 0.999_999_999 && off < 1e-6, "{correlation} {off}");
        let (correlation, off) = agreement(&found(HiddenRounding::Bf16), &exact);
        assert!(
            correlation > 0.999_99 && (1e-4..0.01).contains(&off),
            "{correlation} {off}"
        );
    }
    let pfn = Pfn::new(&mut r, 17, 16, 32);
    let refused = FoldedPfn::new(&pfn.plan()).unwrap_err();
    assert!(
        refused.to_string().contains("17 features of a point, at most 16"),
        "{refused}"
    );
    let refused = FoldedPfn::new(&Pfn::new(&mut r, 9, 16, 30).plan()).unwrap_err();
    assert!(refused.to_string().contains("30 outputs"), "{refused}");
    let single = PfnPlan::one_layer(pfn.w0.view(), &pfn.b0).unwrap();
    assert!(
        FoldedPfn::new(&single)
            .unwrap_err()
            .to_string()
            .contains("two layers")
    );
}

#[test]
fn two_terms_bring_products_of_bf16_to_the_accuracy_of_its_rounding() {
    let mut r = Random(12);
    for [features, hidden, outputs, points] in DETECTORS {
        let pfn = Pfn::new(&mut r, features, hidden, outputs);
        let folded = FoldedPfn::new(&pfn.plan()).unwrap();
        let frame = Array3::from_shape_simple_fn((60, points, features), || unit(&mut r) * 2.0);
        for dtype in [DType::Bf16, DType::F32] {
            let shape = FrameShape {
                pillars: 72,
                points: 32,
                features: 16,
                cells: 1,
                dtype,
            };
            let packed = pack_features(frame.view(), &shape).unwrap();
            let x = stored(dtype, &features_shape(72, 32, 16), &packed);
            let found = everywhere(&[("x", x.clone())], || {
                let net = TwoTermPfn::new(&folded).unwrap();
                Arc::new(move |context: &mut TraceContext<'_>| {
                    let x = context.input("x")?;
                    Ok(vec![("rows".to_owned(), net.forward(context.ops(), &x)?)])
                })
            });
            let given = Array3::from_shape_vec((72, 32, 16), numbers(&x)).unwrap();
            let exact = pfn.run(&given.slice(s![..60, .., ..features]).to_owned());
            let rows = numbers(&found[0]);
            let (correlation, off) = agreement(&rows[..60 * outputs], &exact);
            println!("{features} to {outputs}, {dtype}: correlation {correlation:.8}, off by {off:.5}");
            assert!(correlation >= 0.999_996 && off <= 0.0027, "{correlation} {off}");
            // Almost all rows are the exact ones rounded once.
            let pairs = rows[..60 * outputs].iter().zip(&exact);
            let other = pairs
                .filter(|&(&found, &exact)| found != half::bf16::from_f32(exact as f32).to_f64())
                .count();
            assert!(other * 50 < 60 * outputs, "{other} of {}", 60 * outputs);
        }
    }
}

#[test]
fn terms_add_up_and_products_of_them_are_nearly_fp32() {
    let mut r = Random(13);
    let values: Vec<f32> = (0..40 * 24).map(|_| unit(&mut r) * 30.0).collect();
    let [high, low] = split_terms_host(&values);
    for ((&x, high), low) in values.iter().zip(&high).zip(&low) {
        assert_eq!(*high, half::bf16::from_f32(x));
        assert!((f64::from(x) - high.to_f64() - low.to_f64()).abs() <= f64::from(x.abs()) / 65_536.0);
    }
    let [high, low] = split_terms_host(&[f32::INFINITY, 1.0]);
    assert_eq!(
        (high[0].to_f32(), low[0].to_f32(), low[1].to_f32()),
        (f32::INFINITY, 0.0, 0.0)
    );
    let weight = Array2::from_shape_simple_fn((24, 33), || unit(&mut r));
    let bias = biases(&mut r, 33);
    let x = HostTensor::from_slice(&[2, 20, 24], &values).unwrap();
    let found = everywhere(&[("x", x)], || {
        let both = TwoTermLinear::new("both", weight.view(), Some(&bias), false).unwrap();
        Arc::new(move |context: &mut TraceContext<'_>| {
            let x = context.input("x")?;
            let ops = context.ops();
            let [high, low] = split_terms(ops, &x)?;
            let y = both.forward(ops, &high, Some(&low))?;
            let rough = both.forward(ops, &high, None)?;
            Ok(vec![
                ("y".to_owned(), y),
                ("rough".to_owned(), rough),
                ("high".to_owned(), high),
                ("low".to_owned(), low),
            ])
        })
    });
    let [high, low] = split_terms_host(&values);
    assert_eq!(found[2].as_slice::<half::bf16>().unwrap(), high);
    assert_eq!(found[3].as_slice::<half::bf16>().unwrap(), low);
    let exact = Array2::from_shape_vec((40, 24), values.iter().map(|&v| f64::from(v)).collect())
        .unwrap()
        .dot(&weight.mapv(f64::from))
        + Array1::from(bias.clone()).mapv(f64::from);
    let (_, off) = agreement(&numbers(&found[0]), &exact);
    let (_, rough) = agreement(&numbers(&found[1]), &exact);
    assert!(off < 2e-5 && rough > 20.0 * off, "{off} {rough}");
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, sensorium::device::Cq::COMPUTE);
    let spec = TensorSpec::new(&[4, 24], DType::F32).unwrap();
    let x = ops.alloc(&spec, sensorium::device::BufferClass::Input).unwrap();
    let both = TwoTermLinear::new("both", weight.view(), None, true).unwrap();
    let refused = both.forward(&mut ops, &x, None).unwrap_err();
    assert!(matches!(refused, BlockError::DType { .. }), "{refused}");
    let x = ops.typecast(&x, DType::Bf16).unwrap();
    assert!(split_terms(&mut ops, &x).is_err());
}

#[test]
fn inputs_are_packed_for_tools_under_the_rules_of_staging() {
    let mut r = Random(14);
    let shape = FrameShape {
        pillars: 5,
        points: 3,
        features: 4,
        cells: 6,
        dtype: DType::F32,
    };
    let frame = Array3::from_shape_simple_fn((2, 2, 3), || unit(&mut r));
    let cells = [5, 0, 5, 1, 5, 5];
    let packed = pack_inputs(frame.view(), &cells, &shape).unwrap();
    assert_eq!(packed.features, expected_frame(&frame.view(), &shape));
    assert_eq!(packed.canvas_index, cells);
    let refused = pack_inputs(frame.view(), &[5, 0, 2, 1, 5, 5], &shape).unwrap_err();
    assert!(matches!(refused, FrameError::Index(_)), "{refused}");
    let refused = pack_inputs(frame.view(), &cells[1..], &shape).unwrap_err();
    assert!(matches!(
        refused,
        FrameError::Cells {
            found: 5,
            expected: 6
        }
    ));
}
