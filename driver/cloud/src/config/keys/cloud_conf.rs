// SPDX-License-Identifier: Apache-2.0
//! The keys of a `cloud.conf`, from the option structures of cinder-csi-plugin.

use super::KeyKind::{Boolean, Duration, Integer, Interface, List, OnlyTrue, Pair, Path, Secret, Text};
use super::KeyPlace::{BlockStorage, Global, Metadata, Topology};
use super::{ConfigKey, KeyEffect, KeyKind, KeyPlace, Precedence, Setting};

const fn used(place: KeyPlace, names: &'static [&'static str], kind: KeyKind, setting: Setting) -> ConfigKey {
    ConfigKey {
        place,
        names,
        go_names: names,
        kind,
        precedence: Precedence::Last,
        effect: KeyEffect::Used,
        setting: Some(setting),
    }
}

/// An extension of this driver. cinder-csi-plugin skips unknown keys.
const fn own(place: KeyPlace, names: &'static [&'static str], kind: KeyKind, setting: Setting) -> ConfigKey {
    ConfigKey {
        go_names: &[],
        precedence: Precedence::Own,
        ..used(place, names, kind, setting)
    }
}

const fn obsolete(place: KeyPlace, names: &'static [&'static str], reason: &'static str) -> ConfigKey {
    ConfigKey {
        place,
        names,
        go_names: &[],
        kind: Text,
        precedence: Precedence::Last,
        effect: KeyEffect::Obsolete(reason),
        setting: None,
    }
}

const OBSOLETE: &str = "the Go driver has not read it for years; many examples still have it";

/// The keys of a `cloud.conf` that have a meaning. Other keys have no effect and are reported.
pub const CLOUD_CONF: &[ConfigKey] = &[
    used(Global, &["auth-url"], Text, Setting::AuthUrl),
    used(Global, &["username"], Text, Setting::Username),
    used(Global, &["user-id"], Text, Setting::UserId),
    used(Global, &["password"], Secret, Setting::Password),
    used(Global, &["tenant-id"], Text, Setting::ProjectId),
    used(Global, &["tenant-name"], Text, Setting::ProjectName),
    used(Global, &["domain-id"], Text, Setting::DomainId),
    used(Global, &["domain-name"], Text, Setting::DomainName),
    used(Global, &["tenant-domain-id"], Text, Setting::ProjectDomainId),
    used(Global, &["tenant-domain-name"], Text, Setting::ProjectDomainName),
    used(Global, &["user-domain-id"], Text, Setting::UserDomainId),
    used(Global, &["user-domain-name"], Text, Setting::UserDomainName),
    used(Global, &["application-credential-id"], Text, Setting::CredentialId),
    used(Global, &["application-credential-name"], Text, Setting::CredentialName),
    used(
        Global,
        &["application-credential-secret"],
        Secret,
        Setting::CredentialSecret,
    ),
    used(Global, &["region"], Text, Setting::Region),
    used(Global, &["os-endpoint-type"], Interface, Setting::Interface),
    used(Global, &["ca-file"], Path, Setting::CaFile),
    used(Global, &["cafilecontents"], Text, Setting::CaPem),
    used(Global, &["tls-insecure"], OnlyTrue, Setting::Insecure),
    own(Global, &["also-public-roots"], Boolean, Setting::AlsoPublicRoots),
    own(Global, &["allow-http-endpoints"], Boolean, Setting::AllowHttpEndpoints),
    own(
        Global,
        &["block-storage-endpoint-override"],
        Text,
        Setting::BlockStorageEndpoint,
    ),
    own(
        Global,
        &["block-storage-interface"],
        Interface,
        Setting::BlockStorageInterface,
    ),
    own(Global, &["compute-endpoint-override"], Text, Setting::ComputeEndpoint),
    own(Global, &["compute-interface"], Interface, Setting::ComputeInterface),
    own(Global, &["compute-region"], Text, Setting::ComputeRegion),
    used(Global, &["use-clouds"], Boolean, Setting::UseClouds),
    used(Global, &["clouds-file"], Path, Setting::CloudsFile),
    used(Global, &["cloud"], Text, Setting::CloudName),
    used(Global, &["trust-id"], Text, Setting::TrustId),
    used(Global, &["trustee-id"], Text, Setting::TrusteeId),
    used(Global, &["trustee-password"], Secret, Setting::TrusteePassword),
    used(Global, &["token"], Secret, Setting::Token),
    used(Global, &["cert-file"], Path, Setting::CertFile),
    used(Global, &["key-file"], Path, Setting::KeyFile),
    used(
        BlockStorage,
        &["node-volume-attach-limit"],
        Integer,
        Setting::NodeVolumeAttachLimit,
    ),
    used(BlockStorage, &["rescan-on-resize"], Boolean, Setting::RescanOnResize),
    used(BlockStorage, &["ignore-volume-az"], Boolean, Setting::IgnoreVolumeAz),
    used(
        BlockStorage,
        &["ignore-volume-microversion"],
        Boolean,
        Setting::IgnoreVolumeMicroversion,
    ),
    obsolete(BlockStorage, &["bs-version"], OBSOLETE),
    obsolete(BlockStorage, &["trust-device-path"], OBSOLETE),
    own(Topology, &["segment"], Pair, Setting::Segment),
    own(Topology, &["zone-map"], Pair, Setting::ZoneMap),
    used(Metadata, &["search-order"], List, Setting::SearchOrder),
    used(Metadata, &["request-timeout"], Duration, Setting::RequestTimeout),
];
