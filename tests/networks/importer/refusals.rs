//! What cannot be lowered, and why; damaged graphs.

use std::collections::BTreeMap;

use prost::Message;
use sensorium::models::{InputFormat, LowerOptions, lower, survey};
use sensorium::tensor::DType;
use sensorium::weights::OnnxModel;
use sensorium::weights::proto::{
    AttributeProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
};

use crate::importer::device;
use crate::importer::wide::cases;
use crate::importer::{graph, node, options, sizes, support, value};

#[test]
fn an_unsupported_operation_is_named_with_its_node_and_model() {
    let refused = |nodes: Vec<NodeProto>| {
        lower(&graph(nodes, &sizes(&[1, 2, 4, 4]), 13), &LowerOptions::default())
            .unwrap_err()
            .to_string()
    };
    let unknown = refused(vec![node("Relu", &["x"], &["r"]), node("Det", &["r"], &["y"])]);
    assert_eq!(unknown, "net.onnx: node `Det_1`: operation Det is not supported");
    let foreign = NodeProto {
        domain: "com.acme".to_owned(),
        ..node("Relu", &["x"], &["y"])
    };
    assert_eq!(
        refused(vec![foreign]),
        "net.onnx: node `Relu_0`: operation Relu is not supported"
    );
    let mode = AttributeProto {
        name: "mode".to_owned(),
        s: b"mirror".to_vec(),
        r#type: 3,
        ..Default::default()
    };
    let pads = node("Constant", &[], &["p"]);
    let ints = AttributeProto {
        name: "value_ints".to_owned(),
        ints: vec![0, 0, 1, 1, 0, 0, 1, 1],
        r#type: 7,
        ..Default::default()
    };
    let pads = NodeProto {
        attribute: vec![ints],
        ..pads
    };
    let pad = NodeProto {
        attribute: vec![mode],
        ..node("Pad", &["x", "p"], &["y"])
    };
    assert_eq!(
        refused(vec![pads, pad]),
        "net.onnx: node `Pad_1`: Pad: mode `mirror` is not supported"
    );
    // What the outputs do not depend on may be anything.
    let unused = vec![node("Det", &["x"], &["d"]), node("Relu", &["x"], &["y"])];
    assert!(lower(&graph(unused, &sizes(&[1, 2]), 13), &LowerOptions::default()).is_ok());
}

#[test]
fn nothing_is_computed_in_floats_that_only_store() {
    let to = |code: i64| AttributeProto {
        name: "to".to_owned(),
        i: code,
        r#type: 2,
        ..AttributeProto::default()
    };
    let refused = |code: i64| {
        let cast = NodeProto {
            attribute: vec![to(code)],
            ..node("Cast", &["x"], &["y"])
        };
        lower(&graph(vec![cast], &sizes(&[1, 2]), 19), &LowerOptions::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(17),
        "net.onnx: node `Cast_0`: Cast: a cast to float8_e4m3fn is not supported"
    );
    assert!(refused(19).contains("a cast to float8_e5m2") && refused(23).contains("float4_e2m1fn"));
    assert!(refused(5).contains("a cast to int16"));
    let typed = |code: i32| {
        let mut input = value("x", &sizes(&[1, 2]));
        let kind = input.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap();
        kind.elem_type = code;
        let proto = ModelProto {
            ir_version: 10,
            graph: Some(GraphProto {
                node: vec![node("Relu", &["x"], &["y"])],
                input: vec![input],
                output: vec![value("y", &[])],
                ..GraphProto::default()
            }),
            opset_import: vec![OperatorSetIdProto {
                domain: String::new(),
                version: 19,
            }],
            ..ModelProto::default()
        };
        let model = OnnxModel::from_bytes(&proto.encode_to_vec(), "net.onnx", None).unwrap();
        lower(&model, &LowerOptions::default()).unwrap_err().to_string()
    };
    assert_eq!(
        typed(17),
        "net.onnx: input `x`: type float8_e4m3fn is not supported"
    );
}

#[test]
fn open_dimensions_need_sizes_and_wrong_options_are_refused() {
    let dims = [
        DimensionValue::Symbol("batch".to_owned()),
        DimensionValue::Size(3),
        DimensionValue::Size(-1),
    ];
    let model = graph(vec![node("Relu", &["x"], &["y"])], &dims, 13);
    let text = |options: LowerOptions| lower(&model, &options).unwrap_err().to_string();
    let open = "net.onnx: input `x` has the open shape [batch, 3, ?]: give sizes for it";
    assert_eq!(text(LowerOptions::default()), open);
    let symbols = BTreeMap::from([("batch".to_owned(), 2)]);
    assert_eq!(
        text(LowerOptions {
            symbols,
            ..LowerOptions::default()
        }),
        open
    );
    let shapes = |dims: &[usize]| LowerOptions {
        shapes: BTreeMap::from([("x".to_owned(), dims.to_vec())]),
        ..LowerOptions::default()
    };
    assert_eq!(
        lower(&model, &shapes(&[2, 3, 5])).unwrap().outputs[0].spec.shape[..],
        [2, 3, 5]
    );
    assert!(text(shapes(&[2, 4, 5])).contains("has 3 elements along axis 1"));
    assert!(text(shapes(&[2, 3])).contains("has rank 3"));
    assert!(text(shapes(&[2, 3, 0])).contains("a tensor of shape [2, 3, 0]"));
    let formats = BTreeMap::from([("image".to_owned(), InputFormat::Storage)]);
    assert!(
        text(LowerOptions {
            formats,
            ..LowerOptions::default()
        })
        .contains("`image`, which is no input")
    );
    let symbols = BTreeMap::from([("width".to_owned(), 2)]);
    assert!(
        text(LowerOptions {
            symbols,
            ..LowerOptions::default()
        })
        .contains("`width`, which no input has")
    );
    assert!(
        text(LowerOptions {
            storage: DType::I8,
            ..LowerOptions::default()
        })
        .contains("storage int8")
    );
    let pixels = options(DType::F32, "x", InputFormat::U8ChannelsLast);
    assert!(
        text(LowerOptions {
            shapes: shapes(&[2, 3, 5]).shapes,
            ..pixels
        })
        .contains("pixels need [N, C, H, W]")
    );
}

#[test]
fn every_model_of_the_test_data_can_be_surveyed() {
    let Some(root) = support::data("models") else {
        return;
    };
    let obstacles = |file: &str| survey(&OnnxModel::open(root.join(file)).unwrap()).not_importable;
    assert!(obstacles("yolox_nano_416.onnx").is_empty());
    assert!(obstacles("yolox_nano_416_3class.onnx").is_empty());
    assert!(obstacles("FastestDet_352.onnx").is_empty());
    assert!(obstacles("lidar_pfe/centerpoint_nuscenes_pfe_sim_UNSORTED.onnx").is_empty());
    assert!(obstacles("nanodet_m_416.onnx").is_empty());
    for file in [
        "centerpoint_nuscenes_pfe",
        "pointpillars_int8repo_pfe",
        "pointpillars_kitti_pfn",
        "smallmunich_pfe",
    ] {
        let survey = survey(&OnnxModel::open(root.join(format!("lidar_pfe/{file}.onnx"))).unwrap());
        assert_eq!(survey.not_importable, Vec::<String>::new(), "{file}");
        assert!(survey.gflop.is_some(), "{file}");
    }
}

#[test]
fn damaged_graphs_are_refused_or_lowered_but_never_panic() {
    let scripts = ["make_ops.py", "make_wide.py", "make_nets.py"];
    let folders: Option<Vec<_>> = scripts.into_iter().map(cases).collect();
    let Some(folders) = folders else {
        return;
    };
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let (mut read, mut refused) = (0, 0);
    for path in folders.iter().flat_map(|(_, cases)| cases) {
        let bytes = std::fs::read(path).unwrap();
        for _ in 0..25 {
            let mut damaged = bytes.clone();
            for _ in 0..=random(3) {
                let at = random(damaged.len());
                damaged[at] = if random(2) == 0 {
                    random(256) as u8
                } else {
                    damaged[at] ^ (1 << random(8))
                };
            }
            if let Ok(model) = OnnxModel::from_bytes(&damaged, "damaged.onnx", None) {
                read += 1;
                refused += usize::from(!survey(&model).not_importable.is_empty());
            }
        }
    }
    assert!(
        read > 1000 && refused > 100,
        "{read} read, {refused} refused: the damage tests nothing"
    );
}

/// What is said against a graph of these nodes with an input `x` of this shape.
fn refusal(nodes: Vec<NodeProto>, dims: &[i64], opset: i64) -> String {
    let model = graph(nodes, &sizes(dims), opset);
    match lower(&model, &LowerOptions::default()) {
        Err(error) => error.to_string(),
        Ok(lowered) => panic!("{lowered:?}"),
    }
}

fn attribute(name: &str) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        ..AttributeProto::default()
    }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        i: value,
        r#type: 2,
        ..attribute(name)
    }
}

fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto {
        f: value,
        r#type: 1,
        ..attribute(name)
    }
}

fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        s: value.as_bytes().to_vec(),
        r#type: 3,
        ..attribute(name)
    }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        ints: values.to_vec(),
        r#type: 7,
        ..attribute(name)
    }
}

fn with(node: NodeProto, attributes: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        attribute: attributes,
        ..node
    }
}

/// A constant of whole numbers.
fn whole(name: &str, values: &[i64]) -> NodeProto {
    with(node("Constant", &[], &[name]), vec![ints("value_ints", values)])
}

#[test]
fn forms_that_are_not_supported_are_named() {
    let image = [1, 4, 6, 6];
    let one = |op: &str, attributes: Vec<AttributeProto>, opset: i64| {
        refusal(vec![with(node(op, &["x"], &["y"]), attributes)], &image, opset)
    };
    let number = |value: f32| with(node("Constant", &[], &["c"]), vec![float("value_float", value)]);
    let two = |constant: NodeProto, op: &str, attributes: Vec<AttributeProto>| {
        let used = with(node(op, &["x", "c"], &["y"]), attributes);
        refusal(vec![constant, used], &image, 13)
    };
    let cases = [
        (
            one("ArgMax", vec![int("select_last_index", 1)], 13),
            "ArgMax: the last of equal elements is not supported",
        ),
        (
            one("Cast", vec![int("to", 2)], 13),
            "Cast: a cast to uint8 is not supported",
        ),
        (
            one("DepthToSpace", vec![int("blocksize", 3)], 13),
            "DepthToSpace: 4 channels are no 3 x 3 blocks",
        ),
        (
            one("SpaceToDepth", vec![int("blocksize", 4)], 13),
            "SpaceToDepth: 6 x 6 elements are no 4 x 4 blocks",
        ),
        (
            one("DepthToSpace", vec![int("blocksize", 0)], 13),
            "DepthToSpace: attribute `blocksize` must be positive",
        ),
        (
            one("LpNormalization", vec![int("p", 3)], 13),
            "LpNormalization: p = 3 is not supported",
        ),
        (
            one("TopK", vec![int("k", 7), int("axis", 1)], 9),
            "TopK: Some(7) of the 4 elements of axis 1",
        ),
        (
            two(number(0.3), "Pow", vec![]),
            "Pow: the exponent 0.3 is not supported",
        ),
        (
            two(number(9.0), "Pow", vec![]),
            "Pow: the exponent 9 is not supported",
        ),
        (
            two(number(2.0), "Mod", vec![int("fmod", 1)]),
            "Mod: the remainder of other than whole numbers",
        ),
        (
            two(whole("c", &[0, 1 << 25]), "Gather", vec![]),
            "Gather: an index outside the 1 elements of axis 0",
        ),
        (
            two(whole("c", &[3, 3]), "Reshape", vec![]),
            "Reshape: 144 elements cannot take shape [3, 3]",
        ),
        (two(whole("c", &[1, 1, 4, 4]), "Expand", vec![]), "Expand: shapes"),
        (
            two(whole("c", &[1, 1]), "Tile", vec![]),
            "Tile: 2 repeats for a tensor of rank 4",
        ),
        (two(whole("c", &[1, -1, 1, 1]), "Tile", vec![]), "Tile: repeats"),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "{found} does not say: {expected}");
    }
    let resize = |mode: &str, more: Vec<AttributeProto>| {
        let scales = AttributeProto {
            floats: vec![1.0, 1.0, 2.0, 2.0],
            r#type: 6,
            ..attribute("value_floats")
        };
        let constant = with(node("Constant", &[], &["s"]), vec![scales]);
        let mut attributes = vec![text("mode", mode)];
        attributes.extend(more);
        let resize = with(node("Resize", &["x", "", "s"], &["y"]), attributes);
        refusal(vec![constant, resize], &image, 18)
    };
    assert!(resize("area", vec![]).contains("Resize: mode `area` is not supported"));
    let crop = vec![text("coordinate_transformation_mode", "tf_crop_and_resize")];
    assert!(resize("linear", crop).contains("`tf_crop_and_resize` is not supported"));
    assert!(resize("linear", vec![int("antialias", 1)]).contains("antialiasing is not supported"));
    let dropped = node("Dropout", &["x"], &["y", "mask"]);
    assert!(refusal(vec![dropped], &image, 13).contains("the mask of a Dropout"));
    let statistics = node("LayerNormalization", &["x", "c"], &["y", "mean"]);
    assert!(refusal(vec![number(1.0), statistics], &image, 17).contains("the mean and deviation"));
    let epsilon = with(
        node("LayerNormalization", &["x", "c"], &["y"]),
        vec![float("epsilon", -1.0)],
    );
    assert!(refusal(vec![number(1.0), epsilon], &image, 17).contains("epsilon = -1 is not supported"));
}

/// What a graph makes of `x` where intermediates are bf16.
fn in_bf16(nodes: Vec<NodeProto>, x: &[f32]) -> Vec<f32> {
    let model = graph(nodes, &[DimensionValue::Size(x.len() as i64)], 17);
    let options = LowerOptions {
        storage: DType::Bf16,
        ..LowerOptions::default()
    };
    device::run(&lower(&model, &options).unwrap(), &[x.to_vec()]).concat()
}

#[test]
fn floats_become_whole_numbers_as_they_are_whatever_the_storage() {
    let cast = vec![with(node("Cast", &["x"], &["y"]), vec![int("to", 6)])];
    assert_eq!(in_bf16(cast, &[1001.0, -70_001.5, 2.9]), [1001.0, -70_001.0, 2.0]);
}

#[test]
fn a_folded_remainder_has_the_sign_that_is_asked_for() {
    for (fmod, expected) in [(0, [2.0, -2.0]), (1, [-1.0, 1.0])] {
        let nodes = vec![
            whole("a", &[-7, 7]),
            whole("b", &[3, -3]),
            with(node("Mod", &["a", "b"], &["m"]), vec![int("fmod", fmod)]),
            with(node("Cast", &["m"], &["f"]), vec![int("to", 1)]),
            node("Add", &["x", "f"], &["y"]),
        ];
        assert_eq!(in_bf16(nodes, &[0.0, 0.0]), expected);
    }
}

#[test]
fn whole_numbers_beyond_float32_and_indices_that_cannot_be_are_refused() {
    let large = vec![
        with(node("Cast", &["x"], &["i"]), vec![int("to", 7)]),
        whole("c", &[(1 << 24) + 1]),
        node("Add", &["i", "c"], &["y"]),
    ];
    let found = refusal(large, &[2, 3], 13);
    let expected = "Add: a whole number 16777217 in `c`, beyond 2^24, is not supported";
    assert!(found.contains(expected), "{found}");
    let pair = |constant: NodeProto, op: &str, attributes: Vec<AttributeProto>| {
        let used = with(node(op, &["x", "c"], &["y"]), attributes);
        refusal(vec![constant, used], &[2, 3], 13)
    };
    let found = pair(whole("c", &[0, 1]), "GatherElements", vec![]);
    assert!(
        found.contains("indices of shape [2] along axis 0 of [2, 3]"),
        "{found}"
    );
    let found = pair(whole("c", &[0, 1, 0]), "GatherND", vec![]);
    assert!(found.contains("positions of shape [3] in data [2, 3]"), "{found}");
    let found = pair(whole("c", &[0]), "GatherND", vec![int("batch_dims", 1)]);
    assert!(found.contains("batch axes of a GatherND"), "{found}");
    let factors = vec![node("MatMul", &["x", "x"], &["y"])];
    assert!(refusal(factors, &[2, 3], 13).contains("factors [2, 3] and [2, 3] do not fit"));
    let groups = vec![with(
        node("GroupNormalization", &["x", "x", "x"], &["y"]),
        vec![int("num_groups", 4)],
    )];
    assert!(refusal(groups, &[1, 6, 2, 2], 21).contains("num_groups that does not divide 6 channels"));
    let missing = vec![node("Where", &["x"], &["y"])];
    assert!(refusal(missing, &[2, 3], 13).contains("input 1 is missing"));
    let huge = vec![
        whole("c", &[1 << 20, 1 << 20, 1 << 20]),
        node("Expand", &["x", "c"], &["y"]),
    ];
    assert!(!refusal(huge, &[1, 1, 1], 13).is_empty());
}
