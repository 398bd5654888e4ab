// SPDX-License-Identifier: Apache-2.0
//! The one table of keys: the keys of a `cloud.conf` and of a cloud in a `clouds.yaml`, and the meaning of each key.
//!
//! The readers of both formats use this table. The reference page of the keys, the settings of the driver and the check of a
//! migration use the same rows:
//!
//! * [`ConfigKey::names`] are the key and its aliases, in the order in which they count,
//! * [`ConfigKey::kind`] is the type that the original reads, with its spellings of true and false,
//! * [`ConfigKey::place`] is the section, or the mapping, that has the key,
//! * [`ConfigKey::precedence`] decides which place counts where a key is allowed in two,
//! * [`ConfigKey::effect`] is the effect of the key in this driver.

mod cloud_conf;
mod clouds_yaml;
#[cfg(test)]
mod page;
mod services;

pub use cloud_conf::CLOUD_CONF;
pub use clouds_yaml::CLOUDS_YAML;
pub(super) use services::is_of_other_service;

/// A key of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigKey {
    pub place: KeyPlace,
    /// The names, in the order in which they count: the last one that is present. The last is the usual one.
    pub names: &'static [&'static str],
    /// The names that cinder-csi-plugin reads: all of a `cloud.conf`, and the ones that gophercloud knows of a `clouds.yaml`.
    pub go_names: &'static [&'static str],
    pub kind: KeyKind,
    pub precedence: Precedence,
    pub effect: KeyEffect,
    /// The setting of the key; `None` for a key that sets nothing.
    pub setting: Option<Setting>,
}

impl ConfigKey {
    /// The usual name.
    pub fn name(&self) -> &'static str {
        self.names.last().copied().unwrap_or_default()
    }

    /// All names but the usual one, the strongest first.
    pub fn aliases(&self) -> impl Iterator<Item = &'static str> {
        self.names.iter().rev().skip(1).copied()
    }

    /// Whether the key is an extension of this driver.
    pub fn is_own(&self) -> bool {
        self.precedence == Precedence::Own
    }
}

/// The part of a file that has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyPlace {
    /// Section `[Global]` of a `cloud.conf`.
    Global,
    /// Section `[BlockStorage]` of a `cloud.conf`.
    BlockStorage,
    /// Section `[Topology]` of a `cloud.conf`.
    Topology,
    /// Section `[Metadata]` of a `cloud.conf`.
    Metadata,
    /// The mapping `auth` of a cloud in a `clouds.yaml`, or the cloud itself.
    Login,
    /// A cloud in a `clouds.yaml`, outside `auth`.
    Cloud,
}

impl KeyPlace {
    /// The section of a `cloud.conf` as users write it.
    pub fn section(self) -> Option<&'static str> {
        match self {
            Self::Global => Some("Global"),
            Self::BlockStorage => Some("BlockStorage"),
            Self::Topology => Some("Topology"),
            Self::Metadata => Some("Metadata"),
            Self::Login | Self::Cloud => None,
        }
    }
}

/// The type of a value, as the original reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    Text,
    /// A text that is never shown.
    Secret,
    /// The path of a file.
    Path,
    /// `public`, `internal` or `admin`.
    Interface,
    /// A text. cinder-csi-plugin compares it with `true`, so that all other values mean false.
    OnlyTrue,
    /// `true`, `yes`, `on`, `1` and a key without `=` are true; `false`, `no`, `off` and `0` are false.
    Boolean,
    /// A number of 64 bits with a sign, decimal or with `0x`.
    Integer,
    /// A time of Go, such as `1m30s`.
    Duration,
    /// Names, separated by commas.
    List,
    /// `LEFT=RIGHT`; the key may be repeated.
    Pair,
    /// A boolean of YAML 1.1: `true`, `yes`, `on`, `false`, `no`, `off`, without quotes.
    YamlBoolean,
    /// A boolean of YAML 1.1, or the path of a file with the authorities to trust.
    Verify,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A list of names, or of mappings with `name` and `values`.
    Regions,
}

impl KeyKind {
    /// A description of the type, for the reference page.
    pub fn description(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Secret => "text, secret".to_owned(),
            Self::Path => "path of a file".to_owned(),
            Self::Interface => "`public`, `internal` or `admin`".to_owned(),
            Self::OnlyTrue => "`true` or `false`".to_owned(),
            Self::Boolean => "boolean: `true`, `yes`, `on`, `1` or no value; `false`, `no`, `off`, `0`".to_owned(),
            Self::Integer => "number, decimal or with `0x`".to_owned(),
            Self::Duration => "time, such as `1m30s`".to_owned(),
            Self::List => "names, separated by commas".to_owned(),
            Self::Pair => "`LEFT=RIGHT`; may be repeated".to_owned(),
            Self::YamlBoolean => "boolean without quotes".to_owned(),
            Self::Verify => "boolean without quotes, or path of a file".to_owned(),
            Self::OneOf(values) => {
                let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                values.join(", ")
            }
            Self::Regions => "list of names, or of mappings with `name` and `values`".to_owned(),
        }
    }
}

/// Which value counts where a key is present more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precedence {
    /// The last one of the file or files.
    Last,
    /// The value in `auth` counts, else the one outside `auth`.
    InsideAuth,
    /// The value outside `auth` counts, else the one in `auth`.
    BesideAuth,
    /// The key is an extension of this driver, and the last value counts.
    Own,
}

/// The effect of a key in this driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEffect {
    /// It is used as in the original.
    Used,
    /// It is about another service or program, and is skipped without a warning.
    OtherService,
    /// It has no effect in the original either; the reason.
    Obsolete(&'static str),
    /// It changes the destination of the login or the data and is not supported, so that the file is refused; the remedy.
    Refused(&'static str),
}

/// A setting that a key sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    AuthUrl,
    Username,
    UserId,
    Password,
    ProjectId,
    ProjectName,
    DomainId,
    DomainName,
    ProjectDomainId,
    ProjectDomainName,
    UserDomainId,
    UserDomainName,
    DefaultDomain,
    DefaultDomainId,
    DefaultDomainName,
    CredentialId,
    CredentialName,
    CredentialSecret,
    TrustId,
    TrusteeId,
    TrusteePassword,
    Token,
    AuthType,
    Region,
    Regions,
    Interface,
    BlockStorageEndpoint,
    BlockStorageRegion,
    BlockStorageInterface,
    ComputeEndpoint,
    ComputeRegion,
    ComputeInterface,
    CaFile,
    CaPem,
    CertFile,
    KeyFile,
    Verify,
    Insecure,
    AlsoPublicRoots,
    AllowHttpEndpoints,
    UseClouds,
    CloudsFile,
    CloudName,
    NodeVolumeAttachLimit,
    RescanOnResize,
    IgnoreVolumeAz,
    IgnoreVolumeMicroversion,
    Segment,
    ZoneMap,
    SearchOrder,
    RequestTimeout,
}

impl Setting {
    /// Whether it is a part of the login that gophercloud takes from a `clouds.yaml` alone, once `cloud` names an entry of it.
    pub(super) fn is_of_login(self) -> bool {
        (self > Self::AuthUrl && self < Self::TrustId) || matches!(self, Self::Token | Self::AuthType)
    }
}

/// Whether a section, in lower case, belongs to the cloud controller manager, which shares the file.
pub fn is_foreign_section(section: &str) -> bool {
    ["networking", "loadbalancer", "loadbalancerclass", "route"].contains(&section)
}

/// Returns the key of a section of a `cloud.conf`, both in lower case.
pub fn cloud_conf_key(section: &str, key: &str) -> Option<&'static ConfigKey> {
    CLOUD_CONF.iter().find(|row| {
        let of_section = row
            .place
            .section()
            .is_some_and(|name| name.eq_ignore_ascii_case(section));
        of_section && row.names.contains(&key)
    })
}

/// Returns the key of a cloud in a `clouds.yaml`, written with underscores: in the mapping `auth`, or outside it.
pub fn clouds_yaml_key(is_in_auth: bool, key: &str) -> Option<&'static ConfigKey> {
    let is_here = |row: &&ConfigKey| !is_in_auth || row.place == KeyPlace::Login;
    CLOUDS_YAML.iter().filter(is_here).find(|row| row.names.contains(&key))
}

/// The usual name of the key of a setting in one of the two tables.
pub(super) fn name_of(table: &'static [ConfigKey], setting: Setting) -> Option<&'static str> {
    let row = table.iter().find(|row| row.setting == Some(setting));
    row.map(ConfigKey::name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_stands_once_in_its_place() {
        for table in [CLOUD_CONF, CLOUDS_YAML] {
            let mut known = BTreeSet::new();
            for row in table {
                assert!(!row.names.is_empty(), "{row:?}");
                for name in row.names {
                    assert!(known.insert((row.place.section(), *name)), "{name} is there twice");
                }
                for name in row.go_names {
                    assert!(row.names.contains(name), "{name} is not a name of {}", row.name());
                }
            }
        }
    }

    #[test]
    fn only_used_keys_have_a_setting() {
        for row in CLOUD_CONF.iter().chain(CLOUDS_YAML) {
            assert_eq!(row.effect == KeyEffect::Used, row.setting.is_some(), "{row:?}");
        }
    }

    #[test]
    fn login_settings_exclude_address_trust_and_region() {
        let is_of_login = [
            Setting::Username,
            Setting::CredentialSecret,
            Setting::DefaultDomain,
            Setting::Token,
        ];
        assert!(is_of_login.iter().all(|setting| setting.is_of_login()));
        let is_other = [
            Setting::AuthUrl,
            Setting::TrustId,
            Setting::TrusteePassword,
            Setting::Region,
        ];
        assert!(!is_other.iter().any(|setting| setting.is_of_login()));
    }
}
