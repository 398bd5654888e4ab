// SPDX-License-Identifier: Apache-2.0
//! The settings of one cloud as a file has them, before validation. Both formats produce them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};

use super::ignored::IgnoredKey;
use super::keys::{self, CLOUD_CONF, CLOUDS_YAML, Setting};
use super::{BlockStorageOptions, ConfigError, FileLocation, Interface, MetadataOptions, TopologyOptions};

/// The file format whose key names appear in errors.
#[derive(Debug, Clone, Copy)]
pub(super) enum FileFormat {
    CloudConf,
    CloudsYaml,
}

impl FileFormat {
    pub(super) fn key(self, setting: Setting) -> &'static str {
        let table = match self {
            Self::CloudConf => CLOUD_CONF,
            Self::CloudsYaml => CLOUDS_YAML,
        };
        keys::name_of(table, setting).unwrap_or_default()
    }

    pub(super) fn list(self, settings: &[Setting]) -> String {
        let names: Vec<&str> = settings.iter().map(|setting| self.key(*setting)).collect();
        names.join(", ")
    }
}

/// Placeholders of the project in the URL of a service.
pub(crate) const PROJECT_NAMES: [&str; 2] = ["%(project_id)s", "%(tenant_id)s"];

/// Options that do not concern the connection.
#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) block_storage: BlockStorageOptions,
    pub(super) topology: TopologyOptions,
    pub(super) metadata: MetadataOptions,
}

/// The value of a setting.
#[derive(Clone)]
pub(super) enum SettingValue {
    Text(SecretString),
    Flag(bool),
    Interface(Interface),
}

impl From<String> for SettingValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

#[derive(Clone, Default)]
pub(super) struct RawCloud {
    values: BTreeMap<Setting, SettingValue>,
    /// Keys without an effect.
    pub(super) ignored: Vec<IgnoredKey>,
}

impl RawCloud {
    /// Sets a value, or removes it. An empty text counts as unset.
    pub(super) fn set(&mut self, setting: Setting, value: Option<SettingValue>) {
        let is_empty =
            |value: &SettingValue| matches!(value, SettingValue::Text(text) if text.expose_secret().is_empty());
        match value.filter(|value| !is_empty(value)) {
            Some(value) => self.values.insert(setting, value),
            None => self.values.remove(&setting),
        };
    }

    pub(super) fn secret(&self, setting: Setting) -> Option<&SecretString> {
        match self.values.get(&setting) {
            Some(SettingValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn text(&self, setting: Setting) -> Option<&str> {
        self.secret(setting).map(ExposeSecret::expose_secret)
    }

    pub(super) fn has(&self, setting: Setting) -> bool {
        self.values.contains_key(&setting)
    }

    pub(super) fn flag(&self, setting: Setting) -> Option<bool> {
        match self.values.get(&setting) {
            Some(SettingValue::Flag(flag)) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn interface(&self, setting: Setting) -> Option<Interface> {
        match self.values.get(&setting) {
            Some(SettingValue::Interface(interface)) => Some(*interface),
            _ => None,
        }
    }

    pub(super) fn owned(&self, setting: Setting) -> Option<String> {
        self.text(setting).map(str::to_owned)
    }

    pub(super) fn path(&self, setting: Setting) -> Option<PathBuf> {
        self.text(setting).map(PathBuf::from)
    }

    /// Adds settings of `other` that are unset here.
    pub(super) fn or(mut self, other: Self) -> Self {
        for (setting, value) in other.values {
            self.values.entry(setting).or_insert(value);
        }
        self.ignored.extend(other.ignored);
        self
    }

    /// Fills unset settings from an entry of a `clouds.yaml`, as cinder-csi-plugin does. The login of a named entry
    /// replaces the own one.
    pub(super) fn complete(&mut self, yaml: Self, is_named: bool) {
        if is_named {
            self.take(Setting::is_of_login);
        }
        *self = std::mem::take(self).or(yaml);
        if !is_named {
            // cinder-csi-plugin reads the type of the login of a named entry only.
            self.set(Setting::AuthType, None);
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Setting> {
        self.values.keys().copied()
    }

    /// Removes and returns the settings for which `is_meant` is true.
    pub(super) fn take(&mut self, is_meant: impl Fn(Setting) -> bool) -> Vec<Setting> {
        let removed: Vec<Setting> = self.values.keys().copied().filter(|key| is_meant(*key)).collect();
        for setting in &removed {
            self.values.remove(setting);
        }
        removed
    }
}

/// The location of the settings, for errors.
pub(super) struct ReadContext<'a> {
    pub(super) file: &'a str,
    pub(super) names: FileFormat,
}

impl ReadContext<'_> {
    pub(super) fn place(&self) -> FileLocation {
        FileLocation {
            file: self.file.to_owned(),
            line: 0,
        }
    }

    pub(super) fn missing(&self, setting: Setting, remedy: &str) -> ConfigError {
        ConfigError::Missing {
            file: self.file.to_owned(),
            key: self.names.key(setting).to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    pub(super) fn bad(&self, setting: Setting, reason: &str) -> ConfigError {
        ConfigError::BadValue {
            place: self.place(),
            key: self.names.key(setting).to_owned(),
            reason: reason.to_owned(),
        }
    }

    pub(super) fn unsupported(&self, what: String, remedy: String) -> ConfigError {
        ConfigError::Unsupported {
            place: self.place(),
            what,
            remedy,
        }
    }

    pub(super) fn check_address(&self, setting: Setting, url: &str) -> Result<(), ConfigError> {
        if !(url.starts_with("https://") || url.starts_with("http://")) {
            return Err(self.bad(setting, "must begin with https:// or http://"));
        }
        if has_user(url) {
            let reason = "must not hold a user or a password (the text before an @ in front of the host): addresses are shown in logs; \
                          name them by keys of their own";
            return Err(self.bad(setting, reason));
        }
        Ok(())
    }
}

/// Whether the URL contains a user, or a user and a password.
fn has_user(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    // Parsers of web addresses treat a backslash as a slash.
    let host = host.trim_start_matches(['/', '\\']);
    host.split(['/', '\\', '?', '#'])
        .next()
        .is_some_and(|host| host.contains('@'))
}

/// The interface by its name in a catalog of version 3.
pub(super) fn interface(text: &str) -> Option<Interface> {
    match text {
        "public" => Some(Interface::Public),
        "internal" => Some(Interface::Internal),
        "admin" => Some(Interface::Admin),
        _ => None,
    }
}
