// SPDX-License-Identifier: Apache-2.0
//! Observes the classes, the snapshots and the zones of a driver.

use std::{collections::BTreeMap, time::Duration};

use cinder_csi_crds::SnapshotsMode;
use cinder_operator_core::{
    cluster::{Key, OptionalApis, SnapshotContents, kind},
    decide::Decision,
    releases::Component,
    resolve::{ControllerSight, Environment, Topology, topology_interval},
};
use k8s_openapi::api::core::v1::Container;
use serde_json::Value;
use tokio::time::Instant;

use super::{context::Context, driver_ref::DriverRef, memory::ListedContents};
use crate::observe::{self, snapshot_controller};

/// The pause before the zones of a new driver's cloud are read again.
const ZONES_PAUSE: Duration = Duration::from_secs(10);
/// The pause before a snapshot-controller that does not work is checked again. No watch reports it.
const SNAPSHOT_CONTROLLER_PAUSE: Duration = Duration::from_secs(30);
/// The shortest interval between two lists of snapshot contents. No watch reports them.
const CONTENTS_PAUSE: Duration = Duration::from_secs(30);

/// Adds the facts about this driver's volumes, its snapshots and the snapshot-controller.
pub(super) async fn add_cluster_facts(
    context: &Context,
    driver: &DriverRef<'_>,
    environment: &mut Environment,
    live: &BTreeMap<Key, Value>,
) {
    let name = &driver.owner.name;
    let is_wanted = driver.object.spec.snapshots.mode != SnapshotsMode::Disabled && environment.apis.snapshots;
    if is_wanted {
        let look = Box::pin(snapshot_controller::look(&context.client, environment.now));
        environment.snapshot_controller = look.await;
    }
    let contents = list_snapshot_contents(context, driver, is_wanted, environment.apis).await;
    let sidecar = find_snapshotter(driver, live);
    environment.snapshot_contents = SnapshotContents {
        has_sidecar: sidecar.is_some(),
        has_groups: sidecar.is_some_and(|container| serves_groups(&container)),
        ..contents
    };
    environment.zoned_volumes = context.cluster.read(|index| index.zoned_volumes_of(name));
}

/// Lists the snapshot contents of the driver, or returns an earlier list that is still valid. No watch reports them.
async fn list_snapshot_contents(
    context: &Context,
    driver: &DriverRef<'_>,
    is_wanted: bool,
    apis: OptionalApis,
) -> SnapshotContents {
    let name = &driver.owner.name;
    let earlier = context.memory(name, |memory| memory.classes.snapshot_contents.clone());
    let (recent, earlier) = match earlier {
        Some(earlier) if earlier.at.elapsed() < CONTENTS_PAUSE => (Some(earlier), None),
        earlier => (None, earlier),
    };
    if let Some(recent) = recent
        && (recent.is_wanted, recent.apis) == (is_wanted, apis)
    {
        return recent.contents;
    }
    let listed = observe::snapshot_contents(&context.client, name).await;
    let earlier = earlier.as_ref().map(|earlier| &earlier.contents);
    let contents = SnapshotContents {
        snapshots: listed.snapshots.confirm(earlier.map(|earlier| &earlier.snapshots)),
        groups: listed.groups.confirm(earlier.map(|earlier| &earlier.groups)),
        ..listed
    };
    let remembered = ListedContents {
        contents: contents.clone(),
        is_wanted,
        apis,
        at: Instant::now(),
    };
    context.memory(name, |memory| memory.classes.snapshot_contents = Some(remembered));
    contents
}

/// The csi-snapshotter of the controller's Deployment.
fn find_snapshotter(driver: &DriverRef<'_>, live: &BTreeMap<Key, Value>) -> Option<Container> {
    let is_controller = |(key, object): &(&Key, &Value)| key.kind == kind::DEPLOYMENT && driver.owner.owns(object);
    let (_, controller) = live.iter().find(is_controller)?;
    let name = Component::Snapshotter.row().container;
    let mut containers = observe::pod_template(controller)?.containers.into_iter();
    containers.find(|container| container.name == name)
}

/// Whether a csi-snapshotter serves group snapshots.
fn serves_groups(snapshotter: &Container) -> bool {
    let mut arguments = snapshotter.args.iter().flatten();
    arguments.any(|argument| argument.contains("CSIVolumeGroupSnapshot=true"))
}

/// The pause until zones, a snapshot-controller that does not work, or the contents that need csi-snapshotter are read again.
pub(super) fn next_check(context: &Context, driver: &DriverRef<'_>, decision: &Decision) -> Option<Duration> {
    let view = decision.classes.as_ref()?;
    let works = !view.snapshots.enabled || matches!(view.snapshots.sight, ControllerSight::Found(_));
    let controller = (!works).then_some(SNAPSHOT_CONTROLLER_PAUSE);
    let contents = (!view.snapshots.retained.is_empty()).then_some(CONTENTS_PAUSE);
    [controller, contents, next_zone_check(context, driver, &view.topology)]
        .into_iter()
        .flatten()
        .min()
}

fn next_zone_check(context: &Context, driver: &DriverRef<'_>, topology: &Topology) -> Option<Duration> {
    if !topology.is_decided {
        context.login_check.recheck(&driver.owner.name);
        return Some(ZONES_PAUSE);
    }
    topology.status.pending.as_ref()?;
    Some(topology_interval(&driver.object.spec.topology))
}
