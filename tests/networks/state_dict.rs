//! State dicts of every file form: PyTorch checkpoints read as data, and what damaged and hostile ones are told.

use crate::support;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use sensorium::tensor::Shape;
use sensorium::weights::{
    Array, ElementType, Npz, NpzCompression, PickleFault, StateDict, StateDictError, TorchError,
    TorchTensorFault, Values, load_state_dict, load_torch_checkpoint,
};
use serde_json::Value;

/// The checkpoints of the oracle and its lines about their tensors.
fn files() -> Option<(tempfile::TempDir, Vec<Value>)> {
    let mut oracle = support::oracle("torch_files.py")?;
    let folder = tempfile::tempdir().unwrap();
    let output = String::from_utf8(support::run(oracle.arg(folder.path()))).unwrap();
    let lines = output.lines().map(|l| serde_json::from_str(l).unwrap());
    let lines = lines.collect();
    Some((folder, lines))
}

fn assert_said(found: &Array, said: &Value) {
    let name = &said["name"];
    let dims: Vec<u64> = found.shape().iter().map(|&d| d as u64).collect();
    assert_eq!(serde_json::json!(dims), said["shape"], "{name}");
    assert_eq!(
        found.element().to_string(),
        said["dtype"].as_str().unwrap(),
        "{name}"
    );
    let expected = said["values"].as_array().unwrap();
    assert_eq!(found.values().len(), expected.len(), "{name}");
    for (i, expected) in expected.iter().enumerate() {
        let same = match found.values() {
            Values::F32(v) => f64::from(v[i]).to_bits() == expected.as_u64().unwrap(),
            Values::F64(v) => v[i].to_bits() == expected.as_u64().unwrap(),
            Values::I64(v) => v[i] == expected.as_i64().unwrap(),
        };
        assert!(same, "{name}[{i}]: {:?}, NumPy has {expected}", found.values());
    }
}

fn torch_error(path: &Path) -> TorchError {
    match load_state_dict(path) {
        Err(StateDictError::Torch(error)) => error,
        other => panic!("{}: {other:?}", path.display()),
    }
}

fn fault(path: &Path) -> TorchTensorFault {
    match torch_error(path) {
        TorchError::Tensor { fault, .. } => *fault,
        other => panic!("{}: {other}", path.display()),
    }
}

#[test]
fn checkpoints_of_every_form_and_type_are_read() {
    let Some((folder, said)) = files() else { return };
    let path = |name: &str| folder.path().join(name);
    assert_eq!(said.len(), 20);
    let names = [
        "all.pth",
        "big.pth",
        "protocol3.pth",
        "protocol4.pth",
        "protocol5.pth",
        "old.pth",
        "training.ckpt",
    ];
    for name in names {
        let dict = load_state_dict(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(dict.tensors().len(), said.len(), "{name}");
        for said in &said {
            assert_said(dict.get(said["name"].as_str().unwrap()).unwrap(), said);
        }
    }
    let dict = load_torch_checkpoint(path("two.pt"), Some("ema/net")).unwrap();
    assert_eq!(dict.tensors().len(), said.len());
    let error = torch_error(&path("two.pt")).to_string();
    assert_eq!(
        error,
        "two.pt: no tensors under the top, or one of state_dict, model_state_dict, model_state, model; the file has \
         \"state_dict\", \"model\", \"ema\""
    );
    assert!(load_torch_checkpoint(path("two.pt"), Some("ema")).is_err());
}

#[test]
fn no_class_or_function_beyond_those_of_state_dicts_is_taken() {
    let Some((folder, _)) = files() else { return };
    let path = |name: &str| folder.path().join(name);
    let refused = |name: &str| match torch_error(&path(name)) {
        TorchError::Pickle {
            fault: PickleFault::Global { name },
            ..
        } => name,
        other => panic!("{other}"),
    };
    assert!(
        refused("gadget.pth").ends_with(".print"),
        "{}",
        refused("gadget.pth")
    );
    assert!(refused("numpy.pth").starts_with("numpy."));
}

#[test]
fn tensors_that_leave_or_repeat_their_storage_are_refused() {
    let Some((folder, _)) = files() else { return };
    let path = |name: &str| folder.path().join(name);
    let outside = fault(&path("outside.pth"));
    assert_eq!(
        outside.to_string(),
        "shape [3] with strides [1] from element 2 on leaves its storage of 4 elements"
    );
    assert!(matches!(
        fault(&path("negative.pth")),
        TorchTensorFault::Outside { .. }
    ));
    assert_eq!(fault(&path("expanded.pth")), TorchTensorFault::Repeats);
    assert!(matches!(
        fault(&path("huge.pth")),
        TorchTensorFault::Shape(_) | TorchTensorFault::Outside { .. }
    ));
    // 64 MiB of zeros in some 65 KB.
    let bomb = torch_error(&path("bomb.pth")).to_string();
    assert!(bomb.contains("is compressed"), "{bomb}");
    // Some tensors on one storage are usual, hundreds are not: 400,000 elements in a file of some 25 KB.
    assert_eq!(fault(&path("shared.pth")), TorchTensorFault::Repeats);
}

#[test]
fn parts_of_a_state_dict_and_its_normalisations() {
    let Some((folder, said)) = files() else { return };
    let dict = load_state_dict(folder.path().join("all.pth")).unwrap();
    let views = dict.sub("views").unwrap();
    assert_eq!(views.tensors().len(), 5);
    assert!(matches!(
        dict.sub("view"),
        Err(StateDictError::NothingBelow { .. })
    ));
    assert_eq!(
        dict.strip("views.").unwrap().tensors().len(),
        dict.tensors().len()
    );
    assert!(dict.strip("views.").unwrap().get("middle").is_ok());

    let norm = dict.bn("bn", 1e-3).unwrap();
    let value = |name: &str, c: usize| {
        let line = said.iter().find(|l| l["name"] == format!("bn.{name}")).unwrap();
        f64::from_bits(line["values"][c].as_u64().unwrap())
    };
    let x: Vec<f64> = (0..24).map(|i| f64::from(i) * 0.25 - 2.0).collect();
    let found = norm.apply(&x, &[2, 4, 3], 1).unwrap();
    for (i, (&x, &found)) in x.iter().zip(&found).enumerate() {
        let c = i / 3 % 4;
        let expected = (x - value("running_mean", c)) / (value("running_var", c) + 1e-3).sqrt()
            * value("weight", c)
            + value("bias", c);
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }
    let error = dict.get("bn.wieght").unwrap_err().to_string();
    assert_eq!(
        error,
        "all.pth: there is no tensor `bn.wieght`; did you mean `bn.weight`?"
    );
    assert!(matches!(
        dict.bn("plain", 1e-3),
        Err(StateDictError::Missing { .. })
    ));
    assert!(matches!(
        dict.floats("bn.num_batches_tracked"),
        Err(StateDictError::NoFloats { .. })
    ));
}

fn ones(dims: &[usize]) -> Arc<Array> {
    let shape = Shape::new(dims).unwrap();
    Arc::new(Array::new(shape, ElementType::F32, Values::F32(vec![1.0; shape.elements()])).unwrap())
}

#[test]
fn a_file_is_read_by_its_extension() {
    let folder = tempfile::tempdir().unwrap();
    let mut npz = Npz::default();
    npz.insert("a.weight", ones(&[2, 3]));
    let path = folder.path().join("net.NPZ");
    npz.save(&path, NpzCompression::Stored).unwrap();
    assert_eq!(
        load_state_dict(&path).unwrap().get("a.weight").unwrap(),
        &ones(&[2, 3])
    );
    let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let bytes = [
        &(header.len() as u64).to_le_bytes()[..],
        header,
        &2_f32.to_le_bytes(),
    ]
    .concat();
    let path = folder.path().join("net.safetensors");
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(load_state_dict(&path).unwrap().floats("w").unwrap(), [2.0]);
    let error = load_state_dict("net.onnx").unwrap_err();
    assert!(matches!(error, StateDictError::Extension { .. }), "{error}");
    std::fs::write(folder.path().join("text.bin"), "no checkpoint").unwrap();
    let error = torch_error(&folder.path().join("text.bin"));
    assert!(matches!(error, TorchError::NoCheckpoint { .. }), "{error}");
}

#[test]
fn a_normalisation_without_parameters_only_normalises() {
    let dict = StateDict::new(
        "net",
        [
            ("n.running_mean".to_owned(), ones(&[3])),
            ("n.running_var".to_owned(), ones(&[3])),
            ("half.running_mean".to_owned(), ones(&[3])),
            ("half.running_var".to_owned(), ones(&[3])),
            ("half.weight".to_owned(), ones(&[2])),
            ("half.bias".to_owned(), ones(&[2])),
        ]
        .into(),
    );
    let norm = dict.bn("n", 0.0).unwrap();
    assert_eq!((norm.scale, norm.shift), (vec![1.0; 3], vec![0.0; 3]));
    assert!(matches!(dict.bn("half", 0.0), Err(StateDictError::Norm { .. })));
    let twice = StateDict::new(
        "net",
        [("w".to_owned(), ones(&[1])), ("m.w".to_owned(), ones(&[1]))].into(),
    );
    assert!(matches!(twice.strip("m."), Err(StateDictError::NameTwice { .. })));
}

#[test]
fn no_damage_to_a_checkpoint_makes_a_panic() {
    let Some((folder, _)) = files() else { return };
    for name in ["small.pth", "small_old.pth"] {
        let whole = std::fs::read(folder.path().join(name)).unwrap();
        assert!(StateDict::from_torch(&whole, name, None).is_ok());
        for at in 0..whole.len() {
            for bits in [0xff, 0x01, 0x80, 0x14] {
                let mut bytes = whole.clone();
                bytes[at] ^= bits;
                if let Ok(dict) = StateDict::from_torch(&bytes, name, None) {
                    assert!(dict.tensors().values().all(|t| t.values().len() <= 4));
                }
            }
            assert!(
                StateDict::from_torch(&whole[..at], name, None).is_err(),
                "{name} cut at {at}"
            );
        }
    }
}

/// The older form, with bytes for the object's pickle.
fn old(pickle: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e".to_vec();
    bytes.extend(b"\x80\x02M\xe9\x03.\x80\x02}.");
    bytes.extend(pickle);
    bytes
}

fn pickle_fault(pickle: &[u8]) -> PickleFault {
    match StateDict::from_torch(&old(pickle), "hostile", None) {
        Err(StateDictError::Torch(TorchError::Pickle { fault, .. })) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn pickles_that_ask_for_too_much_are_refused() {
    assert!(matches!(
        pickle_fault(&[b'N'; 100_000]),
        PickleFault::TooMany { .. }
    ));
    assert!(matches!(
        pickle_fault(&[b'('; 5_000]),
        PickleFault::TooMany { .. }
    ));
    let dicts = b"}0".repeat(2_000_000);
    assert!(matches!(pickle_fault(&dicts), PickleFault::TooMany { .. }));
    // A tuple in a tuple in a tuple, a million times.
    let mut nested = b")".to_vec();
    nested.extend(vec![0x85; 1_000_000]);
    assert_eq!(pickle_fault(&nested), PickleFault::Short);
    assert_eq!(pickle_fault(b"X\xff\xff\xff\x7fabc"), PickleFault::Short);
    assert_eq!(
        pickle_fault(b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc"),
        PickleFault::Short
    );
    assert_eq!(pickle_fault(b"\x8a\x09aaaaaaaaa."), PickleFault::Number);
    assert!(matches!(
        pickle_fault(b"i"),
        PickleFault::Instruction { code: b'i' }
    ));
    assert!(matches!(pickle_fault(b"h\x07."), PickleFault::Operands(_)));
    assert!(matches!(pickle_fault(b"(0"), PickleFault::Operands(_)));
    assert!(matches!(pickle_fault(b"N(\x85"), PickleFault::Operands(_)));
    assert!(matches!(pickle_fault(b"cos\nsystem\n"), PickleFault::Global { name } if name == "os.system"));
    assert!(
        matches!(pickle_fault(b"\x8c\x02os\x8c\x06system\x93"), PickleFault::Global { name } if name == "os.system")
    );
    // A storage with a name that is worth copying.
    let mut named = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x00\x10\x00\x00".to_vec();
    named.extend([b'7'; 4096]);
    named.extend(b"X\x03\x00\x00\x00cpuK\x01tQ.");
    assert!(
        matches!(pickle_fault(&named), PickleFault::Operands(what) if what.contains("longer name")),
        "{:?}",
        pickle_fault(&named)
    );
    // A dict that holds itself.
    let error =
        StateDict::from_torch(&old(b"}q\x00X\x01\x00\x00\x00ah\x00s.]."), "itself", None).unwrap_err();
    assert!(
        matches!(error, StateDictError::Torch(TorchError::Key { .. })),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_bytes_as_a_pickle_never_panic(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = StateDict::from_torch(&old(&noise), "noise", None);
        let _ = StateDict::from_torch(&noise, "noise", None);
    }

    #[test]
    fn any_instructions_never_panic(
        steps in proptest::collection::vec(
            proptest::sample::select(&b"(.0129abcehjlqrstuxBCGJKMNQRTUX)]}\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x93\x94\x01\x00"[..]),
            0..400,
        )
    ) {
        let _ = StateDict::from_torch(&old(&steps), "steps", None);
    }
}
