// SPDX-License-Identifier: Apache-2.0
//! The environment of a container, with the values of ConfigMaps and Secrets.

use cinder_operator_core::migration::check::{VariableValue, Variables};
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource};

use super::objects::{FileKind, KeyValue, Objects};

/// Maximum number of variables of one container.
const MOST_VARIABLES: usize = 1_000;

/// Reads the variables of a container as the kubelet does: `env` overrides `envFrom`.
pub(super) async fn variables(objects: &mut Objects<'_>, container: &Container) -> Variables {
    let mut variables = Variables::default();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let (kind, name, is_optional) = if let Some(map) = &source.config_map_ref {
            (FileKind::ConfigMap, map.name.as_str(), map.optional)
        } else if let Some(secret) = &source.secret_ref {
            (FileKind::Secret, secret.name.as_str(), secret.optional)
        } else {
            variables.hide_source("a source of envFrom is of a kind that the check does not read");
            continue;
        };
        let place = objects.describe(kind, name);
        match objects.keys(kind, name).await {
            Ok(Some(keys)) if keys.len() > MOST_VARIABLES => {
                variables.hide_source(format!("{place} has more than {MOST_VARIABLES} keys"));
            }
            Ok(Some(keys)) => {
                for key in keys {
                    let value = referenced(objects, kind, name, &key, false).await;
                    if let Some(value) = value {
                        variables.set(format!("{prefix}{key}"), value);
                    }
                }
            }
            Ok(None) if is_optional == Some(true) => {}
            Ok(None) => variables.hide_source(format!("{place} does not exist")),
            Err(unread) => variables.hide_source(format!("{place}: {}", unread.why)),
        }
    }
    let all = container.env.as_deref().unwrap_or_default();
    for variable in all.iter().take(MOST_VARIABLES) {
        if let Some(value) = value_of(objects, &variables, variable).await {
            variables.set(&variable.name, value);
        }
    }
    if all.len() > MOST_VARIABLES {
        variables.hide_source(format!("the container has more than {MOST_VARIABLES} variables"));
    }
    variables
}

/// The value of a variable; `None` if the container does not get the variable.
async fn value_of(objects: &mut Objects<'_>, earlier: &Variables, variable: &EnvVar) -> Option<VariableValue> {
    let Some(source) = &variable.value_from else {
        let word = earlier.expand(variable.value.as_deref().unwrap_or_default());
        return Some(word.into());
    };
    let EnvVarSource {
        config_map_key_ref,
        secret_key_ref,
        field_ref,
        resource_field_ref,
        ..
    } = source;
    if let Some(key) = config_map_key_ref {
        let is_optional = key.optional.unwrap_or_default();
        return referenced(objects, FileKind::ConfigMap, &key.name, &key.key, is_optional).await;
    }
    if let Some(key) = secret_key_ref {
        let is_optional = key.optional.unwrap_or_default();
        return referenced(objects, FileKind::Secret, &key.name, &key.key, is_optional).await;
    }
    let why = match (field_ref, resource_field_ref) {
        (Some(field), _) => format!("it is the field {} of each pod", field.field_path),
        (_, Some(field)) => format!("it is the resource {} of each container", field.resource),
        _ => "its source is of a kind that the check does not read".to_owned(),
    };
    Some(VariableValue::Unknown(why))
}

/// The value of a key; `None` for an optional variable without a value.
async fn referenced(
    objects: &mut Objects<'_>,
    kind: FileKind,
    name: &str,
    key: &str,
    is_optional: bool,
) -> Option<VariableValue> {
    let place = objects.describe(kind, name);
    let unknown = |why: &str| Some(VariableValue::Unknown(format!("{place}, key {key}: {why}")));
    let bytes = match objects.value(kind, name, key).await {
        Ok(KeyValue::Value(bytes)) => bytes,
        Ok(_) if is_optional => return None,
        Ok(KeyValue::NoKey) => return unknown("the object does not have it"),
        Ok(KeyValue::NoObject) => return unknown("the object does not exist"),
        Err(unread) => return unknown(&unread.why),
    };
    let Ok(text) = String::from_utf8(bytes) else {
        return unknown("it is not text");
    };
    Some(match kind {
        FileKind::ConfigMap => VariableValue::Plain(text),
        FileKind::Secret => VariableValue::Secret(text.into()),
    })
}
