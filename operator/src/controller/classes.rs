// SPDX-License-Identifier: Apache-2.0
//! Classes, snapshots and zones in a reconcile: what has to be looked at for them, and what exists of them.

use std::{collections::BTreeMap, time::Duration};

use cinder_csi_crds::{CinderCSIDriver, SnapshotsMode};
use cinder_operator_core::{
    cluster::{Key, kind},
    decide::Report,
    plan::Desired,
    resolve::{ControllerSight, Environment, Resolved, Topology, topology_interval},
};
use kube::Client;
use serde_json::Value;

use super::Reconciliation;
use crate::observe::snapshot_controller;

/// The pause before the zones of a new driver's cloud are read again.
const ZONES_PAUSE: Duration = Duration::from_secs(10);
/// Until the operator looks again for a snapshot-controller that does not work: it is not the operator's and so not watched.
const SNAPSHOT_CONTROLLER_PAUSE: Duration = Duration::from_secs(30);

impl Reconciliation<'_> {
    /// Adds the facts about this driver's volumes and the snapshot-controller.
    pub(super) async fn complete(&self, environment: &mut Environment) {
        let (context, name) = (self.context, &self.owner.name);
        observe_owned(&context.client, self.driver, environment).await;
        environment.zoned_volumes = context.cluster.read(|index| index.zoned_volumes_of(name));
    }
}

/// Adds whether a snapshot-controller works in the cluster.
async fn observe_owned(client: &Client, driver: &CinderCSIDriver, environment: &mut Environment) {
    let is_wanted = driver.spec.snapshots.mode != SnapshotsMode::Disabled;
    environment.snapshot_controller = if is_wanted && environment.apis.snapshots {
        snapshot_controller::look(client, environment.now).await
    } else {
        ControllerSight::Unseen
    };
}

/// Takes out of `live` what the operator is to leave alone: StorageClasses that are left to others.
pub(super) fn exclude_unmanaged(resolved: &Resolved, desired: &[Desired], live: &mut BTreeMap<Key, Value>) {
    if resolved.storage_classes.is_left_to_others() {
        let is_wanted = |key: &Key| desired.iter().any(|desired| desired.key == *key);
        live.retain(|key, _| key.kind != kind::STORAGE_CLASS || is_wanted(key));
    }
}

/// When zones, or a snapshot-controller that does not work, have to be looked at again.
pub(super) fn next_look(report: &Report, pass: &Reconciliation<'_>) -> Option<Duration> {
    let view = report.decision.classes.as_ref()?;
    let works = !view.snapshots.enabled || matches!(view.snapshots.sight, ControllerSight::Found(_));
    let controller = (!works).then_some(SNAPSHOT_CONTROLLER_PAUSE);
    [controller, next_look_at_zones(&view.topology, pass)]
        .into_iter()
        .flatten()
        .min()
}

fn next_look_at_zones(topology: &Topology, pass: &Reconciliation<'_>) -> Option<Duration> {
    if !topology.is_decided {
        pass.context.checker.recheck(&pass.owner.name);
        return Some(ZONES_PAUSE);
    }
    topology.status.pending.as_ref()?;
    Some(topology_interval(&pass.driver.spec.topology))
}
