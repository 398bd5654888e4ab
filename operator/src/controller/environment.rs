// SPDX-License-Identifier: Apache-2.0
//! Reads the properties of the cluster that a spec is resolved with.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::{CinderCSIDriver, CinderCSIDriverSpec, SnapshotsMode};
use cinder_operator_core::{
    cluster::{Index, KubernetesVersion, OptionalApis, SnapshotContents},
    resolve::{ControllerSight, Environment, OtherDriver},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PartialObjectMeta;
use tokio::time::Instant;

use super::{context::Context, memory::ClusterIdentity};
use crate::{args::VERSION, error::ReconcileError, kubernetes::GuardedApi};

/// How long the version of the API server and the identity of the cluster are not read again.
const IDENTITY_LIFETIME: Duration = Duration::from_mins(10);

/// The namespace whose uid identifies the cluster.
const IDENTIFYING_NAMESPACE: &str = "kube-system";

/// The properties of the cluster for the resolver. The driver's pods depend on the present version and the present APIs, if known.
pub(super) async fn describe_cluster(
    context: &Context,
    namespace: &str,
    driver: &CinderCSIDriver,
    (version, apis): (Option<KubernetesVersion>, Option<OptionalApis>),
) -> Result<Environment, ReconcileError> {
    let identity = cluster_identity(context).await?;
    let kubernetes_version = context
        .memories
        .environment
        .versions
        .lock()
        .confirmed(version, Instant::now().into_std());
    Ok(Environment {
        namespace: namespace.to_owned(),
        operator_version: VERSION.to_owned(),
        kubernetes_version,
        cluster_uid: identity.uid,
        nodes: context.cluster.read(Index::node_count),
        apis: used_apis(context, &driver.spec, apis),
        clouds: BTreeMap::new(),
        images: context.images.clone(),
        restrictions: context.restrictions.clone(),
        other_drivers: other_drivers(context),
        default_classes: context.cluster.read(Index::default_classes),
        snapshot_controller: ControllerSight::Unseen,
        snapshot_contents: SnapshotContents::default(),
        silent_clouds: BTreeSet::new(),
        zoned_volumes: 0,
        records: BTreeMap::new(),
        definition_mismatch: context.cluster.wrong_definition(),
        now: context.sources.now(),
    })
}

/// The optional APIs that the driver uses: the confirmed ones. No pod template depends on monitoring, so it is used at once.
///
/// All API servers serve the same CustomResourceDefinitions. csi-snapshotter ends without its kinds, so their absence counts at once. Their
/// presence does so if the spec requires them.
fn used_apis(context: &Context, spec: &CinderCSIDriverSpec, current: Option<OptionalApis>) -> OptionalApis {
    let (served, confirmed) = (context.cluster.apis(), context.cluster.confirmed_apis(current));
    let is_required = spec.snapshots.mode == SnapshotsMode::Enabled;
    OptionalApis {
        snapshots: served.snapshots && (confirmed.snapshots || is_required),
        group_snapshots: served.group_snapshots && (confirmed.group_snapshots || is_required),
        monitoring: served.monitoring,
        volume_attributes_classes: confirmed.volume_attributes_classes,
        reference_grants: served.reference_grants,
    }
}

/// The claims of all drivers of the cluster, including the one of this reconcile.
fn other_drivers(context: &Context) -> Vec<OtherDriver> {
    let drivers = context.drivers.state();
    let known = drivers.iter().filter_map(|driver| driver.0.as_ref().ok());
    known.map(OtherDriver::of).collect()
}

async fn cluster_identity(context: &Context) -> Result<ClusterIdentity, ReconcileError> {
    let known = context.memories.environment.identity.lock().clone();
    if let Some((identity, _)) = known.filter(|(_, at)| at.elapsed() < IDENTITY_LIFETIME) {
        return Ok(identity);
    }
    let version = context
        .client
        .apiserver_version()
        .await
        .map_err(|error| ReconcileError::Version(Box::new(error)))?;
    let namespaces: GuardedApi<PartialObjectMeta<Namespace>> = GuardedApi::all(context.client.clone());
    // Without access to it, the resolver requires spec.clusterID.
    let uid = match namespaces.get(IDENTIFYING_NAMESPACE).await {
        Ok(namespace) => namespace.metadata.uid,
        Err(kube::Error::Api(status)) if status.code == 403 || status.code == 404 => None,
        Err(error) => return Err(ReconcileError::Version(Box::new(error))),
    };
    if let Some(version) = KubernetesVersion::parse(&version.major, &version.minor) {
        context
            .memories
            .environment
            .versions
            .lock()
            .add(version, Instant::now().into_std());
    }
    let identity = ClusterIdentity { uid };
    *context.memories.environment.identity.lock() = Some((identity.clone(), Instant::now()));
    Ok(identity)
}
