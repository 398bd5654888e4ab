// SPDX-License-Identifier: Apache-2.0
//! A cloud of a `clouds.yaml` as openstacksdk reads it.

use std::collections::BTreeMap;

use super::super::ConfigError;
use super::super::document::{YamlMap, YamlNode, YamlScalar};
use super::super::ignored::{IgnoredKey, UNKNOWN};
use super::super::keys::{self, CLOUDS_YAML, ConfigKey, KeyEffect, KeyKind, KeyPlace, Precedence, Setting};
use super::super::raw::{RawCloud, SettingValue};
use super::CloudEntry;
use super::value::Verification;

/// The keys of one mapping by their names with underscores, and each with the spelling of the file.
type SpelledKeys<'a> = BTreeMap<String, (&'a str, &'a YamlNode)>;

/// The merged keys of a cloud and its region: the keys outside `auth`, and the keys in `auth`.
struct MergedKeys<'a> {
    outside: SpelledKeys<'a>,
    auth: SpelledKeys<'a>,
}

impl CloudEntry<'_> {
    pub(super) fn read_as_sdk(&self, desired: Option<&str>) -> Result<RawCloud, ConfigError> {
        let mut raw = RawCloud::default();
        let read = self.read_settings(desired, &mut raw);
        match read {
            Ok(()) => Ok(raw),
            Err(error) => Err(error.with_ignored(&raw.ignored)),
        }
    }

    fn read_settings(&self, desired: Option<&str>, raw: &mut RawCloud) -> Result<(), ConfigError> {
        let region = self.choose_region(desired)?;
        let merged = self.merge(region.values)?;
        self.note_unknown(&merged, raw);
        self.refuse_keys(&merged)?;
        for row in CLOUDS_YAML.iter().filter(|row| row.effect == KeyEffect::Used) {
            let Some(setting) = row.setting else { continue };
            match setting {
                Setting::Region | Setting::Regions | Setting::Verify | Setting::Insecure => {}
                setting => {
                    if let Some((key, node)) = merged.effective_value(row) {
                        self.refuse_fields(row, &key, node)?;
                        raw.set(setting, self.value(&key, row.kind, node)?);
                    }
                }
            }
        }
        self.read_verification(&merged, raw)?;
        raw.set(Setting::Region, region.name.map(Into::into));
        self.settle_regions(raw)?;
        self.drop_key_alone(raw);
        self.note_other_logins(raw);
        Ok(())
    }

    /// Merges the values of the region into the cloud.
    fn merge<'e>(&'e self, values: Option<&'e YamlMap>) -> Result<MergedKeys<'e>, ConfigError> {
        let mut merged = MergedKeys {
            outside: SpelledKeys::new(),
            auth: SpelledKeys::new(),
        };
        for map in [Some(self.map), values].into_iter().flatten() {
            let is_of_region = !std::ptr::eq(map, self.map);
            let mut own = SpelledKeys::new();
            for (key, node) in map.iter() {
                // A region cannot remove a value.
                if is_of_region && node.is_null() {
                    continue;
                }
                if key != "auth" {
                    self.add(&mut own, key, node, "")?;
                    continue;
                }
                let auth = match node {
                    node if node.is_null() => continue,
                    node => node.as_map().ok_or_else(|| self.bad("auth", "must be a mapping"))?,
                };
                let mut own = SpelledKeys::new();
                for (key, node) in auth.iter() {
                    self.add(&mut own, key, node, "auth.")?;
                }
                self.override_with(&mut merged.auth, own, "auth.")?;
            }
            self.override_with(&mut merged.outside, own, "")?;
        }
        Ok(merged)
    }

    fn add<'e>(
        &self,
        into: &mut SpelledKeys<'e>,
        key: &'e str,
        node: &'e YamlNode,
        prefix: &str,
    ) -> Result<(), ConfigError> {
        let name = key.replace('-', "_");
        match into.insert(name.clone(), (key, node)) {
            Some((_, other)) if other != node => Err(self.bad(
                &format!("{prefix}{name}"),
                "is there twice, with - and with _; keep one of them",
            )),
            _ => Ok(()),
        }
    }

    fn override_with<'e>(
        &self,
        into: &mut SpelledKeys<'e>,
        values: SpelledKeys<'e>,
        prefix: &str,
    ) -> Result<(), ConfigError> {
        for (name, (key, node)) in values {
            if let Some((other, existing)) = into.get(&name)
                && *other != key
                && *existing != node
            {
                let reason = "is there with - and with _, in the cloud and in its region; write it with _ in both";
                return Err(self.bad(&format!("{prefix}{name}"), reason));
            }
            into.insert(name, (key, node));
        }
        Ok(())
    }

    fn note_unknown(&self, merged: &MergedKeys<'_>, raw: &mut RawCloud) {
        let outside = merged.outside.iter().map(|(name, (key, _))| (false, name, *key));
        let auth = merged.auth.iter().map(|(name, (key, _))| (true, name, *key));
        for (is_in_auth, name, key) in outside.chain(auth) {
            let is_known = keys::clouds_yaml_key(is_in_auth, name).is_some() || keys::is_of_other_service(name);
            // A switch of gophercloud.
            if !is_known && name != "allow_reauth" {
                let prefix = if is_in_auth { "auth." } else { "" };
                raw.ignored.push(IgnoredKey {
                    place: self.place(),
                    key: self.key(&format!("{prefix}{key}")),
                    reason: UNKNOWN,
                });
            }
        }
    }

    /// Rejects unsupported keys that change the destination of requests.
    fn refuse_keys(&self, merged: &MergedKeys<'_>) -> Result<(), ConfigError> {
        for row in CLOUDS_YAML {
            let KeyEffect::Refused(remedy) = row.effect else {
                continue;
            };
            for name in row.names {
                let values = [("", merged.outside.get(*name)), ("auth.", merged.auth.get(*name))];
                for (prefix, spelled) in values {
                    let Some((key, node)) = spelled else { continue };
                    if prefix == "auth." && row.place != KeyPlace::Login {
                        continue;
                    }
                    let key = format!("{prefix}{key}");
                    let text = self.text(&key, node)?;
                    let is_allowed = |text: &str| matches!(row.kind, KeyKind::OneOf(values) if values.contains(&text));
                    if text.is_some_and(|text| !is_allowed(text)) {
                        return Err(self.unsupported(&key, remedy));
                    }
                }
            }
        }
        self.refuse_hyphens(merged)?;
        self.refuse_two_interfaces(merged)
    }

    /// openstacksdk replaces hyphens too late for these keys, so that they have no effect there.
    fn refuse_hyphens(&self, merged: &MergedKeys<'_>) -> Result<(), ConfigError> {
        let spelled = merged.outside.iter().find(|(name, (key, _))| {
            let is_late = name.ends_with("endpoint_type") || matches!(name.as_str(), "auth_type" | "auth_plugin");
            is_late && key.contains('-')
        });
        let Some((name, (key, _))) = spelled else { return Ok(()) };
        Err(self.unsupported(key, &format!("openstacksdk does not read it: write {name}")))
    }

    /// openstacksdk uses the later of these two keys in the file.
    fn refuse_two_interfaces(&self, merged: &MergedKeys<'_>) -> Result<(), ConfigError> {
        for (name, (_, node)) in &merged.outside {
            let Some(service) = name.strip_suffix("_endpoint_type") else {
                continue;
            };
            let other = merged.outside.get(&format!("{service}_interface"));
            if other.is_some_and(|(_, other)| other != node) {
                return Err(self.bad(name, &format!("and {service}_interface differ; keep one of them")));
            }
        }
        Ok(())
    }

    fn refuse_fields(&self, row: &ConfigKey, key: &str, node: &YamlNode) -> Result<(), ConfigError> {
        let is_formatted = row.setting == Some(Setting::AuthUrl) || row.place == KeyPlace::Cloud;
        if is_formatted {
            self.refuse_braces(key, node)
        } else {
            Ok(())
        }
    }

    /// Reads `insecure` and `verify`; either can disable the verification. `cacert` takes precedence over a path in
    /// `verify`.
    fn read_verification(&self, merged: &MergedKeys<'_>, raw: &mut RawCloud) -> Result<(), ConfigError> {
        let mut is_insecure = match merged.outside.get("insecure") {
            Some((key, node)) => self.insecure(key, node)?,
            None => false,
        };
        let verification = match merged.outside.get("verify") {
            Some((key, node)) => {
                self.refuse_braces(key, node)?;
                self.verify(key, node)?
            }
            None => None,
        };
        match verification {
            Some(Verification::Switch(verify)) => is_insecure |= !verify,
            Some(Verification::Authorities(path)) if !raw.has(Setting::CaFile) => {
                raw.set(Setting::CaFile, Some(path.into()));
            }
            Some(Verification::Authorities(_)) | None => {}
        }
        raw.set(Setting::Insecure, Some(SettingValue::Flag(is_insecure)));
        Ok(())
    }

    /// Sets the region of the cloud to the region of the volumes. A different region of the servers is stored separately.
    fn settle_regions(&self, raw: &mut RawCloud) -> Result<(), ConfigError> {
        let text = |raw: &RawCloud, setting| raw.text(setting).map(str::to_owned);
        let common = text(raw, Setting::Region);
        let volumes = text(raw, Setting::BlockStorageRegion).or(common.clone());
        let servers = text(raw, Setting::ComputeRegion).or(common);
        raw.set(Setting::BlockStorageRegion, None);
        raw.set(Setting::ComputeRegion, None);
        if volumes.is_some() != servers.is_some() {
            return Err(self.bad(
                "region_name",
                "is missing; the entry names the region of one service only",
            ));
        }
        if servers != volumes {
            raw.set(Setting::ComputeRegion, servers.map(Into::into));
        }
        raw.set(Setting::Region, volumes.map(Into::into));
        Ok(())
    }

    /// Notes the keys of logins other than that of `auth_type`.
    fn note_other_logins(&self, raw: &mut RawCloud) {
        let unused: &[Setting] = match raw.text(Setting::AuthType) {
            Some("password" | "v3password") => &[Setting::CredentialId, Setting::CredentialSecret, Setting::Token],
            Some("token" | "v3token") => &[Setting::CredentialId, Setting::CredentialSecret, Setting::Password],
            Some("v3applicationcredential") => &[Setting::Password, Setting::Token],
            _ => &[],
        };
        for setting in unused
            .iter()
            .filter(|setting| raw.has(**setting))
            .copied()
            .collect::<Vec<_>>()
        {
            let name = keys::name_of(CLOUDS_YAML, setting).unwrap_or_default();
            raw.ignored.push(IgnoredKey {
                place: self.place(),
                key: self.key(&format!("auth.{name}")),
                reason: "has no effect: auth_type chooses another login",
            });
        }
    }

    fn drop_key_alone(&self, raw: &mut RawCloud) {
        if raw.has(Setting::KeyFile) && !raw.has(Setting::CertFile) {
            raw.set(Setting::KeyFile, None);
            raw.ignored.push(IgnoredKey {
                place: self.place(),
                key: self.key("key"),
                reason: "has no effect without cert",
            });
        }
    }
}

impl<'a> MergedKeys<'a> {
    /// Returns the value that counts, with its key.
    fn effective_value(&self, row: &ConfigKey) -> Option<(String, &'a YamlNode)> {
        let in_auth = |name: &str| {
            let (key, node) = self.auth.get(name)?;
            Some((format!("auth.{key}"), *node))
        };
        let outside = |name: &str| {
            let (key, node) = self.outside.get(name)?;
            Some(((*key).to_owned(), *node))
        };
        let mut names = row.names.iter().rev();
        match (row.place, row.precedence) {
            // keystoneauth's options: an empty value does not count.
            (KeyPlace::Login, Precedence::InsideAuth) => {
                let is_set = |value: &(String, &YamlNode)| !is_empty(value.1);
                let inside = row.names.iter().rev().find_map(|name| in_auth(name)).filter(is_set);
                inside.or_else(|| names.find_map(|name| outside(name)))
            }
            (KeyPlace::Login, _) => self.last_login_value(row),
            _ => names.find_map(|name| outside(name).filter(|(_, node)| !is_empty(node))),
        }
    }

    /// Returns the value of a login key. openstacksdk reads each name with underscores, then with hyphens, and uses
    /// the last value. For each spelling it reads `auth` first, then the keys outside `auth`. For a token, the
    /// spelling with a hyphen comes first.
    fn last_login_value(&self, row: &ConfigKey) -> Option<(String, &'a YamlNode)> {
        let is_token = row.setting == Some(Setting::Token);
        let values = row.names.iter().enumerate().flat_map(|(rank, name)| {
            let sources = [(false, self.auth.get(*name)), (true, self.outside.get(*name))];
            sources.into_iter().filter_map(move |(is_outside, spelled)| {
                let (key, node) = spelled?;
                let is_later = key.contains('-') != is_token;
                Some(((rank, is_later, is_outside), *key, *node))
            })
        });
        let ((_, _, is_outside), key, node) = values.max_by_key(|(rank, _, _)| *rank)?;
        let prefix = if is_outside { "" } else { "auth." };
        Some((format!("{prefix}{key}"), node))
    }
}

fn is_empty(node: &YamlNode) -> bool {
    match node {
        YamlNode::Scalar(YamlScalar::Null) => true,
        YamlNode::Scalar(YamlScalar::Text(text)) => text.is_empty(),
        _ => false,
    }
}
