//! Classes, snapshots and zones in a reconcile: what has to be looked at for them, and what exists of them.

use std::{collections::BTreeMap, time::Duration};

use cinder_csi_crds::{CinderCSIDriver, SnapshotControllerMode, SnapshotsMode};
use kube::{Client, Resource as _};
use serde_json::Value;

use super::Pass;
use crate::{
    objects::{Key, Owner, kind},
    observe::{self, snapshot_controller},
    operands::snapshot_controller_name,
    plan::Desired,
    resolve::{ControllerSight, Environment, Resolved, slug_of, topology_interval},
    status::{self, Seen, Workload},
};

/// Until the zones of a new driver's cloud are asked for again, should nobody tell before.
const ZONES_PAUSE: Duration = Duration::from_secs(10);

impl Pass<'_> {
    /// Adds what is known of this driver's classes, volumes and snapshot-controller.
    pub(super) async fn complete(&self, environment: &mut Environment, live: &BTreeMap<Key, Value>) {
        let (context, name) = (self.context, &self.owner.name);
        look_at_own(&context.client, self.driver, &self.owner, live, environment).await;
        environment.zoned_volumes = context.cluster.read(|index| index.zoned_volumes_of(name));
        let states = context.clouds.states(name).into_iter();
        environment.silent_clouds = states
            .filter(|(_, state)| !state.troubles.is_empty())
            .map(|(cloud, _)| cloud)
            .collect();
    }

    /// Notes what exists of classes and of the snapshot-controller.
    pub(super) fn look_at_classes(&self, live: &BTreeMap<Key, Value>, seen: &mut Seen) {
        let key = own_snapshot_controller(self.driver, self.namespace());
        let Some(view) = &mut seen.classes else { return };
        let classes = live.keys().filter(|key| key.kind == kind::STORAGE_CLASS);
        view.existing = classes.map(|key| key.name.clone()).collect();
        let controller = live.get(&key).map(Workload::of_deployment);
        view.controller_serves = controller.is_some_and(|controller| controller.available > 0);
    }
}

/// Adds what this driver's own objects tell: its classes of volume types, and who runs the snapshot-controller.
pub(crate) async fn look_at_own(
    client: &Client,
    driver: &CinderCSIDriver,
    owner: &Owner,
    live: &BTreeMap<Key, Value>,
    environment: &mut Environment,
) {
    environment.classes.of_types = observe::of_types(owner, live);
    let own = own_snapshot_controller(driver, &environment.namespace);
    environment.runs_snapshot_controller = live.contains_key(&own);
    let spec = &driver.spec.snapshots;
    let is_of_interest = environment.apis.snapshots
        && spec.mode != SnapshotsMode::Disabled
        && spec.controller != SnapshotControllerMode::Ignore;
    environment.snapshot_controller = if is_of_interest {
        snapshot_controller::look(client, &environment.namespace, &own.name, environment.now).await
    } else {
        ControllerSight::Unseen
    };
}

/// The snapshot-controller that the operator runs for a driver.
fn own_snapshot_controller(driver: &CinderCSIDriver, namespace: &str) -> Key {
    let name = snapshot_controller_name(&slug_of(driver));
    Key::new(kind::DEPLOYMENT, Some(namespace), &name)
}

/// Takes out of `live` what the operator is to leave alone: StorageClasses that are left to others.
pub(crate) fn leave_alone(resolved: &Resolved, desired: &[Desired], live: &mut BTreeMap<Key, Value>) {
    if resolved.storage_classes.is_left_to_others() {
        let is_wanted = |key: &Key| desired.iter().any(|desired| desired.key == *key);
        live.retain(|key, _| key.kind != kind::STORAGE_CLASS || is_wanted(key));
    }
}

impl Pass<'_> {
    /// Tells once a day of volume types without a class.
    pub(super) async fn remind_of_types(&self, seen: &Seen) {
        if let Some(notice) = seen.classes.as_ref().and_then(status::left_out) {
            self.context.events.remind(&self.driver.object_ref(&()), notice).await;
        }
    }
}

/// When zones have to be looked at again.
pub(super) fn next_look_at_zones(seen: &Seen, pass: &Pass<'_>) -> Option<Duration> {
    let topology = &seen.classes.as_ref()?.topology;
    if !topology.is_decided {
        return Some(ZONES_PAUSE);
    }
    topology.status.pending.as_ref()?;
    Some(topology_interval(&pass.driver.spec.topology))
}
