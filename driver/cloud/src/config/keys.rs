// SPDX-License-Identifier: Apache-2.0
//! What a `cloud.conf` may say.

/// Every key that is read, by its section. Others have no effect and are warned of; the sections of the cloud controller manager are
/// not among them.
pub const CLOUD_CONF_KEYS: [(&str, &[&str]); 4] = [
    (
        "global",
        &[
            "auth-url",
            "username",
            "user-id",
            "password",
            "tenant-id",
            "tenant-name",
            "domain-id",
            "domain-name",
            "tenant-domain-id",
            "tenant-domain-name",
            "user-domain-id",
            "user-domain-name",
            "application-credential-id",
            "application-credential-name",
            "application-credential-secret",
            "region",
            "os-endpoint-type",
            "ca-file",
            "tls-insecure",
            "also-public-roots",
            "allow-http-endpoints",
            "use-clouds",
            "clouds-file",
            "cloud",
            "trust-id",
            "trustee-id",
            "trustee-password",
            "token",
            "cert-file",
            "key-file",
        ],
    ),
    (
        "blockstorage",
        &[
            "node-volume-attach-limit",
            "rescan-on-resize",
            "ignore-volume-az",
            "ignore-volume-microversion",
            "bs-version",
            "trust-device-path",
        ],
    ),
    ("topology", &["segment", "zone-map"]),
    ("metadata", &["search-order", "request-timeout"]),
];

/// Whether a section, in lower case, has such a key.
pub(super) fn is_known(section: &str, key: &str) -> bool {
    let found = CLOUD_CONF_KEYS.iter().find(|(name, _)| *name == section);
    found.is_some_and(|(_, keys)| keys.contains(&key))
}
