// SPDX-License-Identifier: Apache-2.0
//! Checks that our interface files equal the published ones, except for comments.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use protox::prost_reflect::{DescriptorPool, DynamicMessage, Value};

const SET: &str = "google.protobuf.FileDescriptorSet";
/// Maximum nesting of a descriptor: file, message, nested message, field, options, and one more.
const DEEPEST: usize = 16;

/// Returns the files of a set by package, without comments, positions, the file name, and the Go package, which are not
/// part of the interface.
fn interfaces(pool: &DescriptorPool, encoded: &[u8]) -> Result<BTreeMap<String, Value>> {
    let set = pool
        .get_message_by_name(SET)
        .context("descriptor.proto is not among our imports")?;
    let mut set = DynamicMessage::decode(set, encoded).context("is no set of descriptors")?;
    let files = set
        .get_field_by_name_mut("file")
        .and_then(Value::as_list_mut)
        .context("a set without files")?;
    let mut interfaces = BTreeMap::new();
    for value in files {
        let file = value.as_message_mut().context("a file that is no message")?;
        file.clear_field_by_name("source_code_info");
        file.clear_field_by_name("name");
        if let Some(Value::Message(options)) = file.get_field_by_name_mut("options") {
            options.clear_field_by_name("go_package");
        }
        let package = file
            .get_field_by_name("package")
            .and_then(|name| name.as_str().map(str::to_owned));
        let package = package.context("a file without a package")?;
        if package != "google.protobuf" {
            interfaces.insert(package, value.clone());
        }
    }
    Ok(interfaces)
}

/// Returns the first difference between two values.
fn difference(path: &str, ours: &Value, theirs: &Value, depth: usize) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let plain = || Some(format!("{path}: ours is {ours:?}, published is {theirs:?}"));
    if depth == DEEPEST {
        return plain();
    }
    match (ours, theirs) {
        (Value::Message(ours), Value::Message(theirs)) => {
            let (ours, theirs) = (fields(ours), fields(theirs));
            let name = ours.get("name").and_then(Value::as_str).unwrap_or_default();
            ours.keys().chain(theirs.keys()).find_map(|field| {
                let path = format!("{path}({name}).{field}");
                match (ours.get(field), theirs.get(field)) {
                    (Some(ours), Some(theirs)) => difference(&path, ours, theirs, depth + 1),
                    (ours, theirs) => Some(format!("{path}: ours is {ours:?}, published is {theirs:?}")),
                }
            })
        }
        (Value::List(ours), Value::List(theirs)) if ours.len() == theirs.len() => ours
            .iter()
            .zip(theirs)
            .enumerate()
            .find_map(|(index, (ours, theirs))| difference(&format!("{path}[{index}]"), ours, theirs, depth + 1)),
        _ => plain(),
    }
}

/// Returns all set fields of a message, including options of other files and unknown fields. Empty options count as
/// missing, because protoc writes them for `rpc … {}`.
fn fields(message: &DynamicMessage) -> BTreeMap<String, Value> {
    let known = message
        .fields()
        .map(|(field, value)| (field.name().to_owned(), value.clone()));
    let extensions = message
        .extensions()
        .map(|(extension, value)| (extension.full_name().to_owned(), value.clone()));
    let unknown = message
        .unknown_fields()
        .map(|field| (field.number().to_string(), Value::String(format!("{field:?}"))));
    let is_empty = |value: &Value| value.as_message().is_some_and(|message| fields(message).is_empty());
    known
        .chain(extensions)
        .chain(unknown)
        .filter(|(_, value)| !is_empty(value))
        .collect()
}

#[tokio::test]
async fn interfaces_match_published_go_modules() -> Result<()> {
    let pool = DescriptorPool::decode(csi_proto::FILE_DESCRIPTOR_SET).context("our descriptors are not whole")?;
    let ours = interfaces(&pool, csi_proto::FILE_DESCRIPTOR_SET)?;
    let published = interfaces(&pool, &suites::contracts::published_descriptors().await?)?;
    assert_eq!(ours.keys().collect::<Vec<_>>(), ["csi.v1", "pluginregistration"]);
    assert_eq!(published.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>());
    for (package, ours) in &ours {
        let difference = difference(package, ours, &published[package], 0);
        assert_eq!(difference, None, "{package} is not what is published");
    }
    Ok(())
}

#[test]
fn comparison_detects_changed_number_and_option() -> Result<()> {
    let pool = DescriptorPool::decode(csi_proto::FILE_DESCRIPTOR_SET)?;
    let ours = interfaces(&pool, csi_proto::FILE_DESCRIPTOR_SET)?
        .remove("csi.v1")
        .context("no csi.v1")?;

    let mut renumbered = ours.clone();
    let field = first_with(&mut renumbered, "field").context("no field")?;
    field.set_field_by_name("number", Value::I32(77));
    let detected = difference("csi.v1", &ours, &renumbered, 0).context("the number is not compared")?;
    assert!(
        detected.contains(".number: ours is") && detected.contains("77"),
        "{detected}"
    );

    let secret = pool
        .get_extension_by_name("csi.v1.csi_secret")
        .context("no csi_secret")?;
    let mut published = ours.clone();
    let field = first_with(&mut published, "field").context("no field")?;
    let options = pool
        .get_message_by_name("google.protobuf.FieldOptions")
        .context("no options")?;
    let mut options = DynamicMessage::new(options);
    options.set_extension(&secret, Value::Bool(true));
    field.set_field_by_name("options", Value::Message(options));
    let detected = difference("csi.v1", &ours, &published, 0).context("options are not compared")?;
    assert!(detected.contains(".options"), "{detected}");
    Ok(())
}

/// Returns the first entry of the list `name` in the first message of a file that has one.
fn first_with<'a>(file: &'a mut Value, name: &str) -> Option<&'a mut DynamicMessage> {
    let messages = file
        .as_message_mut()?
        .get_field_by_name_mut("message_type")?
        .as_list_mut()?;
    messages.iter_mut().find_map(|message| {
        let message = message.as_message_mut()?;
        message
            .get_field_by_name_mut(name)?
            .as_list_mut()?
            .first_mut()?
            .as_message_mut()
    })
}
