// SPDX-License-Identifier: Apache-2.0
//! Volume types, pools and quotas.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::SpecError;

/// A Cinder volume type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeType {
    /// UUID of the type.
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    /// Whether its volumes can be attached to several servers (`multiattach="<is> True"`).
    pub multiattach: bool,
    /// Whether its volumes are encrypted. Devices with a backing folder contain plain data nevertheless.
    #[serde(default)]
    pub encrypted: bool,
    /// Size of the LUKS header of an encrypted volume in MiB: 2 for LUKS1, 16 for LUKS2. Devices on servers are smaller
    /// by this size.
    #[serde(default = "VolumeType::luks1_header")]
    pub header_mib: u64,
    /// Further extra specs. `volume_backend_name` selects the backend; the default is one common backend.
    pub extra_specs: BTreeMap<String, String>,
    /// QoS specs of its volumes.
    pub qos_specs_id: Option<String>,
    /// Quota of the project for this type.
    pub quota: TypeQuota,
}

/// Backend of types without `volume_backend_name`.
pub(crate) const DEFAULT_BACKEND: &str = "sim";

impl VolumeType {
    /// Creates a type without multiattach.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            id: crate::api::id_of(&name),
            name,
            description: None,
            multiattach: false,
            encrypted: false,
            header_mib: Self::luks1_header(),
            extra_specs: BTreeMap::new(),
            qos_specs_id: None,
            quota: TypeQuota::default(),
        }
    }

    const fn luks1_header() -> u64 {
        2
    }

    /// Returns the size in bytes of a volume's device on a server.
    pub(crate) const fn device_bytes(&self, gib: u64) -> u64 {
        let header = if self.encrypted { self.header_mib << 20 } else { 0 };
        (gib << 30).saturating_sub(header)
    }

    /// Adds an extra spec.
    #[must_use]
    pub fn spec(mut self, key: &str, value: &str) -> Self {
        self.extra_specs.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets the backend of its volumes. A retype between backends is a migration.
    #[must_use]
    pub fn on_backend(self, name: &str) -> Self {
        self.spec("volume_backend_name", name)
    }

    /// Returns the backend of its volumes.
    pub(crate) fn backend(&self) -> &str {
        self.extra_specs
            .get("volume_backend_name")
            .map_or(DEFAULT_BACKEND, String::as_str)
    }

    /// Returns all extra specs, as visible to an administrator.
    pub(crate) fn all_specs(&self) -> BTreeMap<String, String> {
        let mut specs = self.extra_specs.clone();
        if self.multiattach {
            specs.insert("multiattach".to_owned(), "<is> True".to_owned());
        }
        specs
    }
}

impl FromStr for VolumeType {
    type Err = SpecError;

    /// `NAME[,multiattach][,encrypted[=MIB]][,backend=NAME][,qos=ID][,KEY=VALUE]…`
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = text.split(',');
        let mut volume_type = Self::new(parts.next().unwrap_or_default());
        for part in parts {
            let error = |reason| SpecError {
                text: text.to_owned(),
                reason,
                form: "NAME[,multiattach][,encrypted[=MIB]][,backend=NAME][,qos=ID][,EXTRA_SPEC=VALUE]",
            };
            volume_type = match part.split_once('=') {
                None if part == "multiattach" => Self {
                    multiattach: true,
                    ..volume_type
                },
                None if part == "encrypted" => Self {
                    encrypted: true,
                    ..volume_type
                },
                Some(("encrypted", mib)) => Self {
                    encrypted: true,
                    header_mib: mib.parse().map_err(|_| error(format!("`{mib}` is no number of MiB")))?,
                    ..volume_type
                },
                Some(("backend", name)) => volume_type.on_backend(name),
                Some(("qos", id)) => Self {
                    qos_specs_id: Some(id.to_owned()),
                    ..volume_type
                },
                Some((key, value)) => volume_type.spec(key, value),
                None => return Err(error(format!("`{part}` is not known"))),
            };
        }
        Ok(volume_type)
    }
}

/// Capacity of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Name of the backend.
    pub backend: String,
    /// Capacity in GiB.
    pub total_gigabytes: u64,
    /// Share of the capacity that Cinder reserves, in percent.
    pub reserved_percentage: u8,
}

impl Pool {
    /// Creates a backend with this capacity in GiB and no reserve.
    pub fn new(backend: impl Into<String>, total_gigabytes: u64) -> Self {
        Self {
            backend: backend.into(),
            total_gigabytes,
            reserved_percentage: 0,
        }
    }
}

/// Quota of the project; -1 is unlimited, as in Cinder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    pub volumes: i64,
    pub gigabytes: i64,
    pub snapshots: i64,
    pub per_volume_gigabytes: i64,
    pub backups: i64,
    pub backup_gigabytes: i64,
    pub groups: i64,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            volumes: 10_000,
            gigabytes: 1_000_000,
            snapshots: 10_000,
            per_volume_gigabytes: -1,
            backups: 10_000,
            backup_gigabytes: 1_000_000,
            groups: 10_000,
        }
    }
}

impl Quota {
    /// Returns the limit with this name.
    pub(crate) fn limit(&mut self, name: &str) -> Option<&mut i64> {
        Some(match name {
            "volumes" => &mut self.volumes,
            "gigabytes" => &mut self.gigabytes,
            "snapshots" => &mut self.snapshots,
            "per_volume_gigabytes" => &mut self.per_volume_gigabytes,
            "backups" => &mut self.backups,
            "backup_gigabytes" => &mut self.backup_gigabytes,
            "groups" => &mut self.groups,
            _ => return None,
        })
    }
}

impl FromStr for Quota {
    type Err = SpecError;

    /// Parses `volumes=N,gigabytes=N,…`; other limits retain their defaults.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |reason: String| SpecError {
            text: text.to_owned(),
            reason,
            form: "volumes=N,gigabytes=N,snapshots=N,per_volume_gigabytes=N,backups=N,backup_gigabytes=N,groups=N",
        };
        let mut quota = Self::default();
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| error(format!("`{part}` has no value")))?;
            let value = value.parse().map_err(|_| error(format!("`{value}` is not a number")))?;
            *quota
                .limit(name)
                .ok_or_else(|| error(format!("`{name}` is not a quota")))? = value;
        }
        Ok(quota)
    }
}

/// Quota of the project for one volume type; -1 (the default) is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeQuota {
    pub volumes: i64,
    pub gigabytes: i64,
    pub snapshots: i64,
}

impl Default for TypeQuota {
    fn default() -> Self {
        Self {
            volumes: -1,
            gigabytes: -1,
            snapshots: -1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_quota_over_defaults() {
        let quota: Quota = "volumes=3".parse().expect("a quota");
        assert_eq!((quota.volumes, quota.gigabytes), (3, Quota::default().gigabytes));
        assert!("cows=3".parse::<Quota>().is_err());
    }

    #[test]
    fn parses_volume_type_name_and_specs() {
        let read: VolumeType = "gold,multiattach,backend=b,qos=q1,tier=1".parse().expect("a type");
        assert_eq!(
            (read.name.as_str(), read.multiattach, read.backend()),
            ("gold", true, "b")
        );
        assert_eq!(read.qos_specs_id.as_deref(), Some("q1"));
        assert_eq!(read.all_specs()["tier"], "1");
        assert_eq!(read.all_specs()["multiattach"], "<is> True");
        assert!("gold,shiny".parse::<VolumeType>().is_err());
    }
}
