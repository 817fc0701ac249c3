//! Writes and compares `src/record/schema/KIND.json`. Test code: nothing of it is shipped.
//!
//! `REGEN=1 cargo test --lib schema` rewrites them.

use super::envelope::Envelope;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// The schema of one kind: the envelope and the body in one closed object.
///
/// An item that failed has its `error` and need not have the fields of the body.
fn schema<T: JsonSchema>(kind: &str, about: &str, open: bool) -> Value {
    let body = generated::<T>();
    let mut envelope = generated::<Envelope<'static>>();
    let mut properties = take_object(&mut envelope, "properties");
    let mut definitions = take_object(&mut envelope, "$defs");
    let mut body = body;
    properties.extend(take_object(&mut body, "properties"));
    definitions.extend(take_object(&mut body, "$defs"));
    properties.insert("kind".to_owned(), json!({"const": kind, "description": "What this record is"}));
    properties.insert(
        "v".to_owned(),
        json!({"const": 1, "description": "Version of this kind; within one version keys are only added"}),
    );
    let body_required = body.get("required").cloned().unwrap_or_else(|| json!([]));
    let mut whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind,
        "description": about,
        "type": "object",
        "properties": properties,
        "required": ["kind", "v", "time", "host"],
        "anyOf": [{"required": ["error"]}, {"required": body_required}],
        "additionalProperties": open,
    });
    if !definitions.is_empty() {
        whole["$defs"] = Value::Object(definitions);
    }
    whole
}

fn generated<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>().to_value()
}

fn take_object(schema: &mut Value, key: &str) -> Map<String, Value> {
    match schema.get_mut(key).map(Value::take) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Compares the checked-in schema of `kind` with the one that its type gives.
pub(crate) fn check<T: JsonSchema>(kind: &str, about: &str) {
    check_file(kind, &schema::<T>(kind, about, false));
}

/// The same for a mapper, which passes on fields that it does not know.
pub(crate) fn check_open<T: JsonSchema>(kind: &str, about: &str) {
    check_file(kind, &schema::<T>(kind, about, true));
}

#[allow(clippy::unwrap_used, clippy::panic)]
fn check_file(kind: &str, schema: &Value) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/record/schema").join(format!("{kind}.json"));
    let wanted = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("REGEN").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let got = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(got == wanted, "{} is not what the record gives; run: REGEN=1 cargo test --lib schema", path.display());
}
