// SPDX-License-Identifier: Apache-2.0
//! The keys of a cloud in a `clouds.yaml`, as openstacksdk 4.18 and gophercloud read them. Names are written with
//! underscores.

use super::KeyKind::{Interface, OneOf, Path, Regions, Secret, Text, Verify, YamlBoolean};
use super::{ConfigKey, KeyEffect, KeyKind, KeyPlace, Precedence, Setting};

type KeyNames = &'static [&'static str];

const fn login(
    precedence: Precedence,
    names: KeyNames,
    go_names: KeyNames,
    kind: KeyKind,
    setting: Setting,
) -> ConfigKey {
    ConfigKey {
        place: KeyPlace::Login,
        names,
        go_names,
        kind,
        precedence,
        effect: KeyEffect::Used,
        setting: Some(setting),
    }
}

/// openstacksdk moves these keys into `auth`. The values outside `auth` override the values in it.
const fn outside_first(names: KeyNames, go_names: KeyNames, kind: KeyKind, setting: Setting) -> ConfigKey {
    login(Precedence::OutsideAuth, names, go_names, kind, setting)
}

/// keystoneauth's options, which openstacksdk takes from `auth` first.
const fn inside_first(names: KeyNames, go_names: KeyNames, kind: KeyKind, setting: Setting) -> ConfigKey {
    login(Precedence::InsideAuth, names, go_names, kind, setting)
}

const fn cloud(names: KeyNames, go_names: KeyNames, kind: KeyKind, setting: Setting) -> ConfigKey {
    ConfigKey {
        place: KeyPlace::Cloud,
        ..login(Precedence::Last, names, go_names, kind, setting)
    }
}

const fn own(names: KeyNames, setting: Setting) -> ConfigKey {
    ConfigKey {
        place: KeyPlace::Cloud,
        ..login(Precedence::Own, names, &[], YamlBoolean, setting)
    }
}

const fn other(names: KeyNames) -> ConfigKey {
    ConfigKey {
        place: KeyPlace::Cloud,
        names,
        go_names: &[],
        kind: Text,
        precedence: Precedence::Last,
        effect: KeyEffect::OtherService,
        setting: None,
    }
}

const fn refused(place: KeyPlace, names: KeyNames, kind: KeyKind, remedy: &'static str) -> ConfigKey {
    ConfigKey {
        place,
        kind,
        effect: KeyEffect::Refused(remedy),
        ..other(names)
    }
}

/// The supported types of login.
pub(in crate::config) const AUTH_TYPES: &[&str] =
    &["password", "v3password", "v3applicationcredential", "token", "v3token"];

const PROFILE: &str = "its defaults are not part of this program: write what it sets (auth_url, domains, region_name, interface) into the \
                       entry, and remove the key";
const SCOPE: &str = "the driver works in a project: remove the key and give project_name or project_id";
const SERVICE: &str = "it chooses another endpoint of the catalogue: remove the key, or give the address by block_storage_endpoint_override \
                       or compute_endpoint_override";

/// The keys of a cloud in a `clouds.yaml` that have a meaning. Keys of other services are skipped; other keys are
/// reported.
pub const CLOUDS_YAML: &[ConfigKey] = &[
    inside_first(&["auth_url"], &["auth_url"], Text, Setting::AuthUrl),
    inside_first(&["user_name", "username"], &["username"], Text, Setting::Username),
    inside_first(&["user_id"], &["user_id"], Text, Setting::UserId),
    inside_first(&["password"], &["password"], Secret, Setting::Password),
    outside_first(&["tenant_id", "project_id"], &["project_id"], Text, Setting::ProjectId),
    outside_first(
        &["tenant_name", "project_name"],
        &["project_name"],
        Text,
        Setting::ProjectName,
    ),
    outside_first(&["domain_id"], &["domain_id"], Text, Setting::DomainId),
    outside_first(&["domain_name"], &["domain_name"], Text, Setting::DomainName),
    outside_first(
        &["project_domain_id"],
        &["project_domain_id"],
        Text,
        Setting::ProjectDomainId,
    ),
    outside_first(
        &["project_domain_name"],
        &["project_domain_name"],
        Text,
        Setting::ProjectDomainName,
    ),
    outside_first(&["user_domain_id"], &["user_domain_id"], Text, Setting::UserDomainId),
    outside_first(
        &["user_domain_name"],
        &["user_domain_name"],
        Text,
        Setting::UserDomainName,
    ),
    inside_first(&["default_domain"], &["default_domain"], Text, Setting::DefaultDomain),
    inside_first(&["default_domain_id"], &[], Text, Setting::DefaultDomainId),
    inside_first(&["default_domain_name"], &[], Text, Setting::DefaultDomainName),
    inside_first(
        &["application_credential_id"],
        &["application_credential_id"],
        Text,
        Setting::CredentialId,
    ),
    inside_first(
        &["application_credential_name"],
        &["application_credential_name"],
        Text,
        Setting::CredentialName,
    ),
    inside_first(
        &["application_credential_secret"],
        &["application_credential_secret"],
        Secret,
        Setting::CredentialSecret,
    ),
    inside_first(&["trust_id"], &[], Text, Setting::TrustId),
    outside_first(&["auth_token", "token"], &["token"], Secret, Setting::Token),
    refused(KeyPlace::Login, &["system_scope"], Text, SCOPE),
    cloud(
        &["auth_plugin", "auth_type"],
        &["auth_type"],
        OneOf(AUTH_TYPES),
        Setting::AuthType,
    ),
    cloud(&["region_name"], &["region_name"], Text, Setting::Region),
    cloud(&["regions"], &[], Regions, Setting::Regions),
    cloud(
        &["interface", "endpoint_type"],
        &["interface", "endpoint_type"],
        Interface,
        Setting::Interface,
    ),
    cloud(
        &[
            "block_store_endpoint",
            "volume_endpoint",
            "volumev2_endpoint",
            "volumev3_endpoint",
            "block_storage_endpoint",
            "block_store_endpoint_override",
            "volume_endpoint_override",
            "volumev2_endpoint_override",
            "volumev3_endpoint_override",
            "block_storage_endpoint_override",
        ],
        &[],
        Text,
        Setting::BlockStorageEndpoint,
    ),
    cloud(
        &[
            "block_store_region_name",
            "volume_region_name",
            "volumev2_region_name",
            "volumev3_region_name",
            "block_storage_region_name",
        ],
        &[],
        Text,
        Setting::BlockStorageRegion,
    ),
    cloud(
        &[
            "block_store_endpoint_type",
            "block_store_interface",
            "volume_endpoint_type",
            "volume_interface",
            "volumev2_endpoint_type",
            "volumev2_interface",
            "volumev3_endpoint_type",
            "volumev3_interface",
            "block_storage_endpoint_type",
            "block_storage_interface",
        ],
        &[],
        Interface,
        Setting::BlockStorageInterface,
    ),
    cloud(
        &["compute_endpoint", "compute_endpoint_override"],
        &[],
        Text,
        Setting::ComputeEndpoint,
    ),
    cloud(&["compute_region_name"], &[], Text, Setting::ComputeRegion),
    cloud(
        &["compute_endpoint_type", "compute_interface"],
        &[],
        Interface,
        Setting::ComputeInterface,
    ),
    cloud(&["cacert"], &["cacert"], Path, Setting::CaFile),
    cloud(&["cert"], &["cert"], Path, Setting::CertFile),
    cloud(&["key"], &["key"], Path, Setting::KeyFile),
    cloud(&["verify"], &[], Verify, Setting::Verify),
    cloud(&["insecure"], &[], YamlBoolean, Setting::Insecure),
    own(&["also_public_roots"], Setting::AlsoPublicRoots),
    own(&["allow_http_endpoints"], Setting::AllowHttpEndpoints),
    refused(KeyPlace::Cloud, &["cloud", "profile"], Text, PROFILE),
    refused(
        KeyPlace::Cloud,
        &[
            "block_store_service_type",
            "volume_service_type",
            "volumev2_service_type",
            "volumev3_service_type",
            "block_storage_service_type",
        ],
        OneOf(&["block-storage", "volumev3", "block-store", "volume"]),
        SERVICE,
    ),
    refused(
        KeyPlace::Cloud,
        &[
            "block_store_service_name",
            "volume_service_name",
            "volumev2_service_name",
            "volumev3_service_name",
            "block_storage_service_name",
            "compute_service_name",
        ],
        Text,
        SERVICE,
    ),
    refused(KeyPlace::Cloud, &["compute_service_type"], OneOf(&["compute"]), SERVICE),
    other(&["api_timeout"]),
    other(&["broken_ipv6"]),
    other(&["cache"]),
    other(&["connect_retries"]),
    other(&["connect_retry_delay"]),
    other(&["disable_vendor_agent"]),
    other(&["external_network"]),
    other(&["floating_ip_source"]),
    other(&["force_ipv4"]),
    other(&["internal_network"]),
    other(&["message"]),
    other(&["metrics"]),
    other(&["nat_destination"]),
    other(&["nat_source"]),
    other(&["networks"]),
    other(&["prefer_ipv6"]),
    other(&["private"]),
    other(&["requires_floating_ip"]),
    other(&["secgroup_source"]),
    other(&["status"]),
    other(&["status_code_retries"]),
    other(&["timeout"]),
    other(&["use_direct_get"]),
    other(&["use_external_network"]),
    other(&["use_internal_network"]),
    other(&["vendor_hook"]),
    other(&["verbose_level"]),
];
