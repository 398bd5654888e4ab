// SPDX-License-Identifier: Apache-2.0
//! The settings of one cloud as a file has them, before they are understood. Both formats lead here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};

use super::ignored::IgnoredKey;
use super::keys::{self, CLOUD_CONF, CLOUDS_YAML, Setting};
use super::login::{self, Original};
use super::{
    BlockStorageOptions, ClientCertificate, CloudConfig, ConfigError, Interface, MetadataOptions, Place, Proxies,
    ServiceAccess, Services, Tls, TopologyOptions,
};

/// Which file format the names in an error are taken from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Names {
    CloudConf,
    CloudsYaml,
}

impl Names {
    /// The key of a setting.
    pub(super) fn key(self, setting: Setting) -> &'static str {
        let table = match self {
            Self::CloudConf => CLOUD_CONF,
            Self::CloudsYaml => CLOUDS_YAML,
        };
        keys::name_of(table, setting).unwrap_or_default()
    }

    /// Several keys in one text.
    pub(super) fn list(self, settings: &[Setting]) -> String {
        let names: Vec<&str> = settings.iter().map(|setting| self.key(*setting)).collect();
        names.join(", ")
    }
}

/// Placeholders of the project in the address of a service.
pub(crate) const PROJECT_NAMES: [&str; 2] = ["%(project_id)s", "%(tenant_id)s"];

/// What is not about the connection.
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
    /// Sets a value, or removes it. An empty text is as good as none.
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

    fn interface(&self, setting: Setting) -> Option<Interface> {
        match self.values.get(&setting) {
            Some(SettingValue::Interface(interface)) => Some(*interface),
            _ => None,
        }
    }

    fn owned(&self, setting: Setting) -> Option<String> {
        self.text(setting).map(str::to_owned)
    }

    fn path(&self, setting: Setting) -> Option<PathBuf> {
        self.text(setting).map(PathBuf::from)
    }

    /// Takes from `other` what is not set here.
    pub(super) fn or(mut self, other: Self) -> Self {
        for (setting, value) in other.values {
            self.values.entry(setting).or_insert(value);
        }
        self.ignored.extend(other.ignored);
        self
    }

    /// Removes the settings that `is_meant` chooses, and returns them.
    pub(super) fn take(&mut self, is_meant: impl Fn(Setting) -> bool) -> Vec<Setting> {
        let taken: Vec<Setting> = self.values.keys().copied().filter(|key| is_meant(*key)).collect();
        for setting in &taken {
            self.values.remove(setting);
        }
        taken
    }

    /// Understands the settings. `file` is named in errors, which also name the keys without effect.
    pub(super) fn understand(
        mut self,
        file: &str,
        names: Names,
        original: Original,
        options: Options,
    ) -> Result<CloudConfig, ConfigError> {
        let ignored = std::mem::take(&mut self.ignored);
        let understood = self.understand_all(&ReadContext { file, names }, original, options);
        let mut config = understood.map_err(|error| error.with_ignored(&ignored))?;
        config.warnings = ignored.iter().map(ToString::to_string).collect();
        Ok(config)
    }

    fn understand_all(
        &self,
        context: &ReadContext<'_>,
        original: Original,
        options: Options,
    ) -> Result<CloudConfig, ConfigError> {
        let auth = login::understand(self, context, original)?;
        let auth_url = self
            .owned(Setting::AuthUrl)
            .ok_or_else(|| context.missing(Setting::AuthUrl, "give the address of Keystone"))?;
        context.check_address(Setting::AuthUrl, &auth_url)?;
        Ok(CloudConfig {
            auth_url,
            auth,
            region: self.owned(Setting::Region),
            interface: self.interface(Setting::Interface).unwrap_or_default(),
            services: self.services(context)?,
            tls: Tls {
                ca_file: self.path(Setting::CaFile),
                ca_pem: self.owned(Setting::CaPem).filter(|_| !self.has(Setting::CaFile)),
                also_public_roots: self.flag(Setting::AlsoPublicRoots).unwrap_or_default(),
                insecure: self.flag(Setting::Insecure).unwrap_or_default(),
                client: self.client(context)?,
                ..Tls::default()
            },
            allow_http_endpoints: self.flag(Setting::AllowHttpEndpoints).unwrap_or_default(),
            block_storage: options.block_storage,
            topology: options.topology,
            metadata: options.metadata,
            proxies: Proxies::default(),
            warnings: Vec::new(),
        })
    }

    fn services(&self, context: &ReadContext<'_>) -> Result<Services, ConfigError> {
        let access = |endpoint, region, interface| -> Result<ServiceAccess, ConfigError> {
            let address = self.owned(endpoint);
            if let Some(address) = &address {
                context.check_address(endpoint, address)?;
                let rest = PROJECT_NAMES
                    .iter()
                    .fold(address.clone(), |rest, name| rest.replace(name, ""));
                if rest.contains("%(") {
                    return Err(context.bad(endpoint, "may have %(project_id)s and no other name in it"));
                }
            }
            Ok(ServiceAccess {
                endpoint: address,
                region: self.owned(region),
                interface: self.interface(interface),
            })
        };
        Ok(Services {
            block_storage: access(
                Setting::BlockStorageEndpoint,
                Setting::BlockStorageRegion,
                Setting::BlockStorageInterface,
            )?,
            compute: access(
                Setting::ComputeEndpoint,
                Setting::ComputeRegion,
                Setting::ComputeInterface,
            )?,
        })
    }

    fn client(&self, context: &ReadContext<'_>) -> Result<Option<ClientCertificate>, ConfigError> {
        match (self.path(Setting::CertFile), self.path(Setting::KeyFile)) {
            (Some(cert_file), Some(key_file)) => Ok(Some(ClientCertificate { cert_file, key_file })),
            (None, None) => Ok(None),
            // The certificate's file has the key too: the documented form of openstacksdk.
            (Some(file), None) if matches!(context.names, Names::CloudsYaml) => Ok(Some(ClientCertificate {
                cert_file: file.clone(),
                key_file: file,
            })),
            (Some(_), None) => {
                Err(context.missing(Setting::KeyFile, "it belongs to the certificate; they may be one file"))
            }
            (None, Some(_)) => Err(context.missing(Setting::CertFile, "it belongs to the key; they may be one file")),
        }
    }
}

/// The location of the settings, for errors.
pub(super) struct ReadContext<'a> {
    pub(super) file: &'a str,
    pub(super) names: Names,
}

impl ReadContext<'_> {
    pub(super) fn place(&self) -> Place {
        Place {
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

    fn check_address(&self, setting: Setting, url: &str) -> Result<(), ConfigError> {
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

/// Whether an address holds a user, or a user and a password.
fn has_user(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    // A backslash counts as a slash to whoever parses addresses of the web.
    let host = host.trim_start_matches(['/', '\\']);
    host.split(['/', '\\', '?', '#'])
        .next()
        .is_some_and(|host| host.contains('@'))
}

/// The interface by its name in a catalogue of version 3.
pub(super) fn interface(text: &str) -> Option<Interface> {
    match text {
        "public" => Some(Interface::Public),
        "internal" => Some(Interface::Internal),
        "admin" => Some(Interface::Admin),
        _ => None,
    }
}
