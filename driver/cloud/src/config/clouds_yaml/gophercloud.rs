// SPDX-License-Identifier: Apache-2.0
//! A cloud of a `clouds.yaml` as gophercloud reads it for cinder-csi-plugin: the keys of its structures, each in its
//! own mapping and with underscores.

use super::super::ConfigError;
use super::super::document::{YamlMap, YamlNode, YamlScalar};
use super::super::ignored::{IgnoredKey, UNKNOWN};
use super::super::keys::{self, ConfigKey, KeyEffect, KeyKind, KeyPlace, Precedence, Setting};
use super::super::raw::{RawCloud, SettingValue};
use super::CloudEntry;

const NOT_OF_GO: &str = "has no effect with use-clouds: the Go driver does not read it";

impl CloudEntry<'_> {
    pub(super) fn read_as_gophercloud(&self) -> Result<RawCloud, ConfigError> {
        let (raw, refused) = self.read_each_as_gophercloud();
        match refused.into_iter().next() {
            None => Ok(raw),
            Some(error) => Err(error.with_ignored(&raw.ignored)),
        }
    }

    /// Reads all accepted keys, and returns the errors of the others.
    pub(super) fn read_each_as_gophercloud(&self) -> (RawCloud, Vec<ConfigError>) {
        let (mut raw, mut refused) = (RawCloud::default(), Vec::new());
        for name in ["profile", "cloud"] {
            refused.extend(self.refuse_profile(name).err());
        }
        match self
            .map
            .get("auth")
            .filter(|node| !node.is_null())
            .map(YamlNode::as_map)
        {
            Some(Some(auth)) => self.read_mapping(auth, true, &mut raw, &mut refused),
            Some(None) => refused.push(self.bad("auth", "must be a mapping")),
            None => {}
        }
        self.read_mapping(self.map, false, &mut raw, &mut refused);
        (raw, refused)
    }

    fn refuse_profile(&self, name: &str) -> Result<(), ConfigError> {
        let Some(node) = self.map.get(name) else { return Ok(()) };
        if self.text(name, node)?.is_some()
            && let Some(row) = keys::clouds_yaml_key(false, name)
            && let KeyEffect::Refused(remedy) = row.effect
        {
            return Err(self.unsupported(name, remedy));
        }
        Ok(())
    }

    fn read_mapping(&self, map: &YamlMap, is_in_auth: bool, raw: &mut RawCloud, refused: &mut Vec<ConfigError>) {
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
            match self.read_value(row, &shown, node) {
                // An empty value does not count. Of two names, the one with the higher precedence counts.
                Ok(Some(value)) if strengths.get(&setting).is_none_or(|current| *current < strength) => {
                    strengths.insert(setting, strength);
                    raw.set(setting, Some(value));
                }
                Ok(_) => {}
                Err(error) => refused.push(error),
            }
        }
    }

    fn read_value(&self, row: &ConfigKey, shown: &str, node: &YamlNode) -> Result<Option<SettingValue>, ConfigError> {
        if matches!(row.kind, KeyKind::OneOf(_)) {
            // Gophercloud accepts any type of login, and checks whether it contains the word token.
            return Ok(self.text(shown, node)?.map(|text| text.to_owned().into()));
        }
        if row.setting == Some(Setting::AuthUrl) {
            self.refuse_braces(shown, node)?;
        }
        self.value(shown, row.kind, node)
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
