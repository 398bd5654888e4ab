// SPDX-License-Identifier: Apache-2.0
//! Records of the metadata that other clients set on objects to recreate. The records are written before the deletion,
//! as an annotation of the CinderCSIDriver, so that they outlive the operator's process.

use std::collections::BTreeMap;

use cinder_csi_crds::{CinderCSIDriver, KIND};
use cinder_operator_core::{
    cluster::{FIELD_MANAGER, Key},
    plan::RetainedMetadata,
};
use kube::{
    ResourceExt,
    api::{PartialObjectMeta, Patch, PatchParams},
};
use serde_json::json;

use super::Writer;
use crate::kubernetes::{ApplyError, GuardedApi};

/// Annotation of the CinderCSIDriver with metadata to restore on recreated objects. It exists only during a recreation.
const RECREATED_METADATA: &str = "csi.openstack.org/made-anew";

/// The records of one CinderCSIDriver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    driver: String,
    uid: String,
    current: BTreeMap<String, RetainedMetadata>,
    written: BTreeMap<String, RetainedMetadata>,
}

impl Records {
    /// Reads the records from the object. An unreadable record counts as missing, because no version of the operator
    /// writes one.
    pub fn of(driver: &CinderCSIDriver) -> Self {
        let text = driver.annotations().get(RECREATED_METADATA);
        let current: BTreeMap<String, RetainedMetadata> = text
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        Self {
            driver: driver.name_any(),
            uid: driver.uid().unwrap_or_default(),
            written: current.clone(),
            current,
        }
    }

    /// Removes the records of objects that are not desired any more.
    #[must_use]
    pub fn only(mut self, desired: &[Key]) -> Self {
        self.current
            .retain(|name, _| desired.iter().any(|key| key.to_string() == *name));
        self
    }

    /// The metadata to restore on a missing object.
    pub(super) fn find(&self, key: &Key) -> Option<RetainedMetadata> {
        self.current.get(&key.to_string()).cloned()
    }

    pub(super) fn insert(&mut self, key: &Key, metadata: &RetainedMetadata) {
        self.current.insert(key.to_string(), metadata.clone());
    }

    /// Removes the records of objects that exist.
    pub(super) fn retain_missing(&mut self, is_there: impl Fn(&str) -> bool) {
        self.current.retain(|key, _| !is_there(key));
    }
}

impl Writer {
    /// Writes the records if they have changed.
    pub(super) async fn write_records(&self, records: &mut Records) -> Result<(), ApplyError> {
        if records.current == records.written {
            return Ok(());
        }
        let text = (!records.current.is_empty())
            .then(|| serde_json::to_string(&records.current))
            .transpose()?;
        let patch = json!({"metadata": {"uid": records.uid, "annotations": {RECREATED_METADATA: text}}});
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let api: GuardedApi<PartialObjectMeta<CinderCSIDriver>> = GuardedApi::all(self.client.clone());
        let result = api.patch(&records.driver, &params, &Patch::Merge(&patch)).await;
        self.metrics.api_write(KIND, "patch", result.is_ok());
        result?;
        records.written.clone_from(&records.current);
        Ok(())
    }
}
