//! An ONNX file as plain data.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use prost::Message;
use sha2::{Digest, Sha256};

use super::digest::hex;
use super::external::External;
use super::graph::{Links, sort};
use super::proto::{AttributeProto, DimensionValue, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use super::{Array, Attribute, ElementType, Node, OnnxError, tensor};

/// One declared dimension of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dim {
    /// A size.
    Fixed(usize),
    /// A name that stands for a size.
    Symbol(String),
    /// Nothing is known; some exporters write -1 for this.
    Unknown,
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Symbol(name) => f.write_str(name),
            Self::Unknown => f.write_str("?"),
        }
    }
}

/// Declared name and type of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueInfo {
    /// Name.
    pub name: String,
    /// Element type, if declared and known.
    pub element: Option<ElementType>,
    /// Dimensions, if the rank is declared.
    pub dims: Option<Vec<Dim>>,
}

/// An ONNX model: its graph in topological order and its constants.
#[derive(Debug, Clone)]
pub struct OnnxModel {
    name: String,
    producer: String,
    ir_version: i64,
    opset: i64,
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    value_infos: HashMap<String, ValueInfo>,
    nodes: Vec<Node>,
    links: Links,
    arrays: BTreeMap<String, Arc<Array>>,
    external_files: Vec<String>,
    sha256: String,
}

impl OnnxModel {
    /// Reads a model; its external data may lie in the file's folder or below it.
    ///
    /// # Errors
    /// [`OnnxError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OnnxError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|source| OnnxError::Read {
            path: path.to_owned(),
            source,
        })?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let folder = path.parent().map(|p| {
            if p.as_os_str().is_empty() {
                Path::new(".")
            } else {
                p
            }
        });
        Self::from_bytes(&bytes, &name, folder)
    }

    /// Reads a model out of memory. `name` is used in messages; `folder` is where external data may lie
    /// (absent: external data is refused).
    ///
    /// # Errors
    /// [`OnnxError`].
    pub fn from_bytes(bytes: &[u8], name: &str, folder: Option<&Path>) -> Result<Self, OnnxError> {
        let proto = ModelProto::decode(bytes).map_err(|source| OnnxError::Decode {
            model: name.to_owned(),
            source,
        })?;
        let graph = proto.graph.ok_or_else(|| OnnxError::NoGraph {
            model: name.to_owned(),
        })?;
        let opset = proto
            .opset_import
            .iter()
            .find(|set| matches!(set.domain.as_str(), "" | "ai.onnx"))
            .map(|set| set.version)
            .ok_or_else(|| OnnxError::NoOpset {
                model: name.to_owned(),
            })?;
        let producer = format!("{} {}", proto.producer_name, proto.producer_version);
        Self::from_graph(name, graph, folder).map(|model| Self {
            sha256: digest(bytes, &model.sha256),
            producer: producer.trim().to_owned(),
            ir_version: proto.ir_version,
            opset,
            ..model
        })
    }

    fn from_graph(model: &str, graph: GraphProto, folder: Option<&Path>) -> Result<Self, OnnxError> {
        if !graph.sparse_initializer.is_empty() {
            return Err(OnnxError::Sparse {
                model: model.to_owned(),
            });
        }
        let mut external = External::default();
        let mut arrays = BTreeMap::new();
        for proto in graph.initializer {
            let name = proto.name.clone();
            let array = tensor::read(model, proto, folder, &mut external)?;
            if arrays.insert(name.clone(), Arc::new(array)).is_some() {
                return Err(OnnxError::DefinedTwice {
                    model: model.to_owned(),
                    value: name,
                });
            }
        }
        let infos = |protos: Vec<ValueInfoProto>| -> Result<Vec<ValueInfo>, OnnxError> {
            protos.into_iter().map(|p| value_info(model, p)).collect()
        };
        // Older files list every constant among the inputs, too.
        let mut inputs = infos(graph.input)?;
        inputs.retain(|info| !arrays.contains_key(&info.name));
        let outputs = infos(graph.output)?;
        let given: HashSet<String> = arrays
            .keys()
            .cloned()
            .chain(inputs.iter().map(|i| i.name.clone()))
            .collect();
        let nodes: Result<Vec<Node>, OnnxError> = graph
            .node
            .into_iter()
            .enumerate()
            .map(|(index, proto)| node(model, index, proto, folder, &mut external))
            .collect();
        let nodes = sort(model, nodes?, &given)?;
        let links = Links::new(&nodes);
        let orphan = outputs
            .iter()
            .find(|o| !given.contains(&o.name) && !links.producers.contains_key(&o.name));
        if let Some(orphan) = orphan {
            return Err(OnnxError::Undefined {
                model: model.to_owned(),
                value: orphan.name.clone(),
                user: "the graph's outputs".to_owned(),
            });
        }
        let value_infos = infos(graph.value_info)?
            .into_iter()
            .chain(outputs.iter().cloned())
            .map(|info| (info.name.clone(), info))
            .collect();
        Ok(Self {
            name: model.to_owned(),
            producer: String::new(),
            ir_version: 0,
            opset: 0,
            inputs,
            outputs,
            value_infos,
            nodes,
            links,
            arrays,
            external_files: external.files,
            sha256: external
                .digest
                .map_or_else(String::new, |digest| hex(&digest.finalize())),
        })
    }

    /// Name used in messages: the file name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Program and version that wrote the file; empty if it does not say.
    #[must_use]
    pub fn producer(&self) -> &str {
        &self.producer
    }

    /// Version of the file format.
    #[must_use]
    pub const fn ir_version(&self) -> i64 {
        self.ir_version
    }

    /// Version of the ONNX operator set.
    #[must_use]
    pub const fn opset(&self) -> i64 {
        self.opset
    }

    /// What a caller must supply: the graph's inputs without its constants.
    #[must_use]
    pub fn inputs(&self) -> &[ValueInfo] {
        &self.inputs
    }

    /// The graph's outputs.
    #[must_use]
    pub fn outputs(&self) -> &[ValueInfo] {
        &self.outputs
    }

    /// All nodes, each after those that it reads from.
    #[must_use]
    pub fn all_nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes of one operation, in order.
    pub fn nodes<'a>(&'a self, op_type: &'a str) -> impl Iterator<Item = &'a Node> {
        self.nodes.iter().filter(move |n| n.op_type == op_type)
    }

    /// A named constant.
    #[must_use]
    pub fn array(&self, name: &str) -> Option<&Arc<Array>> {
        self.arrays.get(name)
    }

    /// All named constants by name.
    #[must_use]
    pub const fn arrays(&self) -> &BTreeMap<String, Arc<Array>> {
        &self.arrays
    }

    /// Declared type of a value between nodes or of an output.
    #[must_use]
    pub fn value_info(&self, value: &str) -> Option<&ValueInfo> {
        self.value_infos.get(value)
    }

    /// The node that makes a value; `None` for inputs and constants.
    #[must_use]
    pub fn producer_of(&self, value: &str) -> Option<&Node> {
        self.links.producers.get(value).map(|&i| &self.nodes[i])
    }

    /// Positions (in [`Self::all_nodes`]) of the nodes that read a value.
    #[must_use]
    pub fn consumers_of(&self, value: &str) -> &[usize] {
        self.links.consumers.get(value).map_or(&[], Vec::as_slice)
    }

    /// SHA-256 in hexadecimal of what the model consists of: of the file, or, where constants lie in files beside it,
    /// of the file followed by the digest (in hexadecimal) of those constants.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Files beside the model that hold constants.
    #[must_use]
    pub fn external_files(&self) -> &[String] {
        &self.external_files
    }
}

fn digest(file: &[u8], external: &str) -> String {
    let digest = Sha256::new().chain_update(file).chain_update(external);
    hex(&digest.finalize())
}

fn value_info(model: &str, proto: ValueInfoProto) -> Result<ValueInfo, OnnxError> {
    let tensor = proto.r#type.and_then(|t| t.tensor_type);
    let element = tensor.as_ref().and_then(|t| ElementType::from_code(t.elem_type));
    let Some(shape) = tensor.and_then(|t| t.shape) else {
        return Ok(ValueInfo {
            name: proto.name,
            element,
            dims: None,
        });
    };
    let dim = |value: &Option<DimensionValue>| match value {
        Some(DimensionValue::Size(-1)) | None => Some(Dim::Unknown),
        Some(DimensionValue::Size(size)) => usize::try_from(*size).ok().map(Dim::Fixed),
        Some(DimensionValue::Symbol(name)) if name.is_empty() => Some(Dim::Unknown),
        Some(DimensionValue::Symbol(name)) => Some(Dim::Symbol(name.clone())),
    };
    let dims: Option<Vec<Dim>> = shape.dim.iter().map(|d| dim(&d.value)).collect();
    let Some(dims) = dims else {
        let sizes = shape.dim.iter().map(|d| match d.value {
            Some(DimensionValue::Size(size)) => size,
            _ => -1,
        });
        return Err(OnnxError::NegativeDim {
            model: model.to_owned(),
            tensor: proto.name,
            dims: sizes.collect(),
        });
    };
    Ok(ValueInfo {
        name: proto.name,
        element,
        dims: Some(dims),
    })
}

fn node(
    model: &str,
    index: usize,
    proto: NodeProto,
    folder: Option<&Path>,
    external: &mut External,
) -> Result<Node, OnnxError> {
    let name = if proto.name.is_empty() {
        format!("{}_{index}", proto.op_type)
    } else {
        proto.name
    };
    let mut attributes = BTreeMap::new();
    for attribute in proto.attribute {
        let key = attribute.name.clone();
        let value = self::attribute(model, &name, attribute, folder, external)?;
        attributes.insert(key, value);
    }
    Ok(Node {
        name,
        op_type: proto.op_type,
        domain: proto.domain,
        inputs: proto.input,
        outputs: proto.output,
        attributes,
    })
}

fn attribute(
    model: &str,
    node: &str,
    mut proto: AttributeProto,
    folder: Option<&Path>,
    external: &mut External,
) -> Result<Attribute, OnnxError> {
    let key = proto.name.clone();
    let refused = |reason: &str| OnnxError::Attribute {
        model: model.to_owned(),
        node: node.to_owned(),
        attribute: key.clone(),
        reason: reason.to_owned(),
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| refused("the text is not UTF-8"));
    Ok(match proto.r#type {
        1 => Attribute::Float(proto.f),
        2 => Attribute::Int(proto.i),
        3 => Attribute::Text(text(proto.s)?),
        4 => {
            let mut inner = proto.t.take().ok_or_else(|| refused("the tensor is missing"))?;
            if inner.name.is_empty() {
                inner.name = format!("{node}.{key}");
            }
            Attribute::Tensor(Arc::new(tensor::read(model, inner, folder, external)?))
        }
        6 => Attribute::Floats(proto.floats),
        7 => Attribute::Ints(proto.ints),
        8 => Attribute::Texts(proto.strings.into_iter().map(text).collect::<Result<_, _>>()?),
        0 => return Err(refused("its kind is not given")),
        other => Attribute::Other(other),
    })
}
