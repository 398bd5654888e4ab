// SPDX-License-Identifier: Apache-2.0
//! Parameters of CreateVolume.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::value::{Error as DecodeError, MapDeserializer};

use super::keys::{ALLOW_MODE_CHANGE, GO_MKFS_OPTIONS, METADATA_CLUSTER, MKFS_OPTIONS};
use super::keys::{KUBERNETES_PREFIX, OLD_FS_TYPE, PV_NAME, PVC_NAME, PVC_NAMESPACE};
use super::mutable::METADATA_PREFIX;
use super::templates::Values;

/// The parameters of a StorageClass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct CreateParameters {
    /// Name or id of the Cinder volume type; Cinder's default type if absent.
    #[serde(rename = "type", default, deserialize_with = "non_empty")]
    pub volume_type: Option<String>,
    /// Cinder's availability zone, which overrides any topology.
    #[serde(default, deserialize_with = "non_empty")]
    pub availability: Option<String>,
    /// Options of mkfs on the node.
    #[serde(rename = "mkfsOptions", default, deserialize_with = "non_empty")]
    pub(super) mkfs_options: Option<String>,
    /// The same options under the key of cinder-csi-plugin after 1.36.
    #[serde(rename = "mkfs-options", default, deserialize_with = "non_empty")]
    pub(super) go_mkfs_options: Option<String>,
    /// Whether the source of a volume with a file system may be a raw device.
    #[serde(rename = "allowVolumeModeChange", default, deserialize_with = "allow_mode_change")]
    pub allow_mode_change: bool,
    /// Additional metadata of the volume, as a JSON object of strings in the Go driver's format.
    #[serde(rename = "appendVolumeMetadata", default, deserialize_with = "non_empty")]
    pub append_volume_metadata: Option<String>,
    /// All other keys.
    #[serde(flatten)]
    pub(super) rest: BTreeMap<String, String>,
}

pub(super) fn non_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(|text| (!text.is_empty()).then_some(text))
}

pub(super) fn allow_mode_change<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = String::deserialize(deserializer)?;
    // An empty value counts as missing.
    if value.is_empty() {
        return Ok(false);
    }
    parse_bool(ALLOW_MODE_CHANGE, &value).map_err(serde::de::Error::custom)
}

/// Parses a boolean in the spellings of `strconv.ParseBool`.
pub(super) fn parse_bool(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(format!("{key} is {other:?}; use true or false")),
    }
}

impl CreateParameters {
    /// Parses the parameters of a CreateVolume request.
    pub fn decode(parameters: BTreeMap<String, String>) -> Result<Self, DecodeError> {
        Self::deserialize(MapDeserializer::new(parameters.into_iter()))
    }

    /// Returns the unknown keys. They are logged and ignored, as users of the Go driver expect.
    pub fn unknown(&self) -> Vec<&str> {
        self.rest
            .keys()
            .map(String::as_str)
            .filter(|key| !key.starts_with(KUBERNETES_PREFIX) && !key.starts_with(METADATA_PREFIX))
            .filter(|key| !key.eq_ignore_ascii_case(OLD_FS_TYPE))
            .collect()
    }

    /// Returns the options of mkfs under either key. Fails if the class has two different values.
    pub fn mkfs_options(&self) -> Result<Option<&str>, String> {
        match (self.mkfs_options.as_deref(), self.go_mkfs_options.as_deref()) {
            (Some(ours), Some(theirs)) if ours != theirs => Err(format!(
                "{MKFS_OPTIONS} and {GO_MKFS_OPTIONS} are two names of one parameter and differ; remove one of them"
            )),
            (ours, theirs) => Ok(ours.or(theirs)),
        }
    }

    /// Returns the namespace and name of the claim, if the provisioner sends them.
    pub fn claim(&self) -> Option<(&str, &str)> {
        Some((self.rest.get(PVC_NAMESPACE)?, self.rest.get(PVC_NAME)?))
    }

    /// Expands the templates for the volume's metadata.
    ///
    /// The templates in `all` have the lowest precedence. The class's `appendVolumeMetadata`, which has no templates,
    /// overrides them. The class's `metadata.KEY` parameters override both.
    pub fn templates(&self, all: &[(String, String)], cluster: &str) -> Result<BTreeMap<String, String>, String> {
        let of_class = self.rest.iter().filter_map(|(key, template)| {
            let key = key.strip_prefix(METADATA_PREFIX)?;
            Some((key.to_owned(), template.clone()))
        });
        let appended = self.append_volume_metadata.as_deref();
        let mut metadata = appended
            .map(super::mutable::appended_metadata)
            .transpose()?
            .unwrap_or_default();
        let all = all.iter().filter(|(key, _)| !metadata.contains_key(key));
        let templates = all.cloned().chain(of_class).collect();
        let value = |key: &str| self.rest.get(key).map(String::as_str);
        let values = Values {
            pvc_name: value(PVC_NAME),
            pvc_namespace: value(PVC_NAMESPACE),
            pv_name: value(PV_NAME),
            cluster,
        };
        metadata.extend(super::templates::fill(&templates, &values)?);
        Ok(metadata)
    }

    /// Returns the metadata of the volume: the cluster, and the Kubernetes objects if the provisioner sends them.
    pub fn metadata(&self, cluster: &str) -> BTreeMap<String, String> {
        let objects = [PVC_NAME, PVC_NAMESPACE, PV_NAME]
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), self.rest.get(key)?.clone())));
        std::iter::once((METADATA_CLUSTER.to_owned(), cluster.to_owned()))
            .chain(objects)
            .collect()
    }
}
