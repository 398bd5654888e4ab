// SPDX-License-Identifier: Apache-2.0
//! Values of a `clouds.yaml` by their types in the table of keys.

use super::super::ConfigError;
use super::super::document::{YamlNode, YamlScalar};
use super::super::keys::KeyKind;
use super::super::raw::{SettingValue, interface};
use super::CloudEntry;

const NO_BOOLEAN: &str = "must be true or false, without quotes";
/// For `0`, openstacksdk neither disables the verification nor finds the file.
const NO_VERIFICATION: &str = "must be true or false, without quotes, or the path of a file: openstacksdk uses other texts and numbers as the name of a file";
/// openstacksdk uses the first interface for which the catalogue has an endpoint, for each service on its own.
const ONE_INTERFACE: &str = "the driver uses one interface: write the one that has the endpoints of Cinder and Nova";

impl CloudEntry<'_> {
    /// Reads a value; `None` for an empty one. `key` is its name as the file has it.
    pub(super) fn value(&self, key: &str, kind: KeyKind, node: &YamlNode) -> Result<Option<SettingValue>, ConfigError> {
        match kind {
            KeyKind::YamlBoolean => Ok(self.flag(key, node)?.map(SettingValue::Flag)),
            KeyKind::Interface => {
                if matches!(node, YamlNode::List(items) if items.len() > 1) {
                    return Err(self.unsupported(&format!("{key} with several interfaces"), ONE_INTERFACE));
                }
                let Some(text) = self.text(key, single_item(node))? else {
                    return Ok(None);
                };
                // keystoneauth also accepts the names of version 2, which end in `URL`.
                let interface = interface(text.trim_end_matches(['U', 'R', 'L']));
                let interface = interface.ok_or_else(|| self.bad(key, "must be public, internal or admin"))?;
                Ok(Some(SettingValue::Interface(interface)))
            }
            KeyKind::OneOf(values) => {
                let Some(text) = self.text(key, node)? else {
                    return Ok(None);
                };
                if values.contains(&text) {
                    return Ok(Some(text.to_owned().into()));
                }
                Err(self.unsupported(key, &format!("it may be one of: {}", values.join(", "))))
            }
            _ => Ok(self.text(key, node)?.map(|text| text.to_owned().into())),
        }
    }

    /// Reads a scalar as text. Users write passwords of digits without quotes.
    pub(super) fn text<'n>(&self, key: &str, node: &'n YamlNode) -> Result<Option<&'n str>, ConfigError> {
        match node {
            YamlNode::Scalar(YamlScalar::Null) => Ok(None),
            YamlNode::Scalar(YamlScalar::Text(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            YamlNode::Scalar(YamlScalar::Bool(_)) => Err(self.bad(key, "is read as true or false; put it in quotes")),
            YamlNode::Scalar(YamlScalar::Inexact) => Err(self.bad(
                key,
                "is read as a number or a time that is written in another way; put it in quotes",
            )),
            YamlNode::Ambiguous => Err(self.bad(
                key,
                "has different values in the merged mappings; write it into the entry",
            )),
            YamlNode::List(_) | YamlNode::Map(_) => Err(self.bad(key, "must be a text")),
        }
    }

    /// Reads a boolean of YAML. openstacksdk treats a text as the path of a file, or as false.
    pub(super) fn flag(&self, key: &str, node: &YamlNode) -> Result<Option<bool>, ConfigError> {
        match node {
            YamlNode::Scalar(YamlScalar::Null) => Ok(None),
            YamlNode::Scalar(YamlScalar::Bool(flag)) => Ok(Some(*flag)),
            _ => Err(self.bad(key, NO_BOOLEAN)),
        }
    }

    /// Reads `insecure`. openstacksdk also accepts `true` and `false` in quotes. Every other text means false there, even
    /// `yes`, and is rejected here.
    pub(super) fn insecure(&self, key: &str, node: &YamlNode) -> Result<bool, ConfigError> {
        match node {
            YamlNode::Scalar(YamlScalar::Text(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
            YamlNode::Scalar(YamlScalar::Text(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
            node => Ok(self.flag(key, node)?.unwrap_or_default()),
        }
    }

    /// A boolean, or the path of the authorities to trust.
    pub(super) fn verify(&self, key: &str, node: &YamlNode) -> Result<Option<Verification>, ConfigError> {
        match node {
            YamlNode::Scalar(YamlScalar::Text(path)) if path.starts_with(['/', '.']) => {
                Ok(Some(Verification::Authorities(path.clone())))
            }
            YamlNode::Scalar(YamlScalar::Text(_)) => Err(self.bad(key, NO_VERIFICATION)),
            node => Ok(self.flag(key, node)?.map(Verification::Switch)),
        }
    }

    /// Rejects braces, because openstacksdk replaces names in braces in texts outside `auth` and in `auth_url`.
    pub(super) fn refuse_braces(&self, key: &str, node: &YamlNode) -> Result<(), ConfigError> {
        match node {
            YamlNode::Scalar(YamlScalar::Text(text)) if text.contains(['{', '}']) => Err(self.unsupported(
                &format!("{key} with a name in braces, such as {{region_name}},"),
                "write the value itself",
            )),
            _ => Ok(()),
        }
    }
}

/// The value of `verify`.
pub(super) enum Verification {
    Switch(bool),
    Authorities(String),
}

/// The only item of a list, else the node itself.
fn single_item(node: &YamlNode) -> &YamlNode {
    match node {
        YamlNode::List(items) if items.len() == 1 => &items[0],
        node => node,
    }
}
