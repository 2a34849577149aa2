//! The messages of an ONNX file, with the fields that Sensorium reads. Field numbers are those of the public
//! `onnx.proto3`; fields that are not listed are skipped when a file is read.

use prost::Message;

/// The file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the file format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// Name of the program that wrote the file.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// Version of that program.
    #[prost(string, tag = "3")]
    pub producer_version: String,
    /// The graph.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Operator sets in use.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
}

/// One operator set.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Its domain; empty for ONNX itself.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Its version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A graph of nodes.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Operations.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// Name of the graph.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Named constants.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Inputs; older files list the constants here as well.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Types of values in between.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    /// Named sparse constants; only their presence matters, they are refused.
    #[prost(bytes = "vec", repeated, tag = "15")]
    pub sparse_initializer: Vec<Vec<u8>>,
}

/// One operation.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of its inputs; an empty name is an input left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of its outputs.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Its own name, often empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operation.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Settings.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Operator set that the operation belongs to.
    #[prost(string, tag = "7")]
    pub domain: String,
}

/// One setting of an operation.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Name of the setting.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A number with fractions.
    #[prost(float, tag = "2")]
    pub f: f32,
    /// A whole number.
    #[prost(int64, tag = "3")]
    pub i: i64,
    /// Text.
    #[prost(bytes = "vec", tag = "4")]
    pub s: Vec<u8>,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// Several numbers.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Several whole numbers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Several texts.
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub strings: Vec<Vec<u8>>,
    /// Which of the fields counts: 1 f, 2 i, 3 s, 4 t, 5 graph, 6 floats, 7 ints, 8 strings, ...
    #[prost(int32, tag = "20")]
    pub r#type: i32,
}

/// A constant.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Dimensions.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// Element type code.
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// Elements of type float (and complex64).
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of the integer types up to 32 bits, bool, and bits of the half types.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Elements of type int64.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// Name of the constant.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Elements as little-endian bytes.
    #[prost(bytes = "vec", optional, tag = "9")]
    pub raw_data: Option<Vec<u8>>,
    /// Elements of type double.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Elements of type uint32 and uint64.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// Where the elements are if they lie in another file.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 if the elements lie in another file.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// A key and its value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// Key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Name and type of a value.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// Type of a value; only tensors are read.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// Tensor type.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

/// Type of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// Element type code.
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// Shape, absent if the rank is unknown.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// Shape of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Dimensions, outermost first.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// One dimension.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// Number or symbol; neither means unknown.
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
}

/// Content of a dimension.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum DimensionValue {
    /// A size.
    #[prost(int64, tag = "1")]
    Size(i64),
    /// A name that stands for a size.
    #[prost(string, tag = "2")]
    Symbol(String),
}
