// SPDX-License-Identifier: Apache-2.0
//! The settings of this driver from its spec and the credentials of the spec. Values of secrets are not stored.

use std::collections::BTreeMap;

use cinder_cloud::{
    CloudConfig,
    config::{Interface, ServiceAccess},
};
use cinder_csi_crds::{CinderCSIDriverSpec, Cloud, EndpointType};
use cinder_csi_driver::topology::REGION;

use super::addresses::{bare_address, bare_keystone};
use super::identity::Identity;
use super::keys::Setting;
use super::old_configuration::list;

/// The flag of nodes that determines [`Setting::SearchOrder`]. Only an override sets it.
const SEARCH_ORDER: &str = "--search-order=";

/// The settings in the credentials of one cloud of the spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCredentials {
    /// The object and the key.
    pub(super) place: String,
    pub(super) login: Identity,
    pub(super) values: BTreeMap<Setting, String>,
}

/// Value of a setting in this driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NewValue {
    Set(String),
    /// The default.
    Unset,
    /// The credentials were not read.
    Unknown,
}

impl NewValue {
    /// Returns the value or the default.
    pub(super) fn or<'a>(&'a self, default: &'a str) -> Option<&'a str> {
        match self {
            Self::Set(value) => Some(value),
            Self::Unset => Some(default),
            Self::Unknown => None,
        }
    }
}

impl From<Option<String>> for NewValue {
    fn from(value: Option<String>) -> Self {
        value.map_or(Self::Unset, Self::Set)
    }
}

impl NewCredentials {
    /// Reads the credentials of a cloud. The error contains no value.
    pub fn read(place: &str, cloud: &Cloud, text: &str) -> Result<Self, String> {
        let config = if is_clouds_yaml(cloud) {
            CloudConfig::from_clouds_yaml_in(text, &cloud.cloud_name, cloud.region.as_deref())
        } else {
            CloudConfig::from_cloud_conf(text)
        };
        let config = config.map_err(|error| error.to_string())?;
        Ok(Self {
            place: place.to_owned(),
            login: Identity::new(&config.auth),
            values: values(&config),
        })
    }
}

/// Whether the credentials of a cloud are a clouds.yaml.
pub(super) fn is_clouds_yaml(cloud: &Cloud) -> bool {
    let key = &cloud.credentials_secret_ref.key;
    [".yaml", ".yml"].iter().any(|ending| key.ends_with(ending))
}

fn values(config: &CloudConfig) -> BTreeMap<Setting, String> {
    let switch = |is_on: bool| is_on.then(|| true.to_string());
    let options = &config.block_storage;
    let all = [
        (Setting::AuthUrl, Some(bare_keystone(&config.auth_url))),
        (Setting::Region, config.region.clone()),
        (
            Setting::EndpointType,
            (config.interface != Interface::Public).then(|| config.interface.as_str().to_owned()),
        ),
        (Setting::BlockStorageEndpoint, address(&config.services.block_storage)),
        (
            Setting::BlockStorageInterface,
            interface(&config.services.block_storage),
        ),
        (Setting::ComputeEndpoint, address(&config.services.compute)),
        (Setting::ComputeRegion, config.services.compute.region.clone()),
        (Setting::ComputeInterface, interface(&config.services.compute)),
        (Setting::SkipsVerification, switch(config.tls.insecure)),
        (Setting::PublicRoots, switch(config.tls.also_public_roots)),
        (Setting::HttpEndpoints, switch(config.allow_http_endpoints)),
        (Setting::IgnoreZones, switch(options.ignore_volume_az)),
        (Setting::IgnoreMicroversions, switch(options.ignore_volume_microversion)),
        (Setting::Segments, pairs(&config.topology.segments)),
        (Setting::ZoneMap, pairs(&config.topology.zone_map)),
    ];
    let set = all.into_iter().filter_map(|(setting, value)| Some((setting, value?)));
    set.collect()
}

fn address(service: &ServiceAccess) -> Option<String> {
    service.endpoint.as_deref().map(bare_address)
}

fn interface(service: &ServiceAccess) -> Option<String> {
    service.interface.map(|interface| interface.as_str().to_owned())
}

fn pairs(pairs: &BTreeMap<String, String>) -> Option<String> {
    let words: Vec<String> = pairs.iter().map(|(left, right)| format!("{left}={right}")).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Returns the value of this driver for a cloud. The spec overrides the credentials.
pub(super) fn new_value(
    spec: &CinderCSIDriverSpec,
    cloud: &Cloud,
    credentials: Option<&NewCredentials>,
    setting: Setting,
) -> NewValue {
    let by_file = || match credentials {
        Some(credentials) => credentials.values.get(&setting).cloned().into(),
        None if is_clouds_yaml(cloud) && setting.yaml_key().is_none() => NewValue::Unset,
        None => NewValue::Unknown,
    };
    let by_spec = |value: Option<String>| value.map_or_else(by_file, NewValue::Set);
    let options = &spec.block_storage;
    match setting {
        Setting::AuthUrl
        | Setting::BlockStorageEndpoint
        | Setting::BlockStorageInterface
        | Setting::ComputeEndpoint
        | Setting::ComputeRegion
        | Setting::ComputeInterface
        | Setting::PublicRoots
        | Setting::HttpEndpoints => by_file(),
        Setting::Region => by_spec(cloud.region.clone()),
        Setting::EndpointType => by_spec(cloud.endpoint_type.map(endpoint_type)),
        // The pods have no file that the credentials reference.
        Setting::Authorities => cloud.ca_bundle_ref.as_ref().map(|bundle| bundle.name.clone()).into(),
        Setting::ClientCertificate => {
            let secret = cloud.client_cert_secret_ref.as_ref();
            secret.map(|secret| secret.name.clone()).into()
        }
        Setting::SkipsVerification => by_spec(cloud.insecure_skip_tls_verify.then(|| true.to_string())),
        Setting::AttachLimit => options.node_volume_attach_limit.map(|limit| limit.to_string()).into(),
        Setting::Rescan => NewValue::Set(options.rescan_on_resize.unwrap_or(true).to_string()),
        Setting::IgnoreZones => by_spec(options.ignore_volume_az.map(|flag| flag.to_string())),
        Setting::IgnoreMicroversions => by_spec(options.ignore_volume_microversion.map(|flag| flag.to_string())),
        Setting::SearchOrder => search_order(spec).into(),
        Setting::Segments => {
            let own = cloud.node_region.as_ref().map(|region| format!("{REGION}={region}"));
            merged(by_file(), own.into_iter().collect())
        }
        Setting::ZoneMap => {
            let zones = cloud.availability_zone_map.iter();
            merged(
                by_file(),
                zones.map(|(nova, cinder)| format!("{nova}={cinder}")).collect(),
            )
        }
    }
}

fn endpoint_type(endpoint_type: EndpointType) -> String {
    match endpoint_type {
        EndpointType::Public => Interface::Public,
        EndpointType::Internal => Interface::Internal,
        EndpointType::Admin => Interface::Admin,
    }
    .as_str()
    .to_owned()
}

/// Merges the pairs of the credentials with the pairs of the spec, which take precedence.
fn merged(by_file: NewValue, by_spec: Vec<String>) -> NewValue {
    let text = match by_file {
        NewValue::Set(text) => text,
        other if by_spec.is_empty() => return other,
        _ => String::new(),
    };
    let words = text.split(", ").filter(|word| !word.is_empty()).map(str::to_owned);
    let words = words.chain(by_spec);
    let all: BTreeMap<String, String> = words
        .filter_map(|word| {
            word.split_once('=')
                .map(|(left, right)| (left.to_owned(), right.to_owned()))
        })
        .collect();
    pairs(&all).into()
}

/// Returns the value of the flag in an override.
fn search_order(spec: &CinderCSIDriverSpec) -> Option<String> {
    let mut patches = spec.overrides.iter().map(|change| change.patch.as_str());
    let value = patches.find_map(|patch| patch.split_once(SEARCH_ORDER))?.1;
    let end = value.find(|character: char| !character.is_ascii_alphanumeric() && character != ',');
    Some(list(value.get(..end.unwrap_or(value.len()))?))
}
