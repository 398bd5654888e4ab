// SPDX-License-Identifier: Apache-2.0
//! Status and events of stuck volumes.

use cinder_csi_crds::{CinderCSIDriverStatus, StuckVolume, VolumesStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::verdict::whole_seconds;
use crate::{
    decide::{Facts, VolumeFacts},
    diagnosis::Stuck,
};

/// Returns the stuck operations, or `None`. The metrics have the number of volumes. In the status, each new or
/// deleted volume would cause a write.
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

/// Returns stuck operations that are not in the previous status with the same reason. Their claims receive an event.
pub fn news<'a>(previous: Option<&CinderCSIDriverStatus>, facts: &Facts, volumes: &'a VolumeFacts) -> Vec<&'a Stuck> {
    let before = previous.and_then(|previous| previous.volumes.as_ref());
    let reported = before.map(|volumes| volumes.stuck.as_slice()).unwrap_or_default();
    let is_reported = |stuck: &&Stuck| {
        reported.iter().any(|old| {
            (old.kind.as_str(), old.name.as_str()) == (stuck.object.0, stuck.object.1.as_str())
                && old.operation == stuck.operation.as_str()
                && old.reason == stuck.finding.reason
        })
    };
    let listed = volumes.stuck.iter().take(facts.health.stuck.max_reported);
    listed.filter(|stuck| !is_reported(stuck)).collect()
}
