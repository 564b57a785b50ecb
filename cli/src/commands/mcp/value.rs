//! JSON, on the wire of the daemon and on that of MCP.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value as Wire};
use serde_json::{Map, Value};

/// Up to here every integer is a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

pub(super) fn to_struct(map: Map<String, Value>) -> Struct {
    Struct { fields: map.into_iter().map(|(key, value)| (key, to_wire(value))).collect() }
}

fn to_wire(value: Value) -> Wire {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text),
        Value::Array(values) => {
            Kind::ListValue(ListValue { values: values.into_iter().map(to_wire).collect() })
        }
        Value::Object(map) => Kind::StructValue(to_struct(map)),
    };
    Wire { kind: Some(kind) }
}

pub(super) fn from_struct(object: Struct) -> Map<String, Value> {
    object.fields.into_iter().map(|(key, value)| (key, from_wire(value))).collect()
}

pub(super) fn from_wire(value: Wire) -> Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(value),
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() <= EXACT => {
            Value::from(number as i64)
        }
        Some(Kind::NumberValue(number)) => Value::from(number),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(from_wire).collect(),
        Some(Kind::StructValue(object)) => Value::Object(from_struct(object)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_survives_the_wire() {
        let value = serde_json::json!({
            "text": "größe", "n": 3, "x": 1.5, "no": null, "list": [true, {"deep": -7}],
        });
        assert_eq!(from_wire(to_wire(value.clone())), value);
    }
}
