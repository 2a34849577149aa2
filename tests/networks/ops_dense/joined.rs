//! What joins and divides maps: exact moves.

use ndarray::{Array4, Axis, concatenate};
use sensorium::device::{Activation, Scalar};
use sensorium::ops::conv::{
    Conv2d, Conv2dSpec, LayerError, concat_channels, merge_sibling_convs, residual_add, split_channels,
};
use sensorium::precision::Math;
use sensorium::tensor::DType;

use crate::ops_dense::reference::{Random, array4, bits, run, stored, vector};

#[test]
fn merged_siblings_compute_what_each_computed() {
    let mut r = Random(21);
    let sizes = [3, 40, 1, 18];
    let weights: Vec<Array4<f32>> = sizes
        .iter()
        .map(|&out| array4(&mut r, [out, 12, 3, 3], 0.4))
        .collect();
    let biases: Vec<Vec<f32>> = sizes.iter().map(|&out| vector(&mut r, out)).collect();
    let convs: Vec<_> = weights
        .iter()
        .zip(&biases)
        .enumerate()
        .map(|(i, (weight, bias))| (weight.view(), (i != 2).then_some(&**bias)))
        .collect();
    let merged = merge_sibling_convs(&convs).unwrap();
    assert_eq!(merged.sizes, sizes);
    let x = array4(&mut r, [2, 12, 6, 7], 1.0);
    for dtype in [DType::F32, DType::Bf16] {
        let together = Conv2d::new(
            "all",
            Conv2dSpec::new(merged.weight.view(), Some(&merged.bias), Math::Native),
        )
        .unwrap();
        let results = run(&x, dtype, |ops, x| {
            let joined = together.forward(ops, x)?;
            let mut maps = Vec::new();
            for part in split_channels(&joined, &sizes)? {
                maps.push(concat_channels(ops, &[part])?);
            }
            for (index, (weight, bias)) in convs.iter().enumerate() {
                let alone = Conv2d::new(
                    &format!("conv{index}"),
                    Conv2dSpec::new(*weight, *bias, Math::Native),
                )?;
                maps.push(alone.forward(ops, x)?);
            }
            ops.free(&joined).unwrap();
            Ok(maps)
        });
        let results = results.unwrap();
        for (parts, alone) in results[..4].iter().zip(&results[4..]) {
            assert_eq!(bits(parts), bits(alone));
        }
    }
    let other = array4(&mut r, [3, 11, 3, 3], 1.0);
    let refused = |convs: &[_]| merge_sibling_convs(convs).unwrap_err().to_string();
    assert!(refused(&[]).contains("there are none"));
    assert!(refused(&[convs[0], (other.view(), None)]).contains("convolution 1 has weights [3, 11, 3, 3]"));
    assert!(refused(&[(weights[0].view(), Some(&[0.0; 4]))]).contains("4 biases for 3"));
}

#[test]
fn channels_are_joined_and_divided_without_a_change() {
    let mut r = Random(22);
    let x = array4(&mut r, [2, 10, 4, 5], 1.0);
    for dtype in [DType::F32, DType::Bf16, DType::U8] {
        let x = if dtype == DType::U8 {
            x.mapv(|x| (x.abs() * 255.0).floor())
        } else {
            x.clone()
        };
        let results = run(&x, dtype, |ops, x| {
            let parts = split_channels(x, &[3, 0, 6, 1])?;
            Ok(vec![
                concat_channels(ops, &parts)?,
                concat_channels(ops, &[parts[2], parts[0], parts[2]])?,
            ])
        });
        let results = results.unwrap();
        let kept = stored(&x, dtype);
        assert_eq!(bits(&results[0]), bits(&kept));
        let part = |from: usize, to: usize| kept.slice(ndarray::s![.., from..to, .., ..]);
        let expected = concatenate(Axis(1), &[part(3, 9), part(0, 3), part(3, 9)]).unwrap();
        assert_eq!(bits(&results[1]), bits(&expected));
    }
    let error = run(&x, DType::F32, |_, x| split_channels(x, &[3, 6]));
    assert!(matches!(error, Err(LayerError::Shape { .. })));
    let error = run(&x, DType::F32, |_, x| split_channels(x, &[usize::MAX, 11]));
    assert!(matches!(error, Err(LayerError::Shape { .. })));
    let error = run(&x, DType::F32, |ops, x| {
        let mut narrow = *x;
        narrow.view = x.view.slice(3, 0, 4, 1).unwrap();
        Ok(vec![concat_channels(ops, &[*x, narrow])?])
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "concatenation of channels: a map has shape [2, 10, 4, 4], expected [2, C, 4, 5]"
    );
    let error = run(&x, DType::F32, |ops, x| {
        let short = ops.to_bf16(x).unwrap();
        Ok(vec![concat_channels(ops, &[*x, short])?])
    });
    assert!(matches!(error, Err(LayerError::DType { .. })));
    let error = run(&x, DType::F32, |ops, _| Ok(vec![concat_channels(ops, &[])?]));
    assert!(matches!(error, Err(LayerError::Weights { .. })));
}

#[test]
fn a_residual_is_added_with_one_rounding() {
    let mut r = Random(23);
    let x = array4(&mut r, [1, 8, 5, 6], 6.0);
    let relu6 = Activation::Clip {
        low: Scalar::new(0.0),
        high: Scalar::new(6.0),
    };
    for dtype in [DType::F32, DType::Bf16] {
        for activation in [Activation::Identity, Activation::Relu, relu6] {
            let results = run(&x, dtype, |ops, x| {
                let halves = split_channels(x, &[4, 4])?;
                Ok(vec![residual_add(ops, &halves[0], &halves[1], activation)?])
            });
            let kept = stored(&x, dtype);
            let half = |from: usize| kept.slice(ndarray::s![.., from..from + 4, .., ..]).to_owned();
            let sum = (half(0).mapv(f64::from) + half(4).mapv(f64::from)).mapv(|x| match activation {
                Activation::Identity => x,
                Activation::Relu => x.max(0.0),
                _ => x.clamp(0.0, 6.0),
            });
            let expected = stored(&sum.mapv(|x| x as f32), dtype);
            assert_eq!(bits(&results.unwrap()[0]), bits(&expected));
        }
    }
    let refused = |activation, first: usize| {
        let result = run(&x, DType::Bf16, |ops, x| {
            let parts = split_channels(x, &[first, 8 - first])?;
            Ok(vec![residual_add(ops, &parts[0], &parts[1], activation)?])
        });
        result.unwrap_err()
    };
    let error = refused(Activation::HardSwish, 4);
    assert!(matches!(error, LayerError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("only ReLU and clips"), "{error}");
    let odd = Activation::Clip {
        low: Scalar::new(0.0),
        high: Scalar::new(0.1),
    };
    assert!(
        matches!(refused(odd, 4), LayerError::Refused { .. }),
        "0.1 is no bf16 number"
    );
    assert!(matches!(refused(Activation::Relu, 3), LayerError::Shape { .. }));
}
