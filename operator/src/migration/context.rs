// SPDX-License-Identifier: Apache-2.0
//! The driver that replaces another installation, and the clients for it.

use std::sync::Arc;

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::{cluster::Owner, problem::Problem, reasons::Degraded};
use kube::Client;

use super::memory::MigrationMemory;
use crate::{
    apply::Writer,
    observe::{Cluster, LeaseRenewals},
};

/// The driver that replaces another installation, and the clients for it.
pub(crate) struct MigrationContext<'a> {
    pub(crate) client: &'a Client,
    pub(crate) writer: &'a Writer,
    pub(crate) cluster: &'a Cluster,
    pub(crate) object: &'a CinderCSIDriver,
    /// The owner of the driver's objects.
    pub(crate) owner: &'a Owner,
    /// The namespace where the driver runs.
    pub(crate) namespace: &'a str,
    pub(crate) memory: Arc<MigrationMemory>,
    /// The observed renewals of Leases of other programs.
    pub(crate) renewals: Arc<LeaseRenewals>,
}

impl MigrationContext<'_> {
    /// The namespace of the other installation.
    pub(super) fn old_namespace(&self) -> &str {
        &self.object.spec.adoption.namespace
    }
}

/// The problem of a missing right in the namespace of the other installation.
pub(super) fn describe_missing_right(plural: &str, namespace: &str) -> Problem {
    Problem {
        reason: Degraded::AdoptionForbidden,
        message: format!(
            "the operator may not read or change {plural} in namespace {namespace}, which a migration and its way back need. \
             `kubectl apply -k config/rbac/adoption` gives it the role in kube-system. For another namespace change it there \
             and in spec.adoption.namespace"
        ),
    }
}
