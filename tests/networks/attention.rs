//! Attention and what belongs to it, against its definition in f64; every replay has the bits of an eager run.

use crate::traced;
use std::sync::Arc;
use std::time::Duration;

use ndarray::{Array1, Array2, s};
use sensorium::device::{BufferClass, Cq};
use sensorium::ops::attention::{
    AttentionError, CHUNK_TABLE, ChunkConfig, Chunks, SdpaOptions, aligned_keys, attention_matmul,
    chunk_config, expand_key_bias, key_bias, key_bias_row, merge_heads, pad_head_columns, pad_head_dim,
    pad_head_rows, padded_head_dim, sdpa, split_heads, split_q_kv, split_qkv,
};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor};

use traced::{Random, Work, correlation, cpu, distance, numbers, replayed, stored};

/// Sizes of a case: batch, heads, heads of keys, queries, keys, values of a head.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    size: usize,
}

impl Sizes {
    const fn new(heads: usize, queries: usize, keys: usize, size: usize) -> Self {
        Self {
            batch: 1,
            heads,
            kv_heads: heads,
            queries,
            keys,
            size,
        }
    }

    fn q(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.size]
    }

    fn k(&self) -> [usize; 4] {
        [self.batch, self.kv_heads, self.keys, self.size]
    }
}

/// `softmax(scale q k^T + bias) v` row by row; `bias` is one of keys. Results in the order `[B, H, Sq, D]`.
fn attention(sizes: &Sizes, [q, k, v]: [&[f64]; 3], scale: f64, bias: Option<&[f64]>) -> Vec<f64> {
    let Sizes {
        batch,
        heads,
        kv_heads,
        queries,
        keys,
        size,
    } = *sizes;
    let mut out = vec![0.0; batch * heads * queries * size];
    for (row, result) in out.chunks_exact_mut(size).enumerate() {
        let (head, query) = (row / queries, &q[row * size..(row + 1) * size]);
        let group = head / heads * kv_heads + head % heads / (heads / kv_heads);
        let at = |key: usize| (group * keys + key) * size..(group * keys + key + 1) * size;
        let scores: Vec<f64> = (0..keys)
            .map(|key| {
                let product: f64 = query.iter().zip(&k[at(key)]).map(|(a, b)| a * b).sum();
                product * scale + bias.map_or(0.0, |bias| bias[key])
            })
            .collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (key, weight) in weights.iter().enumerate() {
            for (to, value) in result.iter_mut().zip(&v[at(key)]) {
                *to += weight / total * value;
            }
        }
    }
    out
}

struct Case {
    sizes: Sizes,
    tensors: [HostTensor; 3],
    scale: f32,
    /// Keys that may be seen.
    valid: Option<Vec<bool>>,
}

impl Case {
    /// `sharp` makes attention to few keys, otherwise it is nearly even.
    fn new(r: &mut Random, dtype: DType, sizes: Sizes, sharp: bool, seen: Option<usize>) -> Self {
        let range = if sharp { 4.0 } else { 0.5 };
        let mut made = |dims: [usize; 4], range: f32| {
            let count = dims.iter().product();
            stored(dtype, &dims, &r.numbers(count, range))
        };
        Self {
            sizes,
            tensors: [made(sizes.q(), range), made(sizes.k(), 1.0), made(sizes.k(), 1.0)],
            scale: 1.0 / (sizes.size as f32).sqrt(),
            valid: seen.map(|seen| (0..sizes.keys).map(|key| key < seen && key % 7 != 3).collect()),
        }
    }

    fn exact(&self) -> Vec<f64> {
        let [q, k, v] = self.tensors.each_ref().map(numbers);
        let bias: Option<Vec<f64>> = self.valid.as_ref().map(|valid| {
            let bias = valid
                .iter()
                .map(|&valid| if valid { 0.0 } else { f64::NEG_INFINITY });
            bias.collect()
        });
        attention(&self.sizes, [&q, &k, &v], self.scale.into(), bias.as_deref())
    }

    /// Traced on devices; the mask's row is an input.
    fn run(&self, simulated: bool, fused: bool) -> Vec<f64> {
        let [q, k, v] = self.tensors.clone();
        let mut inputs = vec![("q", q), ("k", k), ("v", v)];
        let masked = self.valid.is_some();
        if let Some(valid) = &self.valid {
            inputs.push(("row", key_bias_row(valid).unwrap()));
        }
        let (queries, scale) = (self.sizes.queries, self.scale);
        let found = replayed(&inputs, simulated, || -> Arc<Work> {
            Arc::new(move |context| {
                let [q, k, v] = [context.input("q")?, context.input("k")?, context.input("v")?];
                let mask = match masked {
                    true => Some(expand_key_bias(&context.input("row")?, queries)?),
                    false => None,
                };
                let options = SdpaOptions {
                    mask: mask.as_ref(),
                    ..SdpaOptions::new(scale)
                };
                let out = match fused {
                    true => sdpa(context.ops(), [&q, &k, &v], &options)?,
                    false => attention_matmul(context.ops(), [&q, &k, &v], scale, mask.as_ref())?,
                };
                Ok(vec![("out".into(), out)])
            })
        });
        numbers(&found[0])
    }
}

fn check(name: &str, case: &Case, found: &[f64], least: f64) {
    let exact = case.exact();
    let (found_correlation, off) = (correlation(found, &exact), distance(found, &exact));
    println!("{name}: correlation {found_correlation:.7}, off by {off:.1e}");
    assert!(
        found_correlation >= least,
        "{name}: correlation {found_correlation}"
    );
    if case.tensors[0].dtype() == DType::F32 {
        assert!(off <= 2e-5, "{name}: off by {off}");
    }
}

#[test]
fn fused_attention_equals_its_definition_at_the_shapes_of_networks() {
    let mut r = Random(81);
    let shapes = [
        ("planner, masked", Sizes::new(8, 576, 576, 32), Some(564), true),
        ("planner, masked", Sizes::new(2, 352, 352, 32), Some(89), true),
        ("planner, cross", Sizes::new(2, 352, 564, 32), None, true),
        ("planner, few keys", Sizes::new(2, 321, 564, 32), None, true),
        ("decoder", Sizes::new(2, 500, 500, 32), None, false),
        ("decoder, long", Sizes::new(1, 900, 1668, 32), None, false),
    ];
    for (name, sizes, seen, simulated) in shapes {
        for sharp in [false, true] {
            for dtype in [DType::F32, DType::Bf16] {
                let case = Case::new(&mut r, dtype, sizes, sharp, seen);
                let found = case.run(simulated && sizes.heads < 8, true);
                let name = format!("{name} {sizes:?}, {dtype}, sharp {sharp}");
                check(
                    &name,
                    &case,
                    &found,
                    if dtype == DType::F32 { 0.999_999 } else { 0.9996 },
                );
            }
        }
    }
}

#[test]
fn attention_over_a_whole_map_stays_exact() {
    let mut r = Random(82);
    for (dtype, least) in [(DType::F32, 0.999_999), (DType::Bf16, 0.9996)] {
        let case = Case::new(&mut r, dtype, Sizes::new(1, 500, 32_400, 32), true, None);
        let found = case.run(false, true);
        check(&format!("map, {dtype}"), &case, &found, least);
    }
}

#[test]
fn heads_may_share_keys_and_values() {
    let mut r = Random(83);
    let sizes = Sizes {
        batch: 2,
        kv_heads: 2,
        ..Sizes::new(6, 40, 96, 64)
    };
    for seen in [None, Some(80)] {
        for fused in [true, false] {
            let case = Case::new(&mut r, DType::F32, sizes, true, seen);
            check("shared", &case, &case.run(true, fused), 0.999_999);
        }
    }
}

#[test]
fn the_form_of_two_products_takes_heads_and_masks_of_any_size() {
    let mut r = Random(84);
    for (sizes, seen) in [
        (Sizes::new(3, 33, 45, 16), Some(40)),
        (Sizes::new(8, 100, 100, 24), None),
        (Sizes::new(2, 64, 321, 32), Some(89)),
    ] {
        let case = Case::new(&mut r, DType::F32, sizes, true, seen);
        check("two products", &case, &case.run(true, false), 0.999_998);
        let case = Case::new(&mut r, DType::Bf16, sizes, false, seen);
        check("two products, bf16", &case, &case.run(true, false), 0.9996);
    }
}

fn upload(ops: &mut OpContext<'_>, tensor: &HostTensor) -> DeviceTensor {
    ops.upload(tensor, BufferClass::Weight).unwrap()
}

fn download(ops: &mut OpContext<'_>, tensor: &DeviceTensor) -> HostTensor {
    ops.download(tensor, Duration::from_secs(20)).unwrap()
}

/// Values `0, 1, 2, ...` of a shape.
fn counted(dims: [usize; 4]) -> HostTensor {
    let count: usize = dims.iter().product();
    HostTensor::from_slice(&dims, &(0..count).map(|i| i as f32).collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_query_has_the_same_bits_alone_as_among_others_and_in_any_chunk_of_queries() {
    let mut r = Random(85);
    let sizes = Sizes::new(3, 150, 224, 32);
    let case = Case::new(&mut r, DType::F32, sizes, true, None);
    let mut device = cpu(2);
    let mut ops = OpContext::new(&mut device, Cq(0));
    let [q, k, v] = case.tensors.each_ref().map(|tensor| upload(&mut ops, tensor));
    let keys = 64;
    let mut run = |q: &DeviceTensor, queries: usize| {
        let options = SdpaOptions {
            chunks: Chunks::Fixed(ChunkConfig { queries, keys }),
            ..SdpaOptions::new(case.scale)
        };
        let out = sdpa(&mut ops, [q, &k, &v], &options).unwrap();
        download(&mut ops, &out).as_slice::<f32>().unwrap().to_vec()
    };
    let whole = run(&q, 64);
    assert_eq!(whole, run(&q, 32));
    for (first, count) in [(0, 1), (77, 13), (149, 1)] {
        let part = DeviceTensor {
            view: q.view.slice(2, first, count, 1).unwrap(),
            ..q
        };
        for (head, rows) in run(&part, 64).chunks(count * 32).enumerate() {
            let begin = (head * 150 + first) * 32;
            assert_eq!(rows, &whole[begin..begin + count * 32]);
        }
    }
}

#[test]
fn joined_heads_are_a_matter_of_where_results_are_written() {
    let mut r = Random(86);
    let case = Case::new(&mut r, DType::Bf16, Sizes::new(4, 50, 64, 32), true, None);
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq(0));
    let [q, k, v] = case.tensors.each_ref().map(|tensor| upload(&mut ops, tensor));
    let apart = sdpa(&mut ops, [&q, &k, &v], &SdpaOptions::new(case.scale)).unwrap();
    let options = SdpaOptions {
        concat_heads: true,
        ..SdpaOptions::new(case.scale)
    };
    let joined = sdpa(&mut ops, [&q, &k, &v], &options).unwrap();
    assert_eq!(joined.view.shape[..], [1, 1, 50, 128]);
    let merged = merge_heads(&mut ops, &apart).unwrap();
    assert_ne!(merged.buffer, apart.buffer);
    assert_eq!(
        download(&mut ops, &joined).bytes(),
        download(&mut ops, &merged).bytes()
    );
}

#[test]
fn a_query_that_sees_no_key_gives_zeros_and_a_nan_stays_with_its_query() {
    let mut r = Random(87);
    let sizes = Sizes::new(1, 3, 64, 32);
    let case = Case::new(&mut r, DType::F32, sizes, true, None);
    let mut values = numbers(&case.tensors[0]);
    values[2 * 32 + 5] = f64::NAN;
    let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq(0));
    let q = upload(&mut ops, &stored(DType::F32, &sizes.q(), &values));
    let [k, v] = [1, 2].map(|i| upload(&mut ops, &case.tensors[i]));
    let mut mask = vec![0.0; 3 * 64];
    mask[64..128].fill(f32::NEG_INFINITY);
    let mask = upload(&mut ops, &stored(DType::F32, &[1, 1, 3, 64], &mask));
    for keys in [32, 64] {
        let options = SdpaOptions {
            mask: Some(&mask),
            chunks: Chunks::Fixed(ChunkConfig { queries: 32, keys }),
            ..SdpaOptions::new(case.scale)
        };
        let out = sdpa(&mut ops, [&q, &k, &v], &options).unwrap();
        let out = numbers(&download(&mut ops, &out));
        assert!(out[..32].iter().all(|y| y.is_finite() && *y != 0.0));
        assert!(out[32..64].iter().all(|&y| y == 0.0));
        assert!(out[64..].iter().all(|y| y.is_nan()));
    }
}

#[test]
fn what_would_go_wrong_silently_is_refused_with_the_reason() {
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq(0));
    let mut zeros = |dims: [usize; 4]| {
        let count = dims.iter().product();
        upload(&mut ops, &stored(DType::F32, &dims, &vec![0.0; count]))
    };
    let [q, k, odd, narrow] = [[1, 2, 8, 32], [1, 2, 64, 32], [1, 2, 45, 32], [1, 2, 8, 16]].map(&mut zeros);
    let [long, mask, odd_mask, row, three, pair] = [
        [1, 2, 1000, 32],
        [1, 1, 8, 64],
        [1, 1, 8, 45],
        [1, 1, 1, 64],
        [1, 3, 64, 32],
        [2, 2, 64, 32],
    ]
    .map(&mut zeros);
    let used = ops.device.memory().used_bytes;
    let plain = SdpaOptions::new(0.125);
    let masked = |mask| SdpaOptions {
        mask: Some(mask),
        ..plain
    };
    let chunked = |chunks| SdpaOptions { chunks, ..plain };
    let size = |queries, keys| Chunks::Fixed(ChunkConfig { queries, keys });
    let cases: [(&str, [&DeviceTensor; 3], SdpaOptions<'_>); 13] = [
        (
            "keys that fill the last tile",
            [&q, &odd, &odd],
            masked(&odd_mask),
        ),
        (
            "run on aligned_keys(45) keys",
            [&q, &odd, &odd],
            masked(&odd_mask),
        ),
        ("expand_key_bias", [&q, &k, &k], masked(&row)),
        (
            "slow and lose accuracy",
            [&q, &long, &long],
            chunked(Chunks::OfOperation),
        ),
        ("positive multiples of 32", [&q, &k, &k], chunked(size(64, 0))),
        ("positive multiples of 32", [&q, &k, &k], chunked(size(30, 64))),
        ("the scale is NaN", [&q, &k, &k], SdpaOptions::new(f32::NAN)),
        ("the scale is inf", [&q, &k, &k], SdpaOptions::new(f32::INFINITY)),
        ("heads of 16 values", [&narrow, &narrow, &narrow], plain),
        ("the key has shape", [&q, &narrow, &k], plain),
        ("the key has shape", [&q, &pair, &pair], plain),
        ("the value has shape", [&q, &k, &odd], plain),
        ("among 3 heads", [&q, &three, &three], plain),
    ];
    for (reason, tensors, options) in cases {
        let error = sdpa(&mut ops, tensors, &options).unwrap_err().to_string();
        assert!(error.contains(reason), "expected {reason:?}, found {error:?}");
    }
    let short = sdpa(&mut ops, [&q, &odd, &odd], &chunked(Chunks::OfOperation)).unwrap();
    ops.free(&short).unwrap();
    let fine = sdpa(&mut ops, [&q, &k, &k], &masked(&mask)).unwrap();
    ops.free(&fine).unwrap();
    assert_eq!(ops.device.memory().used_bytes, used, "a refusal kept memory");
}

#[test]
fn chunks_follow_the_table_and_the_rules() {
    let pair = |queries, keys| {
        let chunks = chunk_config(queries, keys);
        (chunks.queries, chunks.keys)
    };
    assert_eq!(pair(500, 32_400), (64, 1024));
    assert_eq!(pair(500, 16_384), (64, 1024));
    assert_eq!(pair(500, 16_383), (64, 512));
    assert_eq!(pair(10, 4096), (64, 512));
    assert_eq!(pair(900, 1668), (64, 128));
    assert_eq!(pair(900, 1000), (64, 128));
    assert_eq!(pair(900, 999), (64, 64));
    assert_eq!(pair(32, 32), (32, 32));
    assert_eq!(pair(33, 20), (64, 32));
    for known in CHUNK_TABLE {
        assert_eq!(chunk_config(known.queries, known.keys), known.chunks);
        assert!(
            Chunks::Fixed(known.chunks)
                .resolve(known.queries, known.keys)
                .is_ok()
        );
    }
}

#[test]
fn heads_are_split_and_merged_without_moving_anything() {
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq(0));
    let (batch, rows, heads, size) = (2, 5, 3, 4);
    let x = upload(&mut ops, &counted([batch, 1, rows, heads * size]));
    let split = split_heads(&x, heads).unwrap();
    assert_eq!(
        (split.buffer, &split.view.shape[..]),
        (x.buffer, &[2, 3, 5, 4][..])
    );
    let found = numbers(&download(&mut ops, &split));
    for (i, &value) in found.iter().enumerate() {
        let (d, s, h, b) = (
            i % size,
            i / size % rows,
            i / size / rows % heads,
            i / size / rows / heads,
        );
        assert_eq!(value, ((b * rows + s) * heads * size + h * size + d) as f64);
    }
    let back = merge_heads(&mut ops, &split).unwrap();
    assert_eq!(back, x);

    let qkv = upload(&mut ops, &counted([1, 1, rows, (4 + 2 * 2) * size]));
    let parts = split_qkv(&qkv, 4, 2).unwrap();
    let first: Vec<f64> = parts
        .iter()
        .map(|part| numbers(&download(&mut ops, part))[0])
        .collect();
    assert_eq!(first, [0.0, 16.0, 24.0]);
    assert_eq!(parts.map(|part| part.view.shape[1]), [4, 2, 2]);

    let kv = upload(&mut ops, &counted([batch, 1, rows, 2 * heads * size]));
    let [q, k, v] = split_q_kv(&x, &kv, heads, heads).unwrap();
    assert_eq!(q, split);
    assert_eq!(numbers(&download(&mut ops, &k))[..5], [0.0, 1.0, 2.0, 3.0, 24.0]);
    assert_eq!(
        numbers(&download(&mut ops, &v))[..5],
        [12.0, 13.0, 14.0, 15.0, 36.0]
    );

    let other = upload(&mut ops, &counted([batch, 1, rows + 1, 2 * heads * size]));
    for error in [
        split_heads(&x, 5).map(|_| ()),
        split_heads(&x, 0).map(|_| ()),
        split_heads(&split, 3).map(|_| ()),
        split_qkv(&qkv, 5, 2).map(|_| ()),
        split_qkv(&qkv, 4, usize::MAX).map(|_| ()),
        split_q_kv(&x, &other, heads, heads).map(|_| ()),
        split_q_kv(&x, &kv, heads, 2).map(|_| ()),
    ] {
        let error = error.unwrap_err();
        assert!(
            matches!(error, AttentionError::Shape { .. } | AttentionError::Heads { .. }),
            "{error}"
        );
    }
}

#[test]
fn masks_over_keys_say_what_may_be_seen() {
    assert_eq!([0, 1, 32, 33, 564].map(aligned_keys), [0, 32, 32, 64, 576]);
    let row = key_bias_row(&[true, false, true]).unwrap();
    assert_eq!(row.shape()[..], [1, 1, 1, 3]);
    assert_eq!(row.as_slice::<f32>().unwrap(), [0.0, f32::NEG_INFINITY, 0.0]);
    let whole = key_bias(&[true, false, true], 2).unwrap();
    assert_eq!(whole.shape()[..], [1, 1, 2, 3]);
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq(0));
    let expanded = expand_key_bias(&upload(&mut ops, &row), 2).unwrap();
    assert_eq!(download(&mut ops, &expanded).bytes(), whole.bytes());
    assert!(expand_key_bias(&expanded, 2).is_err());
}

/// `x W + b`
fn project(x: &Array2<f64>, w: &Array2<f32>, b: &Array1<f32>) -> Array2<f64> {
    x.dot(&w.mapv(f64::from)) + b.mapv(f64::from)
}

#[test]
fn padding_heads_in_the_weights_is_exact() {
    let mut r = Random(88);
    let (rows, heads, size, inputs) = (40, 2, 16, 24);
    let mut matrix = |a: usize, b: usize| Array2::from_shape_simple_fn((a, b), || r.unit());
    let (w, out) = (matrix(inputs, heads * size), matrix(heads * size, 7));
    let bias = matrix(1, heads * size).row(0).to_owned();
    let x = matrix(rows, inputs).mapv(f64::from);
    assert_eq!([0, 1, 16, 32, 33].map(padded_head_dim), [0, 32, 32, 32, 64]);
    let (wide, wide_bias) = pad_head_columns(w.view(), Some(bias.view()), heads, size).unwrap();
    let tall = pad_head_rows(out.view(), heads, size).unwrap();
    assert_eq!((wide.dim(), tall.dim()), ((inputs, 64), (64, 7)));
    assert_eq!(
        pad_head_columns(w.view(), None, heads, size).unwrap(),
        (wide.clone(), None)
    );
    let (short, long) = (project(&x, &w, &bias), project(&x, &wide, &wide_bias.unwrap()));
    for head in 0..heads {
        let kept = long.slice(s![.., head * 32..head * 32 + size]);
        assert_eq!(kept, short.slice(s![.., head * size..(head + 1) * size]));
        assert!(
            long.slice(s![.., head * 32 + size..(head + 1) * 32])
                .iter()
                .all(|&v| v == 0.0)
        );
    }
    let gap = long.dot(&tall.mapv(f64::from)) - short.dot(&out.mapv(f64::from));
    assert!(gap.iter().all(|gap| gap.abs() < 1e-12));

    // On the device: heads of 16 padded to 32, with the scale of 16.
    let values: Vec<f32> = short.iter().map(|&v| v as f32).collect();
    let padded: Vec<f32> = long.iter().map(|&v| v as f32).collect();
    let mut device = cpu(1);
    let mut ops = OpContext::new(&mut device, Cq(0));
    let x16 = upload(
        &mut ops,
        &stored(DType::F32, &[1, 1, rows, heads * size], &values),
    );
    let x32 = upload(&mut ops, &stored(DType::F32, &[1, 1, rows, heads * 32], &padded));
    let (x16, x32) = (
        split_heads(&x16, heads).unwrap(),
        split_heads(&x32, heads).unwrap(),
    );
    let on_device = pad_head_dim(&mut ops, &x16).unwrap();
    assert_eq!(
        download(&mut ops, &on_device).bytes(),
        download(&mut ops, &x32).bytes()
    );
    let fused = sdpa(&mut ops, [&x32; 3], &SdpaOptions::new(0.25)).unwrap();
    let fused = numbers(&download(&mut ops, &fused));
    let heads16 = numbers(&download(&mut ops, &x16));
    let exact = attention(&Sizes::new(heads, rows, rows, size), [&heads16; 3], 0.25, None);
    for (row, line) in fused.chunks(32).enumerate() {
        assert!(distance(&line[..size], &exact[row * size..(row + 1) * size]) < 1e-5);
        assert!(line[size..].iter().all(|&v| v == 0.0));
    }
    for error in [
        pad_head_columns(w.view(), None, 3, size).map(|_| ()),
        pad_head_columns(w.view(), Some(bias.slice(s![1..])), heads, size).map(|_| ()),
        pad_head_rows(out.view(), 0, size).map(|_| ()),
    ] {
        assert!(matches!(error, Err(AttentionError::Heads { .. })));
    }
}
