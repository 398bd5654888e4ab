// SPDX-License-Identifier: Apache-2.0
//! The clients and settings that all reconciles share.

use std::{fmt, sync::Arc, time::Duration};

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::{cluster::GuardedObject, releases::InstalledImages, restrictions::Restrictions};
use csi_sources::Sources;
use kube::{Client, runtime::reflector::Store};
use tokio::time::Instant;

use super::memory::{Memories, ObjectMemory};
use crate::{
    apply::Writer,
    events::Events,
    metrics::Metrics,
    migration::MigrationMemory,
    object_leases::ObjectLeases,
    observe::{Cluster, LeaseRenewals},
    openstack::LoginCheck,
};

/// A watched object. An object that does not decode must not stop the reconciles of other objects.
pub type Watched = GuardedObject<CinderCSIDriver>;

/// The clients and settings that all reconciles share.
pub struct Context {
    pub client: Client,
    pub writer: Writer,
    pub events: Events,
    pub metrics: Arc<Metrics>,
    /// The source of wall time.
    pub sources: Sources,
    /// The watched objects.
    pub cluster: Cluster,
    pub login_check: LoginCheck,
    /// The operator's namespace.
    pub namespace: String,
    /// Other namespaces that the operator serves.
    pub operand_namespaces: Vec<String>,
    pub leases: Arc<ObjectLeases>,
    pub images: InstalledImages,
    /// The restrictions of specs by the operator's flags.
    pub restrictions: Restrictions,
    /// All `CinderCSIDriver` objects of the cluster.
    pub drivers: Store<Watched>,
    /// The longest time between two reconciles of an object.
    pub idle_interval: Duration,
    /// Time limit of one reconcile.
    pub reconcile_timeout: Duration,
    /// How long a new node pod may take to be Ready and registered.
    pub registration_deadline: Duration,
    pub memories: Memories,
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

    /// Reads or changes the memory about an object.
    pub(super) fn memory<T>(&self, driver: &str, access: impl FnOnce(&mut ObjectMemory) -> T) -> T {
        self.memories.with_object(driver, access)
    }

    /// Forgets an earlier object of the same name.
    pub(super) fn recognize(&self, driver: &str, uid: &str) {
        if self.memories.is_of_other_uid(driver, uid) {
            self.forget(driver);
        }
        self.memories.set_uid(driver, uid);
    }

    /// The observed renewals of Leases of other programs.
    pub(super) fn lease_renewals(&self, driver: &str) -> Arc<LeaseRenewals> {
        self.memory(driver, |memory| Arc::clone(&memory.leases))
    }

    /// The last observations of a migration.
    pub(super) fn migration_memory(&self, driver: &str) -> Arc<MigrationMemory> {
        self.memory(driver, |memory| Arc::clone(&memory.migration))
    }

    /// Records a change at this time that requires a reconcile.
    pub(crate) fn record_change(&self, driver: &str, at: Instant) {
        self.memory(driver, |memory| memory.record_change(at));
    }

    /// Records that a change requires a full reconcile.
    pub(crate) fn request_full_reconcile(&self, driver: &str) {
        self.memory(driver, |memory| memory.volumes.request_full_reconcile());
    }

    /// Forgets a deleted object.
    pub(crate) fn forget(&self, driver: &str) {
        self.metrics.forget(driver);
        self.login_check.forget(driver);
        self.memories.forget_object(driver);
    }
}
