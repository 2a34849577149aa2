//! Nodes of ONNX models by name, pattern and neighbour, their records, and normalisations folded into them, against
//! ONNX Runtime.

use crate::support;
use std::path::Path;
use std::sync::Arc;

use sensorium::weights::{
    AutoPad, BatchNorm, LinearLayout, LookupError, Npz, NpzCompression, OnnxModel, Pattern, file_sha256,
    fold_bn, fold_bn_conv_transpose, fold_bn_linear,
};

fn glob(text: &str) -> Pattern {
    Pattern::glob(text).unwrap()
}

fn regex(text: &str) -> Pattern {
    Pattern::regex(text).unwrap()
}

/// The oracle's model, its folder and the digest that Python has of it.
fn layers() -> Option<(OnnxModel, tempfile::TempDir, String)> {
    let mut oracle = support::oracle("onnx_layers.py")?;
    let folder = tempfile::tempdir().unwrap();
    let digest = support::run(oracle.arg("make").arg(folder.path()));
    let model = OnnxModel::open(folder.path().join("layers.onnx")).unwrap();
    Some((
        model,
        folder,
        String::from_utf8(digest).unwrap().trim().to_owned(),
    ))
}

#[test]
fn nodes_are_found_by_name_pattern_and_neighbour() {
    let Some((model, ..)) = layers() else { return };
    let names = |pattern: &Pattern, op| -> Vec<String> {
        model.nodes_like(pattern, op).map(|n| n.name.clone()).collect()
    };
    assert_eq!(names(&glob("/net/*"), Some("Conv")).len(), 3);
    assert_eq!(names(&glob("/net/*/{conv,bn}"), None).len(), 10);
    assert_eq!(names(&glob("/net/up/*"), None), ["/net/up/conv", "/net/up/bn"]);
    assert_eq!(names(&glob("up"), None), Vec::<String>::new());
    assert_eq!(names(&regex("up.*bn$"), None), ["/net/up/bn", "/net/up_line/bn"]);
    // Nodes without a name are called after their place in the file.
    assert_eq!(names(&glob("Gemm_*"), None), ["Gemm_12"]);

    let found = model.find_node(&glob("/net/*"), Some("ConvTranspose"));
    assert_eq!(
        found.unwrap_err().to_string(),
        "layers.onnx: 2 nodes fit `/net/* (ConvTranspose)`, one is wanted: `/net/up/conv`, `/net/up_line/conv`"
    );
    let found = model.find_node(&regex("^nothing"), None).unwrap_err();
    assert_eq!(
        found.to_string(),
        "layers.onnx: 0 nodes fit `^nothing`, one is wanted"
    );
    let gemm = model.find_node(&glob("*"), Some("Gemm")).unwrap();
    assert_eq!(model.consumer_of("g", None).unwrap().op_type, "MatMul");
    assert!(model.consumer_of("g", Some("Add")).is_none());
    assert!(model.consumer_of("product", None).is_none(), "two nodes read it");
    assert_eq!(gemm.output(0), Some("g"));

    let found = model.node("/net/up/cnov").unwrap_err().to_string();
    assert_eq!(
        found,
        "layers.onnx: no node is called `/net/up/cnov`; did you mean `/net/up/conv`?"
    );
    assert!(matches!(
        model.node("twin"),
        Err(LookupError::NameTwice { count: 2, .. })
    ));
    assert!(
        Pattern::glob("[")
            .unwrap_err()
            .to_string()
            .starts_with("\"[\" is no glob: ")
    );
    assert!(Pattern::regex("(").is_err());
}

#[test]
fn constants_are_found_by_user_and_slot_and_through_identity() {
    let Some((model, folder, digest)) = layers() else {
        return;
    };
    let line = model.node("/net/line/conv").unwrap();
    assert!(Arc::ptr_eq(
        &model.param(line, 1).unwrap(),
        model.array("line.w").unwrap()
    ));
    assert_eq!(
        model
            .params(line)
            .iter()
            .map(|(slot, _)| *slot)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(matches!(
        model.param(line, 0),
        Err(LookupError::NotConstant { slot: 0, .. })
    ));
    assert!(matches!(
        model.param(line, 3),
        Err(LookupError::NoInput { slot: 3, .. })
    ));
    let product = model.find_node(&glob("*"), Some("MatMul")).unwrap();
    let (weight, slot) = model.matmul_weight(product).unwrap();
    assert_eq!((&weight.shape()[..], slot), (&[5, 4][..], 1));
    assert!(matches!(
        model.matmul_weight(line),
        Err(LookupError::Operation { .. })
    ));
    assert!(model.initializer_names().any(|n| n == "gemm.b"));
    assert_eq!(
        model.state_dict().sub("gemm").unwrap().floats("b").unwrap().len(),
        5
    );

    assert_eq!(model.sha256(), digest);
    assert_eq!(file_sha256(folder.path().join("layers.onnx")).unwrap(), digest);
    // A change of a constant beside the file changes the digest of the model.
    let path = folder.path().join("external.onnx");
    let before = OnnxModel::open(&path).unwrap();
    assert_ne!(before.sha256(), file_sha256(&path).unwrap());
    let weights = folder.path().join("weights.bin");
    let mut bytes = std::fs::read(&weights).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    assert_ne!(OnnxModel::open(&path).unwrap().sha256(), before.sha256());
}

#[test]
fn records_hold_what_the_layers_say() {
    let Some((model, ..)) = layers() else { return };
    let image = model.conv(model.node("/net/image/conv").unwrap()).unwrap();
    assert_eq!((image.group, image.transposed), (2, false));
    assert_eq!(
        (&image.strides[..], &image.dilations[..]),
        (&[2, 1][..], &[1, 2][..])
    );
    assert_eq!(
        (&image.pads[..], &image.kernel_shape[..]),
        (&[1, 0, 1, 2][..], &[3, 3][..])
    );
    assert_eq!(
        (image.auto_pad, image.output_shape.as_ref()),
        (AutoPad::NotSet, None)
    );
    let line = model.conv(model.node("/net/line/conv").unwrap()).unwrap();
    assert_eq!((line.auto_pad, &line.pads[..]), (AutoPad::SameUpper, &[0, 0][..]));
    let up = model.conv(model.node("/net/up/conv").unwrap()).unwrap();
    assert_eq!((up.transposed, up.group, up.output_channels()), (true, 3, 6));
    assert_eq!(up.output_padding, [1, 0]);
    assert!(
        model
            .conv(model.node("/net/volume/conv").unwrap())
            .unwrap()
            .bias
            .is_none()
    );
    let gemm = model
        .gemm(model.find_node(&glob("*"), Some("Gemm")).unwrap())
        .unwrap();
    assert_eq!(
        (gemm.trans_a, gemm.trans_b, gemm.alpha, gemm.beta),
        (false, true, 0.5, 2.0)
    );
    assert_eq!(&gemm.weight.shape()[..], [5, 7]);
    let norm = model.batchnorm(model.node("/net/up/bn").unwrap()).unwrap();
    assert_eq!((norm.channels(), norm.epsilon), (6, f64::from(1e-3_f32)));
    let wrong = model.batchnorm(model.node("/net/up/conv").unwrap()).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "layers.onnx: node `/net/up/conv` is a ConvTranspose, BatchNormalization is wanted"
    );
}

/// Convolutions of one to three dimensions, grouped and transposed ones, run by ONNX Runtime with and without their
/// normalisation: 1e-6 of the largest value, which is the rounding of fp32 sums in another order.
#[test]
fn folded_layers_compute_what_the_layers_and_their_normalisations_do() {
    let Some((model, folder, _)) = layers() else {
        return;
    };
    let mut npz = Npz::default();
    for name in ["image", "line", "volume", "up", "up_line"] {
        let conv = model.node(&format!("/net/{name}/conv")).unwrap();
        let norm = model.node(&format!("/net/{name}/bn")).unwrap();
        let folded = model.fold_conv_bn(conv, None).unwrap();
        assert_eq!(folded, model.fold_conv_bn(conv, Some(norm)).unwrap());
        npz.insert(format!("{name}.w"), folded.weight);
        npz.insert(format!("{name}.b"), folded.bias.unwrap());
    }
    npz.save(folder.path().join("folded.npz"), NpzCompression::Stored)
        .unwrap();
    let mut oracle = support::oracle("onnx_layers.py").unwrap();
    let output = String::from_utf8(support::run(oracle.arg("check").arg(folder.path()))).unwrap();
    assert_eq!(output.lines().count(), 5);
    for line in output.lines() {
        println!("{line}");
        let (name, difference): (String, f64) = serde_json::from_str(line).unwrap();
        assert!(difference < 1e-6, "{name}: {difference}");
    }
}

#[test]
fn a_convolution_that_others_read_too_keeps_its_normalisation() {
    let Some((model, ..)) = layers() else { return };
    let (image, up) = (
        model.node("/net/image/conv").unwrap(),
        model.node("/net/up/bn").unwrap(),
    );
    let other = model.fold_conv_bn(image, Some(up)).unwrap_err();
    assert_eq!(
        other.to_string(),
        "layers.onnx: a batch normalisation cannot be folded into node `/net/image/conv`: `/net/image/bn`, a \
         BatchNormalization, reads its result"
    );
}

/// Folding a layer of `y[o] = sum_i w * x[i] + b` in every layout against normalising its result in float64.
#[test]
fn linear_and_transposed_layouts_fold_channel_by_channel() {
    let value = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 16.0;
    let channels = |first: usize, count: usize| -> Vec<f64> {
        (0..count).map(|i| f64::from(value(first + i))).collect()
    };
    let norm = |count: usize| BatchNorm {
        scale: channels(3, count),
        shift: channels(20, count),
        mean: channels(40, count),
        variance: channels(60, count).iter().map(|v| v * v + 0.1).collect(),
        epsilon: 1e-5,
    };
    let factor = |norm: &BatchNorm, c: usize| norm.scale[c] / (norm.variance[c] + norm.epsilon).sqrt();

    // [Cout, Cin] = [3, 4] and its transpose.
    let (out_in, bias): (Vec<f32>, Vec<f32>) = ((0..12).map(value).collect(), (0..3).map(value).collect());
    let in_out: Vec<f32> = (0..12).map(|i| out_in[i % 3 * 4 + i / 3]).collect();
    let n = norm(3);
    let (rows, row_bias) = fold_bn_linear(&out_in, [3, 4], Some(&bias), &n, LinearLayout::OutIn).unwrap();
    let (columns, column_bias) =
        fold_bn_linear(&in_out, [4, 3], Some(&bias), &n, LinearLayout::InOut).unwrap();
    for o in 0..3 {
        for i in 0..4 {
            let expected = (f64::from(out_in[o * 4 + i]) * factor(&n, o)) as f32;
            assert_eq!(rows[o * 4 + i].to_bits(), expected.to_bits());
            assert_eq!(columns[i * 3 + o].to_bits(), expected.to_bits());
        }
        let expected = f64::from(bias[o]) * factor(&n, o) + (n.shift[o] - n.mean[o] * factor(&n, o));
        assert_eq!(row_bias[o], expected as f32);
    }
    assert_eq!(row_bias, column_bias);

    // [Cin, Cout / groups, K] = [4, 3, 2] in 2 groups: inputs 0 and 1 make outputs 0 to 2, inputs 2 and 3 make 3 to 5.
    let n = norm(6);
    let weight: Vec<f32> = (0..24).map(value).collect();
    let (folded, _) = fold_bn_conv_transpose(&weight, &[4, 3, 2], None, &n, 2).unwrap();
    for i in 0..4 {
        for o in 0..3 {
            for k in 0..2 {
                let at = (i * 3 + o) * 2 + k;
                let expected = f64::from(weight[at]) * factor(&n, i / 2 * 3 + o);
                assert_eq!(folded[at].to_bits(), (expected as f32).to_bits());
            }
        }
    }
    // Along any axis, in float64 for a rounding of one's own.
    let doubles: Vec<f64> = weight.iter().map(|&w| f64::from(w)).collect();
    let n = norm(3);
    let (folded, bias) = fold_bn(&doubles, &[4, 3, 2], None, &n, 1).unwrap();
    for (at, (&found, &w)) in folded.iter().zip(&doubles).enumerate() {
        assert_eq!(found.to_bits(), (w * factor(&n, at / 2 % 3)).to_bits());
    }
    assert_eq!(
        bias[2].to_bits(),
        (n.shift[2] - n.mean[2] * factor(&n, 2)).to_bits()
    );
}

#[test]
fn a_missing_file_has_no_digest() {
    assert!(file_sha256(Path::new("no/such/file")).is_err());
}
