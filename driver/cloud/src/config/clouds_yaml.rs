// SPDX-License-Identifier: Apache-2.0
//! One cloud of a `clouds.yaml`, as openstacksdk reads it, or as gophercloud reads it for `use-clouds`.

mod gophercloud;
mod region;
mod sdk;
mod value;

use super::document::{self, YamlMap, YamlNode};
use super::login::Original;
use super::raw::{FileFormat, Options, RawCloud};
use super::{CloudConfig, ConfigError, FileLocation};

const FILE: &str = "clouds.yaml";

impl CloudConfig {
    /// Reads one cloud of a `clouds.yaml` as openstacksdk does; the only cloud when `cloud` is empty. Supports logins
    /// by password, application credential, trust or token.
    pub fn from_clouds_yaml(text: &str, cloud: &str) -> Result<Self, ConfigError> {
        Self::from_clouds_yaml_in(text, cloud, None)
    }

    /// The same in a region, which selects an entry of `regions` and takes precedence over `region_name`.
    pub fn from_clouds_yaml_in(text: &str, cloud: &str, region: Option<&str>) -> Result<Self, ConfigError> {
        let document = parse(text, FILE)?;
        let entry = CloudEntry::find(&document, FILE, cloud)?;
        let raw = entry.read_as_sdk(region)?;
        raw.validate(FILE, FileFormat::CloudsYaml, Original::OpenStackSdk, Options::default())
    }
}

/// Reads one cloud as cinder-csi-plugin does for `use-clouds`.
pub(super) fn read_as_go_driver(text: &str, file: &str, cloud: &str) -> Result<RawCloud, ConfigError> {
    let document = parse(text, file)?;
    CloudEntry::find(&document, file, cloud)?.read_as_gophercloud()
}

/// The same without the keys that this driver refuses, and with their errors.
pub(super) fn read_each_key(text: &str, cloud: &str) -> Result<(RawCloud, Vec<ConfigError>), ConfigError> {
    let document = parse(text, FILE)?;
    Ok(CloudEntry::find(&document, FILE, cloud)?.read_each_as_gophercloud())
}

fn parse(text: &str, file: &str) -> Result<YamlNode, ConfigError> {
    document::parse(text).map_err(|refusal| ConfigError::Parse {
        place: FileLocation {
            file: file.to_owned(),
            line: refusal.line,
        },
        reason: refusal.reason,
    })
}

struct CloudEntry<'a> {
    file: &'a str,
    cloud: &'a str,
    map: &'a YamlMap,
}

impl<'a> CloudEntry<'a> {
    fn find(document: &'a YamlNode, file: &'a str, cloud: &str) -> Result<Self, ConfigError> {
        let place = FileLocation {
            file: file.to_owned(),
            line: 0,
        };
        let clouds = document
            .as_map()
            .and_then(|map| map.get("clouds"))
            .and_then(YamlNode::as_map);
        let Some(clouds) = clouds else {
            return Err(ConfigError::Parse {
                place,
                reason: "there is no mapping `clouds` at the top".to_owned(),
            });
        };
        let entry = match (cloud, clouds.len()) {
            ("", 1) => clouds.iter().next(),
            _ => clouds.iter().find(|(name, _)| *name == cloud),
        };
        let Some((name, entry)) = entry else {
            let known: Vec<&str> = clouds.iter().map(|(name, _)| name).collect();
            return Err(ConfigError::UnknownCloud {
                file: file.to_owned(),
                cloud: cloud.to_owned(),
                known: if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                },
            });
        };
        let map = entry.as_map().ok_or_else(|| ConfigError::BadValue {
            place,
            key: format!("clouds.{name}"),
            reason: "must be a mapping".to_owned(),
        })?;
        Ok(Self { file, cloud: name, map })
    }

    fn place(&self) -> FileLocation {
        FileLocation {
            file: self.file.to_owned(),
            line: 0,
        }
    }

    fn key(&self, key: &str) -> String {
        format!("clouds.{}.{key}", self.cloud)
    }

    fn bad(&self, key: &str, reason: &str) -> ConfigError {
        ConfigError::BadValue {
            place: self.place(),
            key: self.key(key),
            reason: reason.to_owned(),
        }
    }

    fn unsupported(&self, key: &str, remedy: &str) -> ConfigError {
        ConfigError::Unsupported {
            place: self.place(),
            what: self.key(key),
            remedy: remedy.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
