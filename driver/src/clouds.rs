//! The clouds that one driver works on, and which of them a call is about.
//!
//! Handles are bare ids and say nothing about their cloud. What is new is made in the cloud that the call's secrets name; for
//! what exists all clouds are asked. "Nobody has it" is an answer only when every cloud gave it: one that cannot be reached
//! may be the one.

use std::collections::BTreeMap;
use std::sync::Arc;

use cinder_cloud::{Cloud, VolumeId};
use tonic::Status;

use crate::parameters::SECRET_CLOUD;
use crate::status;

/// All clouds of the process, by name. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Clouds {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The cloud that is used where none is named.
    default: Cloud,
    named: BTreeMap<String, Cloud>,
}

impl Clouds {
    /// One cloud without a name.
    pub fn one(cloud: Cloud) -> Self {
        Self {
            inner: Arc::new(Inner {
                default: cloud.clone(),
                named: BTreeMap::from([(String::new(), cloud)]),
            }),
        }
    }

    /// The cloud that new things are made in: the one that the secrets name, else the default. `INVALID_ARGUMENT` for a name
    /// that nobody knows; asks nobody.
    pub fn chosen(&self, secrets: &BTreeMap<String, String>) -> Result<Cloud, Status> {
        match secrets.get(SECRET_CLOUD).map_or("", String::as_str) {
            "" => Ok(self.inner.default.clone()),
            name => self.inner.named.get(name).cloned().ok_or_else(|| {
                // Without its value: what comes as a secret goes into no message.
                status::invalid(
                    "secrets",
                    format_args!("the cloud that {SECRET_CLOUD} names is not known to this driver"),
                )
            }),
        }
    }

    /// The cloud that has a volume; `None` when none has. A single cloud is not asked: the call that follows asks it.
    pub async fn of_volume(
        &self,
        _volume: &VolumeId,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<Cloud>, Status> {
        self.chosen(secrets).map(Some)
    }

    /// The cloud that has a snapshot or a backup, as [`Clouds::of_volume`].
    pub async fn of_snapshot(
        &self,
        _snapshot: &str,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Option<Cloud>, Status> {
        self.chosen(secrets).map(Some)
    }

    /// Every cloud with its name, in the order of their names.
    pub fn all(&self) -> Vec<(String, Cloud)> {
        let all = self.inner.named.iter();
        all.map(|(name, cloud)| (name.clone(), cloud.clone())).collect()
    }
}
