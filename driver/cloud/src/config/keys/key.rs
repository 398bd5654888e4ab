// SPDX-License-Identifier: Apache-2.0
//! A row of the table of keys.

/// A key of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigKey {
    pub place: KeyPlace,
    /// The names, in the order of increasing precedence. The last one is the usual name.
    pub names: &'static [&'static str],
    /// The names that cinder-csi-plugin reads: all of a `cloud.conf`, and those that gophercloud reads of a
    /// `clouds.yaml`.
    pub go_names: &'static [&'static str],
    pub kind: KeyKind,
    pub precedence: Precedence,
    pub effect: KeyEffect,
    /// The setting of the key; `None` for a key that sets nothing.
    pub setting: Option<Setting>,
}

impl ConfigKey {
    pub fn name(&self) -> &'static str {
        self.names.last().copied().unwrap_or_default()
    }

    /// All names except the usual one, the strongest first.
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
    /// A signed number of 64 bits, decimal or with `0x`.
    Integer,
    /// A duration of Go, such as `1m30s`.
    Duration,
    /// Names, separated by commas.
    List,
    /// `LEFT=RIGHT`; the key may be repeated.
    Pair,
    /// A boolean of YAML 1.1: `true`, `yes`, `on`, `false`, `no`, `off`, without quotes.
    YamlBoolean,
    /// A boolean of YAML 1.1, or the path of a file with the authorities to trust.
    Verify,
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

/// The value that counts where a key is present several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precedence {
    /// The last one of the file or files.
    Last,
    /// The value in `auth` counts, else the one outside `auth`.
    InsideAuth,
    /// The value outside `auth` counts, else the one in `auth`.
    OutsideAuth,
    /// The key is an extension of this driver, and the last value counts.
    Own,
}

/// The effect of a key in this driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEffect {
    /// The key is used as in the original.
    Used,
    /// The key belongs to another service or program, and is skipped without a warning.
    OtherService,
    /// The key has no effect in the original either; the reason.
    Obsolete(&'static str),
    /// The key changes the destination of the login or the data and is not supported, so the file is rejected; the
    /// remedy.
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
    /// Whether the setting is a part of the login that gophercloud takes only from a `clouds.yaml`, once `cloud`
    /// names an entry of it.
    pub(in super::super) fn is_of_login(self) -> bool {
        (self > Self::AuthUrl && self < Self::TrustId) || matches!(self, Self::Token | Self::AuthType)
    }
}
