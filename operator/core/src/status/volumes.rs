// SPDX-License-Identifier: Apache-2.0
//! What is said about volumes.

use cinder_csi_crds::{CinderCSIDriverStatus, StuckVolume, VolumesStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::whole_seconds;
use crate::{
    decide::{Facts, VolumeFacts},
    diagnosis::Stuck,
};

/// Nothing where no operation is stuck. How many volumes there are is in the metrics: here, each that comes or goes would be a write.
pub(super) fn status(facts: &Facts, volumes: &VolumeFacts) -> Option<VolumesStatus> {
    (!volumes.stuck.is_empty()).then(|| VolumesStatus {
        stuck_count: i32::try_from(volumes.stuck.len() + volumes.stuck_others).unwrap_or(i32::MAX),
        stuck: volumes
            .stuck
            .iter()
            .take(facts.health.stuck.max_reported)
            .map(of_stuck)
            .collect(),
    })
}

fn of_stuck(stuck: &Stuck) -> StuckVolume {
    StuckVolume {
        kind: stuck.object.0.to_owned(),
        name: stuck.object.1.clone(),
        claim: stuck
            .claim
            .as_ref()
            .map(|claim| format!("{}/{}", claim.namespace, claim.name)),
        volume_id: stuck.volume_id.clone(),
        node: stuck.node.clone(),
        operation: stuck.operation.as_str().to_owned(),
        since: Time(whole_seconds(stuck.since)),
        reason: stuck.finding.reason.to_owned(),
        hint: stuck.finding.hint.clone(),
    }
}

/// Those of which the claim has to be told: what was not in the status before, with this reason.
pub fn news<'a>(previous: Option<&CinderCSIDriverStatus>, facts: &Facts, volumes: &'a VolumeFacts) -> Vec<&'a Stuck> {
    let before = previous.and_then(|previous| previous.volumes.as_ref());
    let told = before.map(|volumes| volumes.stuck.as_slice()).unwrap_or_default();
    let is_reported = |stuck: &&Stuck| {
        told.iter().any(|old| {
            (old.kind.as_str(), old.name.as_str()) == (stuck.object.0, stuck.object.1.as_str())
                && old.operation == stuck.operation.as_str()
                && old.reason == stuck.finding.reason
        })
    };
    let listed = volumes.stuck.iter().take(facts.health.stuck.max_reported);
    listed.filter(|stuck| !is_reported(stuck)).collect()
}
