// SPDX-License-Identifier: Apache-2.0
//! What all reconciles share.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use cinder_csi_crds::{CinderCSIDriver, CinderCSIDriverSpec, CinderCSIDriverStatus, SnapshotsMode};
use cinder_operator_core::{
    cluster::{Answers, GuardedObject, Index, Key, KubernetesVersion, OptionalApis, SnapshotContents},
    migration::{Migration, check::AdoptionFinding},
    plan::Unapplied,
    reasons::Degraded,
    releases::InstalledImages,
    resolve::{ControllerSight, Environment, OtherDriver},
    restrictions::Restrictions,
};
use csi_sources::Sources;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Client, api::PartialObjectMeta, runtime::reflector::Store};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{classes::ListedContents, pauses::OBSTACLE_PAUSE, volumes::LastLook};
use crate::{
    apply::Writer, args::VERSION, credentials::Checker, error::ReconcileError, events::Events, kubernetes::GuardedApi,
    metrics::Metrics, object_leases::ObjectLeases, observe::Cluster, observe::LeaseRenewals, observe::OldPods,
};

/// How long the version of the API server and the cluster's identity are taken for granted.
const FACTS_HOLD: Duration = Duration::from_mins(10);

/// The namespace whose uid identifies the cluster.
const IDENTIFYING_NAMESPACE: &str = "kube-system";

/// The object as it is watched. An object that does not decode must not stop the others.
pub type Watched = GuardedObject<CinderCSIDriver>;

/// What all reconciles share.
pub struct Context {
    /// Reads.
    pub client: Client,
    /// Writes.
    pub writer: Writer,
    /// Events.
    pub events: Events,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Where wall time comes from.
    pub sources: Sources,
    /// What is watched.
    pub cluster: Cluster,
    /// Tries credentials.
    pub checker: Checker,
    /// The operator's namespace.
    pub namespace: String,
    /// Further namespaces where drivers may run.
    pub operand_namespaces: Vec<String>,
    /// The Leases of the objects.
    pub leases: Arc<ObjectLeases>,
    /// The images of this installation.
    pub images: InstalledImages,
    /// What the operator's flags keep from the spec.
    pub restrictions: Restrictions,
    /// Every CinderCSIDriver of the cluster.
    pub drivers: Store<Watched>,
    /// The longest time between two looks at an object where nothing happens.
    pub idle_interval: Duration,
    /// The longest time that one reconcile may take.
    pub reconcile_timeout: Duration,
    /// How long a new node pod may take to be Ready and registered.
    pub registration_deadline: Duration,
    /// What is remembered, to save work.
    pub memories: Memories,
}

/// What all reconciles remember; a new process begins with nothing.
#[derive(Debug, Default)]
pub struct Memories {
    facts: Mutex<Option<(Facts, Instant)>>,
    versions: Mutex<Answers<KubernetesVersion>>,
    objects: Mutex<HashMap<String, Memory>>,
}

#[derive(Debug, Clone)]
struct Facts {
    cluster_uid: Option<String>,
}

/// What is remembered of one object.
#[derive(Debug, Default)]
struct Memory {
    /// Its uid. A later object of the same name starts with generation 1 again, so none of these values apply to it.
    uid: Option<String>,
    failures: u32,
    /// When the first change came that no reconcile has begun for.
    changed: Option<Instant>,
    unapplied: Unapplied,
    migration: Option<(Migration, Instant)>,
    /// The wanted objects that have been there; none before the first look of this process.
    objects: Option<BTreeSet<Key>>,
    /// The nodes that the status recorded last as broken before their pods are replaced; the watch brings that later.
    broken_before: Option<Vec<String>>,
    /// What the last look at everything has found, until something else than a volume changes.
    last_look: Option<LastLook>,
    /// How often a look at everything was called for.
    calls: u64,
    /// What a switch to this driver would change, with the generation of the spec.
    findings: Option<(Option<i64>, Vec<AdoptionFinding>, Instant)>,
    /// The last list of snapshot contents.
    snapshot_contents: Option<ListedContents>,
    /// The installations in other namespaces.
    elsewhere: Option<(Vec<String>, Instant)>,
    /// When nothing was found to take over, with the generation of the spec.
    done: Option<(Option<i64>, Instant)>,
    /// The unwatched obstacles of the last reconcile, and how often in a row they were the same.
    obstacles: (Vec<String>, u32),
    /// The generation and the reason for which the status reports a suspension.
    suspension: Option<(Option<i64>, Degraded)>,
    /// The renewals of Leases of other programs.
    leases: Arc<LeaseRenewals>,
    /// The pods of the Go driver.
    old_pods: Arc<OldPods>,
    /// Since when nodes have had no pod, or a Ready pod and no registration. No object records that.
    lacking: BTreeMap<String, Instant>,
    /// The objects that have led to a check of the credentials.
    doubts: BTreeSet<String>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Whether the operator may work in a namespace.
    pub(super) fn serves(&self, namespace: &str) -> bool {
        namespace == self.namespace || self.operand_namespaces.iter().any(|served| served == namespace)
    }

    /// The properties of the cluster for the resolver. The driver's pods depend on the present version and the present APIs, if known.
    pub(super) async fn environment(
        &self,
        namespace: &str,
        driver: &CinderCSIDriver,
        (version, apis): (Option<KubernetesVersion>, Option<OptionalApis>),
    ) -> Result<Environment, ReconcileError> {
        let facts = self.facts().await?;
        let kubernetes_version = self
            .memories
            .versions
            .lock()
            .confirmed(version, Instant::now().into_std());
        Ok(Environment {
            namespace: namespace.to_owned(),
            operator_version: VERSION.to_owned(),
            kubernetes_version,
            cluster_uid: facts.cluster_uid,
            nodes: self.cluster.read(Index::node_count),
            apis: self.used_apis(&driver.spec, apis),
            clouds: BTreeMap::new(),
            images: self.images.clone(),
            restrictions: self.restrictions.clone(),
            other_drivers: self.other_drivers(),
            default_classes: self.cluster.read(Index::default_classes),
            snapshot_controller: ControllerSight::Unseen,
            snapshot_contents: SnapshotContents::default(),
            silent_clouds: std::collections::BTreeSet::new(),
            zoned_volumes: 0,
            records: BTreeMap::new(),
            definition_mismatch: self.cluster.wrong_definition(),
            now: self.sources.now(),
        })
    }

    /// The optional APIs that the driver uses: the confirmed ones. No pod template depends on monitoring, so it is used at once.
    ///
    /// All API servers serve the same CustomResourceDefinitions. csi-snapshotter ends without its kinds, so their absence counts at once, and so
    /// does their presence if the spec requires them.
    fn used_apis(&self, spec: &CinderCSIDriverSpec, current: Option<OptionalApis>) -> OptionalApis {
        let (served, confirmed) = (self.cluster.apis(), self.cluster.confirmed_apis(current));
        let is_required = spec.snapshots.mode == SnapshotsMode::Enabled;
        OptionalApis {
            snapshots: served.snapshots && (confirmed.snapshots || is_required),
            group_snapshots: served.group_snapshots && (confirmed.group_snapshots || is_required),
            monitoring: served.monitoring,
            volume_attributes_classes: confirmed.volume_attributes_classes,
            reference_grants: served.reference_grants,
        }
    }

    /// What the drivers of the cluster take for themselves, also the one that is looked at.
    fn other_drivers(&self) -> Vec<OtherDriver> {
        let drivers = self.drivers.state();
        let known = drivers.iter().filter_map(|driver| driver.0.as_ref().ok());
        known.map(OtherDriver::of).collect()
    }

    async fn facts(&self) -> Result<Facts, ReconcileError> {
        let known = self.memories.facts.lock().clone();
        if let Some((facts, _)) = known.filter(|(_, at)| at.elapsed() < FACTS_HOLD) {
            return Ok(facts);
        }
        let version = self
            .client
            .apiserver_version()
            .await
            .map_err(|error| ReconcileError::Version(Box::new(error)))?;
        let namespaces: GuardedApi<PartialObjectMeta<Namespace>> = GuardedApi::all(self.client.clone());
        // Where it may not be read, the resolver asks for spec.clusterID.
        let cluster_uid = match namespaces.get(IDENTIFYING_NAMESPACE).await {
            Ok(namespace) => namespace.metadata.uid,
            Err(kube::Error::Api(status)) if status.code == 403 || status.code == 404 => None,
            Err(error) => return Err(ReconcileError::Version(Box::new(error))),
        };
        if let Some(version) = KubernetesVersion::parse(&version.major, &version.minor) {
            self.memories.versions.lock().add(version, Instant::now().into_std());
        }
        let facts = Facts { cluster_uid };
        *self.memories.facts.lock() = Some((facts.clone(), Instant::now()));
        Ok(facts)
    }

    fn with_memory<T>(&self, driver: &str, change: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memories = self.memories.objects.lock();
        change(memories.entry(driver.to_owned()).or_default())
    }

    /// Forgets an earlier object of the same name.
    pub(super) fn recognize(&self, driver: &str, uid: &str) {
        let is_successor = |memory: &mut Memory| memory.uid.as_deref().is_some_and(|known| known != uid);
        if self.with_memory(driver, is_successor) {
            self.forget(driver);
        }
        self.with_memory(driver, |memory| memory.uid = Some(uid.to_owned()));
    }

    /// Counts a failed reconcile; returns how many have failed in a row.
    pub(super) fn record_failure(&self, driver: &str) -> u32 {
        let failures = self.with_memory(driver, |memory| {
            memory.failures = memory.failures.saturating_add(1);
            memory.failures
        });
        self.metrics.reconcile_failures(driver, failures);
        failures
    }

    /// A reconcile succeeded.
    pub(super) fn reset_backoff(&self, driver: &str) {
        let mut memories = self.memories.objects.lock();
        // None of one that is gone: nothing of it is to be left.
        if let Some(memory) = memories.get_mut(driver) {
            memory.failures = 0;
            self.metrics.reconcile_failures(driver, 0);
        }
    }

    /// Whether this process has written the status for a suspension.
    pub(super) fn has_reported(&self, driver: &str, suspension: &(Option<i64>, Degraded)) -> bool {
        self.with_memory(driver, |memory| memory.suspension.as_ref() == Some(suspension))
    }

    /// The status was written for a suspension.
    pub(super) fn remember_suspension(&self, driver: &str, suspension: (Option<i64>, Degraded)) {
        self.with_memory(driver, |memory| memory.suspension = Some(suspension));
    }

    /// The renewals of Leases that matter to a driver.
    pub(super) fn lease_renewals(&self, driver: &str) -> Arc<LeaseRenewals> {
        self.with_memory(driver, |memory| Arc::clone(&memory.leases))
    }

    /// The pods of the Go driver that a migration replaces.
    pub(super) fn old_pods(&self, driver: &str) -> Arc<OldPods> {
        self.with_memory(driver, |memory| Arc::clone(&memory.old_pods))
    }

    /// This process holds the Lease.
    pub(super) fn end_suspension(&self, driver: &str) {
        self.with_memory(driver, |memory| memory.suspension = None);
    }

    /// A change came then that calls for a reconcile.
    pub(crate) fn changed(&self, driver: &str, at: Instant) {
        self.with_memory(driver, |memory| {
            memory.changed = Some(memory.changed.map_or(at, |first| first.min(at)));
        });
    }

    /// A reconcile begins: how long the first change has waited for it.
    pub(super) fn begin(&self, driver: &str) {
        if let Some(first) = self.with_memory(driver, |memory| memory.changed.take()) {
            self.metrics.queued(first.elapsed());
        }
    }

    /// Something has changed that calls for a look at everything.
    pub(crate) fn call_for_whole_look(&self, driver: &str) {
        self.with_memory(driver, |memory| {
            memory.calls += 1;
            memory.last_look = None;
        });
    }

    /// How often a look at everything was called for.
    pub(super) fn calls(&self, driver: &str) -> u64 {
        self.with_memory(driver, |memory| memory.calls)
    }

    /// The last look at everything, where it still holds. It has to be remembered again.
    pub(super) fn take_last_look(&self, driver: &str) -> Option<LastLook> {
        self.with_memory(driver, |memory| memory.last_look.take())
    }

    /// Remembers a look that began after so many calls; not where another one was called for meanwhile.
    pub(super) fn remember_look(&self, driver: &str, calls: u64, look: LastLook) {
        self.with_memory(driver, |memory| {
            memory.last_look = Some(look).filter(|_| memory.calls == calls);
        });
    }

    /// Whether all these objects have led to a check of the credentials before.
    pub(super) fn are_known_doubts(&self, driver: &str, objects: &BTreeSet<String>) -> bool {
        self.with_memory(driver, |memory| objects.is_subset(&memory.doubts))
    }

    /// Records the objects that have led to a check of the credentials.
    pub(super) fn remember_doubts(&self, driver: &str, objects: BTreeSet<String>) {
        self.with_memory(driver, |memory| memory.doubts = objects);
    }

    /// Drops the record of all other objects.
    pub(super) fn retain_doubts(&self, driver: &str, objects: &BTreeSet<String>) {
        self.with_memory(driver, |memory| memory.doubts.retain(|object| objects.contains(object)));
    }

    pub(super) fn unapplied(&self, driver: &str) -> Unapplied {
        self.with_memory(driver, |memory| memory.unapplied.clone())
    }

    pub(super) fn remember_unapplied(&self, driver: &str, unapplied: Unapplied) {
        self.with_memory(driver, |memory| memory.unapplied = unapplied);
    }

    /// Whether an object of the driver was there before, if this process has looked.
    pub(super) fn has_seen(&self, driver: &str, key: &Key) -> Option<bool> {
        self.with_memory(driver, |memory| {
            memory.objects.as_ref().map(|objects| objects.contains(key))
        })
    }

    /// Remembers the objects of the driver, by those that were known.
    pub(super) fn remember_objects(&self, driver: &str, now: impl FnOnce(&BTreeSet<Key>) -> BTreeSet<Key>) {
        self.with_memory(driver, |memory| {
            let known = memory.objects.take().unwrap_or_default();
            memory.objects = Some(now(&known));
        });
    }

    /// The remembered findings of the check before a migration, if they are of this spec and recent.
    pub(super) fn findings(
        &self,
        driver: &str,
        generation: Option<i64>,
        within: Duration,
    ) -> Option<Vec<AdoptionFinding>> {
        self.with_memory(driver, |memory| {
            let (seen, findings, at) = memory.findings.as_ref()?;
            (*seen == generation && at.elapsed() < within).then(|| findings.clone())
        })
    }

    /// Remembers the findings of the check before a migration.
    pub(super) fn remember_findings(&self, driver: &str, generation: Option<i64>, findings: &[AdoptionFinding]) {
        self.with_memory(driver, |memory| {
            memory.findings = Some((generation, findings.to_vec(), Instant::now()));
        });
    }

    pub(super) fn snapshot_contents(&self, driver: &str) -> Option<ListedContents> {
        self.with_memory(driver, |memory| memory.snapshot_contents.clone())
    }

    pub(super) fn remember_snapshot_contents(&self, driver: &str, listed: ListedContents) {
        self.with_memory(driver, |memory| memory.snapshot_contents = Some(listed));
    }

    /// The remembered installations in other namespaces, if they are recent.
    pub(super) fn elsewhere(&self, driver: &str, within: Duration) -> Option<Vec<String>> {
        self.with_memory(driver, |memory| {
            let (found, at) = memory.elsewhere.as_ref()?;
            (at.elapsed() < within).then(|| found.clone())
        })
    }

    /// Remembers the installations in other namespaces.
    pub(super) fn remember_elsewhere(&self, driver: &str, found: &[String]) {
        self.with_memory(driver, |memory| {
            memory.elsewhere = Some((found.to_vec(), Instant::now()));
        });
    }

    /// Nothing was found to take over.
    pub(super) fn remember_done(&self, driver: &str, generation: Option<i64>) {
        self.with_memory(driver, |memory| memory.done = Some((generation, Instant::now())));
    }

    /// Whether it was, with this spec and within the idle interval.
    pub(super) fn is_done(&self, driver: &str, generation: Option<i64>) -> bool {
        let done = self.with_memory(driver, |memory| memory.done);
        done.is_some_and(|(seen, at)| seen == generation && at.elapsed() < self.idle_interval)
    }

    /// How long a migration has been where it is.
    pub(super) fn still(&self, driver: &str, migration: &Migration) -> Duration {
        self.with_memory(driver, |memory| {
            let known = memory.migration.take().filter(|(known, _)| known == migration);
            let (_, since) = memory
                .migration
                .insert(known.unwrap_or_else(|| (migration.clone(), Instant::now())));
            since.elapsed()
        })
    }

    /// The nodes that the status records as broken before their pods are replaced, by what was written last or was read.
    pub(super) fn broken_before(&self, driver: &str, read: Option<&CinderCSIDriverStatus>) -> Vec<String> {
        let read = read.and_then(|status| status.nodes.as_ref());
        self.with_memory(driver, |memory| memory.broken_before.clone())
            .or_else(|| Some(read?.broken_before.clone()))
            .unwrap_or_default()
    }

    /// A status was written.
    pub(super) fn remember_broken(&self, driver: &str, written: &CinderCSIDriverStatus) {
        let nodes = written.nodes.as_ref();
        let broken = nodes.map(|nodes| nodes.broken_before.clone()).unwrap_or_default();
        self.with_memory(driver, |memory| memory.broken_before = Some(broken));
    }

    /// How long these nodes, and no others, have been without the driver, as far as this process has observed.
    pub(super) fn lacking(&self, driver: &str, without: &BTreeSet<&str>) -> BTreeMap<String, Duration> {
        self.with_memory(driver, |memory| {
            memory.lacking.retain(|node, _| without.contains(node.as_str()));
            for node in without {
                memory.lacking.entry((*node).to_owned()).or_insert_with(Instant::now);
            }
            let lasts = memory.lacking.iter();
            lasts.map(|(node, since)| (node.clone(), since.elapsed())).collect()
        })
    }

    /// The pause until obstacles that no watch reports are checked again: it grows while they stay the same. `None` without
    /// obstacles.
    pub(super) fn obstacle_pause(&self, driver: &str, obstacles: Vec<String>) -> Option<Duration> {
        self.with_memory(driver, |memory| {
            let (known, looks) = &mut memory.obstacles;
            *looks = if *known == obstacles {
                looks.saturating_add(1)
            } else {
                0
            };
            *known = obstacles;
            let pause = OBSTACLE_PAUSE.saturating_mul(2_u32.saturating_pow(*looks));
            (!known.is_empty()).then(|| pause.min(self.idle_interval))
        })
    }

    /// Forgets an object that is gone.
    pub(crate) fn forget(&self, driver: &str) {
        self.metrics.forget(driver);
        self.checker.forget(driver);
        self.memories.objects.lock().remove(driver);
    }
}
