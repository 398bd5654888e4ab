// SPDX-License-Identifier: Apache-2.0
//! Decodes objects of the API server without an error.
//!
//! The API server accepts objects that the types of this program do not represent. Its times exceed the range of jiff, and
//! its JSON can be nested deeper than serde_json supports. One such object must not fail the list that contains it.
//! Therefore each object is decoded separately:
//!
//! 1. without changes;
//! 2. repaired: times out of range become the nearest supported time, and managers of fields that do not decode are dropped;
//! 3. as an [`UndecodableObject`], which still has the name. Such an object exists, and its content is unknown.

use std::{borrow::Cow, collections::BTreeMap};

use csi_sources::UntrustedText;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry, jiff::Timestamp};
use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned, ser::Error as _};
use serde_json::{Value, value::RawValue};
use thiserror::Error;

use super::{names::LONGEST_NAME, objects::key_of};

/// The first and the last supported time.
const EARLIEST: &str = "0001-01-01T00:00:00Z";
const LATEST: &str = "9999-12-30T00:00:00Z";

/// Maximum length of a reported reason.
const LONGEST_REASON: usize = 160;

/// An object of the API server, or the known part of an object that does not decode.
#[derive(Debug, Clone)]
pub struct GuardedObject<K>(pub Result<K, UndecodableObject>);

/// An existing object with unknown content.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{} cannot be decoded: {reason}", self.key())]
pub struct UndecodableObject {
    /// The metadata without managed fields. If the metadata does not decode, only name, namespace, uid, version and
    /// labels.
    pub metadata: ObjectMeta,
    /// Cause of the failure, without any value of the object.
    pub reason: String,
}

impl UndecodableObject {
    /// Returns the namespace and the name, escaped.
    pub fn key(&self) -> String {
        match key_of(&self.metadata) {
            key if key.is_empty() => "an object without a name".to_owned(),
            key => UntrustedText::new(&key).to_string(),
        }
    }
}

/// Describes an object with unknown content.
pub fn unknown_object(name: &str) -> String {
    format!("{} (it cannot be decoded)", UntrustedText::new(name))
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for GuardedObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(decode(text.get())))
    }
}

impl<K: Serialize> Serialize for GuardedObject<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(object) => object.serialize(serializer),
            Err(undecodable) => Err(S::Error::custom(undecodable)),
        }
    }
}

impl<K: Resource> Resource for GuardedObject<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0
            .as_ref()
            .map_or_else(|undecodable| &undecodable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(undecodable) => &mut undecodable.metadata,
        }
    }
}

fn decode<K: DeserializeOwned>(text: &str) -> Result<K, UndecodableObject> {
    let mut error = match serde_json::from_str(text) {
        Ok(object) => return Ok(object),
        Err(error) => error,
    };
    let mut metadata = None;
    if let Some(repaired) = repair(text) {
        match K::deserialize(&repaired) {
            Ok(object) => return Ok(object),
            Err(of_repaired) => error = of_repaired,
        }
        metadata = ObjectMeta::deserialize(&repaired["metadata"]).ok();
    }
    let metadata = metadata.unwrap_or_else(|| decode_identity(text));
    let metadata = ObjectMeta {
        managed_fields: None,
        // A watch continues at the version of its last object. At 0 the API server selects the version.
        resource_version: metadata.resource_version.or_else(|| Some("0".to_owned())),
        ..metadata
    };
    Err(UndecodableObject {
        metadata,
        reason: reason_of(&error),
    })
}

type RawFields = BTreeMap<String, Box<RawValue>>;

/// Returns the object with supported times, and without managers of fields that do not decode.
fn repair(text: &str) -> Option<Value> {
    let mut fields: RawFields = serde_json::from_str(text).ok()?;
    let mut metadata: RawFields = serde_json::from_str(fields.remove("metadata")?.get()).ok()?;
    let managers = metadata.remove("managedFields");
    let managers: Option<Vec<Box<RawValue>>> = managers.and_then(|all| serde_json::from_str(all.get()).ok());
    let managers = managers.unwrap_or_default();
    let managers = managers.iter().filter_map(|manager| {
        let mut manager: Value = serde_json::from_str(manager.get()).ok()?;
        clamp_times(&mut manager);
        ManagedFieldsEntry::deserialize(&manager).ok().map(|_| manager)
    });
    let mut metadata = decode_fields(metadata)?;
    metadata["managedFields"] = managers.collect();
    let mut object = decode_fields(fields)?;
    object["metadata"] = metadata;
    Some(object)
}

fn decode_fields(fields: RawFields) -> Option<Value> {
    let decode = |(name, text): (String, Box<RawValue>)| -> Option<(String, Value)> {
        Some((name, serde_json::from_str(text.get()).ok()?))
    };
    let mut fields: Value = fields.into_iter().map(decode).collect::<Option<_>>()?;
    clamp_times(&mut fields);
    Some(fields)
}

/// Replaces every time out of range, except in text that users write.
fn clamp_times(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(time) = clamp_time(text) {
                time.clone_into(text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clamp_times),
        Value::Object(fields) => {
            let fields = fields.iter_mut();
            let times = fields.filter(|(name, _)| !matches!(name.as_str(), "annotations" | "labels"));
            times.for_each(|(_, value)| clamp_times(value));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the nearest supported time for a time out of range. Go writes a year beyond 9999 with five digits, and one
/// before 0 with a minus sign.
fn clamp_time(text: &str) -> Option<&'static str> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let is_before = date.starts_with('-');
    let numbers: Vec<&str> = date.trim_start_matches('-').split('-').chain(time.split(':')).collect();
    let is_number = |text: &&str| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        (1..=20).contains(&text.len()) && text.bytes().all(is_digit)
    };
    let is_time = numbers.len() == 6 && numbers.iter().all(is_number);
    (is_time && text.parse::<Timestamp>().is_err()).then_some(if is_before { EARLIEST } else { LATEST })
}

/// Decodes the metadata fields one by one, and retains the valid ones.
fn decode_identity(text: &str) -> ObjectMeta {
    #[derive(Deserialize)]
    struct RawObject {
        metadata: Option<Box<RawValue>>,
    }
    let object: Option<RawObject> = serde_json::from_str(text).ok();
    let metadata = object.and_then(|object| object.metadata);
    let fields: RawFields = metadata
        .and_then(|metadata| serde_json::from_str(metadata.get()).ok())
        .unwrap_or_default();
    let decode_text = |name: &str| -> Option<String> {
        let text: String = serde_json::from_str(fields.get(name)?.get()).ok()?;
        Some(text.chars().take(LONGEST_NAME).collect())
    };
    let labels: Option<BTreeMap<String, Value>> = fields
        .get("labels")
        .and_then(|labels| serde_json::from_str(labels.get()).ok());
    let labels = labels.into_iter().flatten();
    ObjectMeta {
        name: decode_text("name"),
        namespace: decode_text("namespace"),
        uid: decode_text("uid"),
        resource_version: decode_text("resourceVersion"),
        labels: Some(
            labels
                .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
                .collect(),
        ),
        ..ObjectMeta::default()
    }
}

/// Describes the cause without the value, which may be a secret or text of a tenant.
fn reason_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let kind = text.strip_prefix("invalid type: ").and_then(|rest| {
        let found = rest.split([' ', ',']).next()?;
        let (_, expected) = rest.rsplit_once("expected ")?;
        Some(format!("invalid type: {found}, expected {expected}"))
    });
    let is_plain = ["missing field ", "recursion limit exceeded", "EOF while parsing"];
    let reason = match kind {
        Some(reason) => reason,
        None if is_plain.iter().any(|prefix| text.starts_with(prefix)) => text,
        None if error.line() == 0 => "invalid value".to_owned(),
        None => format!("invalid value at line {} column {}", error.line(), error.column()),
    };
    UntrustedText::with_limit(&reason, LONGEST_REASON).to_string()
}

#[cfg(test)]
mod tests;
