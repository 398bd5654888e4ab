// SPDX-License-Identifier: Apache-2.0
//! The keys of a `cloud.conf`, and the setting that each of them decides.

/// Something that a configuration decides for one cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Setting {
    /// The address of Keystone.
    AuthUrl,
    /// The region of the catalogue.
    Region,
    /// The kind of the endpoints.
    EndpointType,
    /// The certificates of the authorities.
    Authorities,
    /// The certificate and the key of the client.
    ClientCertificate,
    /// Whether certificates are not verified.
    SkipsVerification,
    /// Whether public authorities are trusted as well.
    PublicRoots,
    /// Whether endpoints without TLS are used after a login with TLS.
    HttpEndpoints,
    /// The number of volumes of a node.
    AttachLimit,
    /// Whether nodes scan raw devices that grew.
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
    /// A part of the login. Logins are compared by their kind.
    Login,
    /// Leads to a clouds.yaml.
    CloudsFile,
    /// Decides a setting.
    Setting(Setting),
    /// Has no effect in cinder-csi-plugin.
    Unused,
}

/// A key of a `cloud.conf`.
#[derive(Debug)]
pub(super) struct KeyRow {
    pub(super) section: &'static str,
    pub(super) key: &'static str,
    pub(super) usage: KeyUse,
}

const fn row(section: &'static str, key: &'static str, usage: KeyUse) -> KeyRow {
    KeyRow { section, key, usage }
}

/// Sections of the cloud controller manager, which shares the file.
pub(super) const FOREIGN: [&str; 4] = ["networking", "loadbalancer", "loadbalancerclass", "route"];

const GLOBAL: &str = "global";
const BLOCK_STORAGE: &str = "blockstorage";
const TOPOLOGY: &str = "topology";
const METADATA: &str = "metadata";

/// All keys that one of the two drivers knows.
pub(super) const KEYS: [KeyRow; 46] = [
    row(GLOBAL, "auth-url", KeyUse::Setting(Setting::AuthUrl)),
    row(GLOBAL, "username", KeyUse::Login),
    row(GLOBAL, "user-id", KeyUse::Login),
    row(GLOBAL, "password", KeyUse::Login),
    row(GLOBAL, "tenant-id", KeyUse::Login),
    row(GLOBAL, "tenant-name", KeyUse::Login),
    row(GLOBAL, "domain-id", KeyUse::Login),
    row(GLOBAL, "domain-name", KeyUse::Login),
    row(GLOBAL, "tenant-domain-id", KeyUse::Login),
    row(GLOBAL, "tenant-domain-name", KeyUse::Login),
    row(GLOBAL, "user-domain-id", KeyUse::Login),
    row(GLOBAL, "user-domain-name", KeyUse::Login),
    row(GLOBAL, "application-credential-id", KeyUse::Login),
    row(GLOBAL, "application-credential-name", KeyUse::Login),
    row(GLOBAL, "application-credential-secret", KeyUse::Login),
    row(GLOBAL, "trust-id", KeyUse::Login),
    row(GLOBAL, "trustee-id", KeyUse::Login),
    row(GLOBAL, "trustee-password", KeyUse::Login),
    row(GLOBAL, "token", KeyUse::Login),
    row(GLOBAL, "region", KeyUse::Setting(Setting::Region)),
    row(GLOBAL, "os-endpoint-type", KeyUse::Setting(Setting::EndpointType)),
    row(GLOBAL, "ca-file", KeyUse::Setting(Setting::Authorities)),
    row(GLOBAL, "cafilecontents", KeyUse::Setting(Setting::Authorities)),
    row(GLOBAL, "tls-insecure", KeyUse::Setting(Setting::SkipsVerification)),
    row(GLOBAL, "also-public-roots", KeyUse::Setting(Setting::PublicRoots)),
    row(GLOBAL, "block-storage-endpoint-override", KeyUse::Unused),
    row(GLOBAL, "block-storage-interface", KeyUse::Unused),
    row(GLOBAL, "compute-endpoint-override", KeyUse::Unused),
    row(GLOBAL, "compute-interface", KeyUse::Unused),
    row(GLOBAL, "compute-region", KeyUse::Unused),
    row(GLOBAL, "allow-http-endpoints", KeyUse::Setting(Setting::HttpEndpoints)),
    row(GLOBAL, "cert-file", KeyUse::Setting(Setting::ClientCertificate)),
    row(GLOBAL, "key-file", KeyUse::Setting(Setting::ClientCertificate)),
    row(GLOBAL, "use-clouds", KeyUse::CloudsFile),
    row(GLOBAL, "clouds-file", KeyUse::CloudsFile),
    row(GLOBAL, "cloud", KeyUse::CloudsFile),
    row(
        BLOCK_STORAGE,
        "node-volume-attach-limit",
        KeyUse::Setting(Setting::AttachLimit),
    ),
    row(BLOCK_STORAGE, "rescan-on-resize", KeyUse::Setting(Setting::Rescan)),
    row(BLOCK_STORAGE, "ignore-volume-az", KeyUse::Setting(Setting::IgnoreZones)),
    row(
        BLOCK_STORAGE,
        "ignore-volume-microversion",
        KeyUse::Setting(Setting::IgnoreMicroversions),
    ),
    row(BLOCK_STORAGE, "bs-version", KeyUse::Unused),
    row(BLOCK_STORAGE, "trust-device-path", KeyUse::Unused),
    row(TOPOLOGY, "segment", KeyUse::Setting(Setting::Segments)),
    row(TOPOLOGY, "zone-map", KeyUse::Setting(Setting::ZoneMap)),
    row(METADATA, "search-order", KeyUse::Setting(Setting::SearchOrder)),
    row(METADATA, "request-timeout", KeyUse::Unused),
];

/// The row of a key, by the names in lower case.
pub(super) fn row_of(section: &str, key: &str) -> Option<&'static KeyRow> {
    KEYS.iter().find(|row| row.section == section && row.key == key)
}

/// A section as people write it.
pub(super) fn section_name(section: &str) -> &str {
    match section {
        GLOBAL => "Global",
        BLOCK_STORAGE => "BlockStorage",
        TOPOLOGY => "Topology",
        METADATA => "Metadata",
        other => other,
    }
}

impl Setting {
    /// The first key of a `cloud.conf` that decides it, with its section.
    pub(super) fn conf_key(self) -> String {
        let row = KEYS.iter().find(|row| row.usage == KeyUse::Setting(self));
        row.map_or_else(String::new, |row| {
            format!("[{}] {}", section_name(row.section), row.key)
        })
    }

    /// The key of a clouds.yaml that decides it, if there is one.
    pub(super) fn yaml_key(self) -> Option<&'static str> {
        match self {
            Self::AuthUrl => Some("auth.auth_url"),
            Self::Region => Some("region_name"),
            Self::EndpointType => Some("interface"),
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

    /// Whether only nodes use it.
    pub(super) fn is_of_nodes(self) -> bool {
        matches!(self, Self::AttachLimit | Self::Rescan | Self::SearchOrder)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cinder_cloud::config::keys::CLOUD_CONF;

    use super::*;

    #[test]
    fn every_key_of_this_driver_has_a_row() {
        let known = CLOUD_CONF
            .iter()
            .filter_map(|row| Some((row.place.section()?.to_lowercase(), row)));
        let known: BTreeSet<_> = known
            .flat_map(|(section, row)| row.names.iter().map(move |key| (section.clone(), (*key).to_owned())))
            .collect();
        let rows: BTreeSet<_> = KEYS
            .iter()
            .map(|row| (row.section.to_owned(), row.key.to_owned()))
            .collect();
        assert_eq!(rows.len(), KEYS.len());
        let missing: Vec<_> = known.difference(&rows).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
