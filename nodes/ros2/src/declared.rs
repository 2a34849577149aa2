//! The node's parameters as other nodes see them: they can be read, and not set while the node runs.

use r2r::indexmap::IndexMap;
use r2r::{Error, Parameter, ParameterValue, RosParams};

use crate::settings::{OWN, Parameters, Value};

/// What a node was given: its parameters, in the order of the files.
#[must_use]
pub fn given(node: &r2r::Node) -> Parameters {
    let parameters = node
        .params
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let pairs = parameters.iter();
    pairs
        .map(|(name, given)| (name.clone(), of_r2r(&given.value)))
        .collect()
}

/// Parameters that say how the node started.
#[derive(Debug, Default)]
pub struct Fixed {
    values: IndexMap<String, ParameterValue>,
}

impl RosParams for Fixed {
    fn register_parameters(
        &mut self,
        _prefix: &str,
        _parameter: Option<Parameter>,
        parameters: &mut IndexMap<String, Parameter>,
    ) -> r2r::Result<()> {
        for (name, description) in OWN {
            let declared = parameters.entry(name.to_owned()).or_insert_with(Parameter::empty);
            declared.description = description;
        }
        let values = parameters.iter();
        self.values = values
            .map(|(name, given)| (name.clone(), given.value.clone()))
            .collect();
        Ok(())
    }

    fn get_parameter(&mut self, name: &str) -> r2r::Result<ParameterValue> {
        self.values
            .get(name)
            .cloned()
            .ok_or_else(|| Error::InvalidParameterName {
                name: name.to_owned(),
            })
    }

    fn set_parameter(&mut self, name: &str, _value: &ParameterValue) -> r2r::Result<()> {
        Err(fixed(name))
    }

    fn check_parameter(&self, name: &str, _value: &ParameterValue) -> r2r::Result<()> {
        Err(fixed(name))
    }
}

fn fixed(name: &str) -> Error {
    Error::ParameterValueConv {
        name: name.to_owned(),
        msg: "it is read when the node starts; start the node again to change it".to_owned(),
    }
}

fn of_r2r(value: &ParameterValue) -> Value {
    match value {
        ParameterValue::NotSet => Value::NotSet,
        ParameterValue::Bool(value) => Value::Bool(*value),
        ParameterValue::Integer(value) => Value::Integer(*value),
        ParameterValue::Double(value) => Value::Double(*value),
        ParameterValue::String(value) => Value::Text(value.clone()),
        ParameterValue::BoolArray(values) => Value::Bools(values.clone()),
        ParameterValue::ByteArray(values) => Value::Bytes(values.clone()),
        ParameterValue::IntegerArray(values) => Value::Integers(values.clone()),
        ParameterValue::DoubleArray(values) => Value::Doubles(values.clone()),
        ParameterValue::StringArray(values) => Value::Texts(values.clone()),
    }
}
