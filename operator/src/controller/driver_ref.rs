// SPDX-License-Identifier: Apache-2.0
//! The object of one reconcile.

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::{cluster::Owner, resolve::namespace_of};
use kube::ResourceExt;

use super::context::Context;
use crate::migration::MigrationContext;

/// The object of one reconcile, and the values that all its functions derive from it.
pub(super) struct DriverRef<'a> {
    pub(super) object: &'a CinderCSIDriver,
    /// The owner of the driver's objects.
    pub(super) owner: Owner,
    /// The namespace where the driver runs.
    pub(super) namespace: &'a str,
    /// The number of requests for a full reconcile when this reconcile began.
    pub(super) calls: u64,
}

impl<'a> DriverRef<'a> {
    pub(super) fn new(object: &'a CinderCSIDriver, context: &'a Context) -> Self {
        let owner = Owner {
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
        };
        Self {
            object,
            calls: context.memory(&owner.name, |memory| memory.volumes.calls()),
            owner,
            namespace: namespace_of(object, &context.namespace),
        }
    }

    /// The object and the clients for a migration.
    pub(super) fn migration<'b>(&'b self, context: &'b Context) -> MigrationContext<'b> {
        MigrationContext {
            client: &context.client,
            writer: &context.writer,
            cluster: &context.cluster,
            object: self.object,
            owner: &self.owner,
            namespace: self.namespace,
            memory: context.migration_memory(&self.owner.name),
            renewals: context.lease_renewals(&self.owner.name),
        }
    }

    /// The same object, for the part of the driver in another namespace.
    pub(super) fn in_namespace<'b>(&self, namespace: &'b str) -> DriverRef<'b>
    where
        'a: 'b,
    {
        DriverRef {
            object: self.object,
            owner: self.owner.clone(),
            namespace,
            calls: self.calls,
        }
    }
}
