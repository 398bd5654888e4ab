// SPDX-License-Identifier: Apache-2.0
//! A cloud of a `clouds.yaml` as gophercloud reads it for cinder-csi-plugin: the keys of its structures, each in its
//! own mapping and with underscores.

use super::super::ConfigError;
use super::super::document::{YamlMap, YamlNode, YamlScalar};
use super::super::ignored::{IgnoredKey, UNKNOWN};
use super::super::keys::{self, ConfigKey, KeyEffect, KeyKind, KeyPlace, Precedence};
use super::super::raw::RawCloud;
use super::CloudEntry;

const NOT_OF_GO: &str = "has no effect with use-clouds: the Go driver does not read it";

impl CloudEntry<'_> {
    pub(super) fn read_as_gophercloud(&self) -> Result<RawCloud, ConfigError> {
        let mut raw = RawCloud::default();
        let read = self.read_mappings(&mut raw);
        match read {
            Ok(()) => Ok(raw),
            Err(error) => Err(error.with_ignored(&raw.ignored)),
        }
    }

    fn read_mappings(&self, raw: &mut RawCloud) -> Result<(), ConfigError> {
        for name in ["profile", "cloud"] {
            let text = self
                .map
                .get(name)
                .map(|node| self.text(name, node))
                .transpose()?
                .flatten();
            if let (Some(_), Some(row)) = (text, keys::clouds_yaml_key(false, name))
                && let KeyEffect::Refused(remedy) = row.effect
            {
                return Err(self.unsupported(name, remedy));
            }
        }
        if let Some(auth) = self.map.get("auth").filter(|node| !node.is_null()) {
            let auth = auth.as_map().ok_or_else(|| self.bad("auth", "must be a mapping"))?;
            self.read_mapping(auth, true, raw)?;
        }
        self.read_mapping(self.map, false, raw)
    }

    fn read_mapping(&self, map: &YamlMap, is_in_auth: bool, raw: &mut RawCloud) -> Result<(), ConfigError> {
        let mut strengths = std::collections::BTreeMap::new();
        for (key, node) in map.iter() {
            if !is_in_auth && key == "auth" {
                continue;
            }
            let shown = if is_in_auth {
                format!("auth.{key}")
            } else {
                key.to_owned()
            };
            let Some((row, strength)) = find_row(key, is_in_auth) else {
                self.note_ignored(&shown, key, node, raw);
                continue;
            };
            let Some(setting) = row.setting else { continue };
            let value = if row.kind == KeyKind::Interface {
                self.value(&shown, row.kind, node)?
            } else if matches!(row.kind, KeyKind::OneOf(_)) {
                // Gophercloud accepts any type of login, and checks whether it contains the word token.
                self.text(&shown, node)?.map(|text| text.to_owned().into())
            } else {
                if key == "auth_url" {
                    self.refuse_braces(&shown, node)?;
                }
                self.value(&shown, row.kind, node)?
            };
            // An empty value does not count. Of two names, the one with the higher precedence counts.
            if value.is_some() && strengths.get(&setting).is_none_or(|current| *current < strength) {
                strengths.insert(setting, strength);
                raw.set(setting, value);
            }
        }
        Ok(())
    }

    fn note_ignored(&self, shown: &str, key: &str, node: &YamlNode, raw: &mut RawCloud) {
        let name = key.replace('-', "_");
        let is_known = keys::clouds_yaml_key(false, &name);
        let is_skipped = is_known.is_some_and(|row| row.effect == KeyEffect::OtherService)
            || keys::is_of_other_service(&name)
            || name == "allow_reauth";
        let is_default = name == "verify" && *node == YamlNode::Scalar(YamlScalar::Bool(true));
        if !is_skipped && !is_default {
            raw.ignored.push(IgnoredKey {
                place: self.place(),
                key: self.key(shown),
                reason: if is_known.is_some() { NOT_OF_GO } else { UNKNOWN },
            });
        }
    }
}

/// The row of a key that is read in this mapping, and the precedence of the name. This driver's own keys are read
/// too.
fn find_row(key: &str, is_in_auth: bool) -> Option<(&'static ConfigKey, usize)> {
    let row = keys::clouds_yaml_key(is_in_auth, key)?;
    let is_here = (row.place == KeyPlace::Login) == is_in_auth;
    let names = if row.precedence == Precedence::Own {
        row.names
    } else {
        row.go_names
    };
    let strength = names.iter().position(|name| *name == key)?;
    is_here.then_some((row, strength))
}
