// SPDX-License-Identifier: Apache-2.0
//! Keys of the other installation's `cloud.conf` that have another place here, or no effect.

use std::collections::BTreeMap;

use cinder_cloud::config::ConfKey;
use cinder_csi_crds::{CinderCSIDriverSpec, Cloud};

use super::{AdoptionFinding, AdoptionFindingReason, Sample, finding};
use crate::cluster::is_object_name;

/// A key that the operator does not take from the file as it is.
struct MovedKey {
    section: &'static str,
    key: &'static str,
    /// Whether the spec says the same in its own place.
    is_said: fn(&CinderCSIDriverSpec) -> bool,
    message: &'static str,
    remedy: &'static str,
}

const NO_FILE: &str = "the pods of this driver have no such file, and condition Degraded says that it is missing";
const USE_CLOUDS: &str = "the clouds.yaml that it reads is not in the Secret, so that the file cannot be used";
const CLOUDS_YAML: &str = "Put clouds.yaml into the Secret and name its key in spec.clouds[].credentialsSecretRef.key";

const MOVED: &[MovedKey] = &[
    MovedKey {
        section: "global",
        key: "ca-file",
        is_said: |spec| has(spec, |cloud| cloud.ca_bundle_ref.is_some()),
        message: NO_FILE,
        remedy: "Name the certificates in spec.clouds[].caBundleRef",
    },
    MovedKey {
        section: "global",
        key: "cert-file",
        is_said: |spec| has(spec, |cloud| cloud.client_cert_secret_ref.is_some()),
        message: NO_FILE,
        remedy: "Name a Secret of type kubernetes.io/tls in spec.clouds[].clientCertSecretRef",
    },
    MovedKey {
        section: "global",
        key: "key-file",
        is_said: |spec| has(spec, |cloud| cloud.client_cert_secret_ref.is_some()),
        message: NO_FILE,
        remedy: "Name a Secret of type kubernetes.io/tls in spec.clouds[].clientCertSecretRef",
    },
    MovedKey {
        section: "global",
        key: "use-clouds",
        is_said: reads_clouds_yaml,
        message: USE_CLOUDS,
        remedy: CLOUDS_YAML,
    },
    MovedKey {
        section: "global",
        key: "clouds-file",
        is_said: reads_clouds_yaml,
        message: USE_CLOUDS,
        remedy: CLOUDS_YAML,
    },
    MovedKey {
        section: "blockstorage",
        key: "node-volume-attach-limit",
        is_said: |spec| spec.block_storage.node_volume_attach_limit.is_some(),
        message: "the key has no effect: a node counts what its bus has room for",
        remedy: "Set spec.blockStorage.nodeVolumeAttachLimit where the count of the node is not wanted",
    },
    MovedKey {
        section: "blockstorage",
        key: "rescan-on-resize",
        is_said: |spec| spec.block_storage.rescan_on_resize.is_some(),
        message: "the key has no effect: nodes look again at a raw device that grew",
        remedy: "Set spec.blockStorage.rescanOnResize to false where that is not wanted",
    },
    MovedKey {
        section: "metadata",
        key: "search-order",
        is_said: |_| false,
        message: "the key has no effect: nodes read no cloud.conf, and ask the config drive first, then the metadata service",
        remedy: "Add --search-order to the node's container by spec.overrides (docs/overrides.md)",
    },
];

fn has(spec: &CinderCSIDriverSpec, is_said: impl Fn(&Cloud) -> bool) -> bool {
    spec.clouds.iter().any(is_said)
}

fn reads_clouds_yaml(spec: &CinderCSIDriverSpec) -> bool {
    has(spec, |cloud| {
        let key = &cloud.credentials_secret_ref.key;
        [".yaml", ".yml"].iter().any(|ending| key.ends_with(ending))
    })
}

/// What of the keys changes.
pub(super) fn findings(spec: &CinderCSIDriverSpec, keys: &[(String, ConfKey)]) -> Vec<AdoptionFinding> {
    let mut places: BTreeMap<&ConfKey, Sample> = BTreeMap::new();
    for (secret, key) in keys {
        places.entry(key).or_default().add(secret);
    }
    let mut findings: Vec<AdoptionFinding> = places
        .iter()
        .filter_map(|(key, secrets)| {
            let (message, remedy) = judged(spec, key)?;
            let subject = format!("[{}] {}", section(key), key.key);
            Some(finding(
                AdoptionFindingReason::ConfigurationKey,
                subject,
                secrets,
                message,
                remedy,
            ))
        })
        .collect();
    let mut named: BTreeMap<&str, Sample> = BTreeMap::new();
    for (secret, key) in keys.iter().filter(|(_, key)| key.section == "global") {
        if let Some(cloud) = key
            .cloud
            .as_deref()
            .filter(|cloud| !has(spec, |one| one.section_name() == *cloud))
        {
            let secrets = named.entry(cloud).or_default();
            if secrets.names.last() != Some(secret) {
                secrets.add(secret);
            }
        }
    }
    findings.extend(named.iter().map(|(cloud, secrets)| {
        finding(
            AdoptionFindingReason::ConfigurationKey,
            format!("[Global {cloud:?}]"),
            secrets,
            "the operator gives the driver the clouds of spec.clouds, and this one is not among them",
            if is_dns_label(cloud) {
                format!("Add an entry with the name {cloud} to spec.clouds, with a Secret that has this section as [Global]")
            } else {
                format!(
                    "Add an entry with section {cloud:?} and a name of its own to spec.clouds, with a Secret that has this section as [Global]"
                )
            },
        )
    }));
    findings
}

/// Whether a text can be the name of an entry of spec.clouds.
pub(super) fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && !text.contains('.') && is_object_name(text)
}

fn judged(spec: &CinderCSIDriverSpec, key: &ConfKey) -> Option<(&'static str, &'static str)> {
    if !key.is_known {
        return Some((
            "the key is not known to this driver and has no effect",
            "Take it out, or correct it: docs/clouds.md has the keys",
        ));
    }
    let is_it = |moved: &&MovedKey| moved.section == key.section && moved.key == key.key;
    let moved = MOVED.iter().find(is_it).filter(|moved| !(moved.is_said)(spec))?;
    Some((moved.message, moved.remedy))
}

/// A section as people write it.
fn section(key: &ConfKey) -> String {
    let name = match key.section.as_str() {
        "global" => "Global",
        "blockstorage" => "BlockStorage",
        "metadata" => "Metadata",
        "topology" => "Topology",
        other => other,
    };
    match &key.cloud {
        Some(cloud) => format!("{name} {cloud:?}"),
        None => name.to_owned(),
    }
}
