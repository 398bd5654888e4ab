// SPDX-License-Identifier: Apache-2.0
//! The settings that the check compares, and the keys of a `cloud.conf` that determine them.

use cinder_cloud::config::keys::{CLOUD_CONF, ConfigKey, Setting as Key};

/// A setting of one cloud in a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Setting {
    /// The address of Keystone.
    AuthUrl,
    /// The region in the service catalogue.
    Region,
    /// The type of the endpoints.
    EndpointType,
    /// The address of Cinder, in place of the one in the catalogue.
    BlockStorageEndpoint,
    /// The type of Cinder's endpoint.
    BlockStorageInterface,
    /// The address of Nova, in place of the one in the catalogue.
    ComputeEndpoint,
    /// The region of Nova.
    ComputeRegion,
    /// The type of Nova's endpoint.
    ComputeInterface,
    /// The CA certificates.
    Authorities,
    /// The certificate and the key of the client.
    ClientCertificate,
    /// Whether certificates are not verified.
    SkipsVerification,
    /// Whether public authorities are trusted as well.
    PublicRoots,
    /// Whether endpoints without TLS are used after a login with TLS.
    HttpEndpoints,
    /// The maximum number of volumes on a node.
    AttachLimit,
    /// Whether nodes rescan expanded raw devices.
    Rescan,
    /// Whether the zones of volumes are ignored.
    IgnoreZones,
    /// Whether microversions of Cinder are not used.
    IgnoreMicroversions,
    /// The sources of a node's identity, in their order.
    SearchOrder,
    /// Topology segments of a cloud.
    Segments,
    /// Zones of Cinder by zones of Nova.
    ZoneMap,
}

/// The use of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyUse {
    /// A part of the login.
    Login,
    /// References a clouds.yaml.
    CloudsFile,
    /// Determines a setting.
    Setting(Setting),
    /// Has no effect in cinder-csi-plugin.
    Unused,
}

/// Returns how the check uses a key.
pub(super) fn key_use(row: &ConfigKey) -> KeyUse {
    let Some(setting) = row.setting else {
        return KeyUse::Unused;
    };
    match setting {
        Key::Username
        | Key::UserId
        | Key::Password
        | Key::ProjectId
        | Key::ProjectName
        | Key::DomainId
        | Key::DomainName
        | Key::ProjectDomainId
        | Key::ProjectDomainName
        | Key::UserDomainId
        | Key::UserDomainName
        | Key::DefaultDomain
        | Key::DefaultDomainId
        | Key::DefaultDomainName
        | Key::CredentialId
        | Key::CredentialName
        | Key::CredentialSecret
        | Key::TrustId
        | Key::TrusteeId
        | Key::TrusteePassword
        | Key::Token
        | Key::AuthType => KeyUse::Login,
        Key::UseClouds | Key::CloudsFile | Key::CloudName => KeyUse::CloudsFile,
        Key::AuthUrl => KeyUse::Setting(Setting::AuthUrl),
        Key::Region | Key::Regions => KeyUse::Setting(Setting::Region),
        Key::Interface => KeyUse::Setting(Setting::EndpointType),
        Key::CaFile | Key::CaPem => KeyUse::Setting(Setting::Authorities),
        Key::CertFile | Key::KeyFile => KeyUse::Setting(Setting::ClientCertificate),
        Key::Verify | Key::Insecure => KeyUse::Setting(Setting::SkipsVerification),
        Key::AlsoPublicRoots => KeyUse::Setting(Setting::PublicRoots),
        Key::AllowHttpEndpoints => KeyUse::Setting(Setting::HttpEndpoints),
        Key::NodeVolumeAttachLimit => KeyUse::Setting(Setting::AttachLimit),
        Key::RescanOnResize => KeyUse::Setting(Setting::Rescan),
        Key::IgnoreVolumeAz => KeyUse::Setting(Setting::IgnoreZones),
        Key::IgnoreVolumeMicroversion => KeyUse::Setting(Setting::IgnoreMicroversions),
        Key::SearchOrder => KeyUse::Setting(Setting::SearchOrder),
        Key::Segment => KeyUse::Setting(Setting::Segments),
        Key::ZoneMap => KeyUse::Setting(Setting::ZoneMap),
        // Only this driver reads the keys of single services. The region of Cinder is that of the cloud.
        Key::BlockStorageEndpoint => KeyUse::Setting(Setting::BlockStorageEndpoint),
        Key::BlockStorageInterface => KeyUse::Setting(Setting::BlockStorageInterface),
        Key::ComputeEndpoint => KeyUse::Setting(Setting::ComputeEndpoint),
        Key::ComputeRegion => KeyUse::Setting(Setting::ComputeRegion),
        Key::ComputeInterface => KeyUse::Setting(Setting::ComputeInterface),
        // The last one has no counterpart in this driver.
        Key::BlockStorageRegion | Key::RequestTimeout => KeyUse::Unused,
    }
}

/// Returns the spelling of a section that users write.
pub(super) fn section_name(section: &str) -> &str {
    let known = CLOUD_CONF.iter().filter_map(|row| row.place.section());
    known
        .into_iter()
        .find(|name| name.eq_ignore_ascii_case(section))
        .unwrap_or(section)
}

/// Returns a key of a `cloud.conf` with its section.
pub(super) fn display_key(row: &ConfigKey) -> String {
    format!("[{}] {}", row.place.section().unwrap_or_default(), row.name())
}

impl Setting {
    /// Returns the first key of a `cloud.conf` that determines the setting, with its section.
    pub(super) fn conf_key(self) -> String {
        let row = CLOUD_CONF.iter().find(|row| key_use(row) == KeyUse::Setting(self));
        row.map_or_else(String::new, display_key)
    }

    /// Returns the key of a clouds.yaml that determines the setting, if it exists.
    pub(super) fn yaml_key(self) -> Option<&'static str> {
        match self {
            Self::AuthUrl => Some("auth.auth_url"),
            Self::Region => Some("region_name"),
            Self::EndpointType => Some("interface"),
            Self::BlockStorageEndpoint => Some("block_storage_endpoint_override"),
            Self::BlockStorageInterface => Some("block_storage_interface"),
            Self::ComputeEndpoint => Some("compute_endpoint_override"),
            Self::ComputeRegion => Some("compute_region_name"),
            Self::ComputeInterface => Some("compute_interface"),
            Self::Authorities => Some("cacert"),
            Self::ClientCertificate => Some("cert"),
            Self::SkipsVerification => Some("verify"),
            Self::PublicRoots => Some("also_public_roots"),
            Self::HttpEndpoints => Some("allow_http_endpoints"),
            Self::AttachLimit
            | Self::Rescan
            | Self::IgnoreZones
            | Self::IgnoreMicroversions
            | Self::SearchOrder
            | Self::Segments
            | Self::ZoneMap => None,
        }
    }

    /// Returns the setting of all services that a setting of one service overrides.
    pub(super) fn common(self) -> Option<Self> {
        match self {
            Self::ComputeRegion => Some(Self::Region),
            Self::BlockStorageInterface | Self::ComputeInterface => Some(Self::EndpointType),
            _ => None,
        }
    }

    /// Whether the setting is about one service.
    pub(super) fn is_of_service(self) -> bool {
        self.common().is_some() || self.is_endpoint()
    }

    /// Whether the setting is the address of a service.
    pub(super) fn is_endpoint(self) -> bool {
        matches!(self, Self::BlockStorageEndpoint | Self::ComputeEndpoint)
    }

    /// Whether only nodes use the setting.
    pub(super) fn is_of_nodes(self) -> bool {
        matches!(self, Self::AttachLimit | Self::Rescan | Self::SearchOrder)
    }
}
