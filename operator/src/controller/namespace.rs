// SPDX-License-Identifier: Apache-2.0
//! Compares the namespace of the spec (`spec.operandNamespace`) with the recorded namespace of a driver, and with the namespaces that the
//! operator serves.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::{
    cluster::{KINDS, Key, kind},
    manifests::OPERAND_NAMESPACE_ANNOTATION,
    problem::Problem,
    reasons::Degraded,
    resolve::namespace_of,
};
use serde_json::Value;

use super::{context::Context, driver_ref::DriverRef};
use crate::{
    error::ReconcileError,
    observe::{self, ObserveError},
};

/// Annotation with the uid of the object: confirms that the driver moves to the namespace of the operator.
pub(super) const MOVE_NAMESPACE: &str = "csi.openstack.org/move-namespace";

/// The longest name of a namespace.
const LONGEST_NAME: usize = 63;

/// How an administrator adds a namespace to the operator.
const REMEDY: &str = "with the chart, add it to the value operandNamespaces; with kustomize, write it into \
                      config/rbac/operand-namespace, apply that, and give the operator the argument --operand-namespaces";

/// The problem of a driver in a namespace that the operator does not serve. The operator has no watches there.
pub(super) fn unserved(driver: &CinderCSIDriver, context: &Context) -> Option<Problem> {
    let namespace = namespace_of(driver, &context.namespace);
    (!context.serves(namespace)).then(|| Problem {
        reason: Degraded::OperandNamespaceNotServed,
        message: format!(
            "spec.operandNamespace is {namespace}, which is none of the namespaces that the operator serves; nothing is changed. Create \
             the namespace, then {REMEDY}"
        ),
    })
}

/// The problem of missing rights in the namespace of a driver, if the API server refused a read for that reason.
pub(super) fn forbidden(namespace: &str, context: &Context, error: &ReconcileError) -> Option<Problem> {
    let (source, is_there) = match error {
        ReconcileError::Observe(ObserveError::List { plural, source }) => {
            let is_there = KINDS.iter().any(|kind| kind.namespaced && kind.plural == plural);
            (&**source, is_there)
        }
        ReconcileError::Observe(ObserveError::Get { key, source }) => (&**source, key.namespace.is_some()),
        ReconcileError::Lease(error) => (error.answer()?, true),
        _ => return None,
    };
    match source {
        kube::Error::Api(status) if status.code == 403 && is_there && namespace != context.namespace => Some(Problem {
            reason: Degraded::OperandNamespaceForbidden,
            message: format!(
                "the operator lacks its role in namespace {namespace} (spec.operandNamespace), or the namespace does not exist; \
                 nothing is changed. The API server says: {}. Create the namespace, then {REMEDY}",
                status.message.trim_end_matches('.')
            ),
        }),
        _ => None,
    }
}

/// Where a driver runs, seen from this operator.
#[derive(Debug)]
pub(super) enum Residence {
    /// In the namespace where this operator would run it.
    Here,
    /// The driver was never installed.
    New,
    /// In another or an unknown namespace.
    Elsewhere(Elsewhere),
}

/// A driver that runs in another namespace.
#[derive(Debug)]
pub(super) struct Elsewhere {
    pub(super) problem: Problem,
    /// The recorded namespaces. Several if the records disagree, none if the namespace is unknown.
    pub(super) namespaces: Vec<String>,
}

impl Elsewhere {
    /// The recorded namespace, if the records agree.
    pub(super) fn only_namespace(&self) -> Option<&str> {
        match self.namespaces.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// Determines where the driver runs: by the status, the annotation of the CSIDriver object, or the existing objects.
pub(super) async fn find_residence(context: &Context, driver: &DriverRef<'_>) -> Result<Residence, ReconcileError> {
    let (context, here) = (context, driver.namespace);
    let key = Key::new(kind::CSI_DRIVER, None, &driver.owner.name);
    let mut objects = BTreeMap::new();
    observe::complete(&context.client, &mut objects, std::slice::from_ref(&key)).await?;
    let csi_driver = objects.get(&key);
    let annotation = csi_driver.and_then(|object| {
        let annotations = &object["metadata"]["annotations"];
        annotations[OPERAND_NAMESPACE_ANNOTATION].as_str()
    });
    let status = driver.object.status.as_ref();
    let recorded = status.and_then(|status| status.operand_namespace.as_deref());
    let records: BTreeSet<&str> = [recorded, annotation]
        .into_iter()
        .flatten()
        .filter(|name| is_namespace(name))
        .collect();
    match records.iter().copied().collect::<Vec<_>>().as_slice() {
        [only] if *only == here => return Ok(Residence::Here),
        [only] => return Ok(Residence::Elsewhere(describe_elsewhere(driver, &[only]))),
        _ => {}
    }
    let live = observe::live(&context.client, &driver.owner, here, context.cluster.apis()).await?;
    let bound = subject_namespaces(&live);
    let is_here = live.keys().any(|key| key.namespace.is_some());
    if !records.is_empty() {
        let is_ours = records.contains(here) && bound.iter().eq([here]);
        return Ok(if is_ours {
            Residence::Here
        } else {
            let names: Vec<&str> = records.into_iter().collect();
            Residence::Elsewhere(describe_elsewhere(driver, &names))
        });
    }
    let has_run = csi_driver.is_some_and(|object| driver.owner.owns(object))
        || status.is_some_and(|status| status.version.is_some());
    Ok(match bound.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [only] if *only == here => Residence::Here,
        [] if is_here => Residence::Here,
        [] if !has_run => Residence::New,
        [] => Residence::Elsewhere(describe_unknown_residence(driver)),
        others => Residence::Elsewhere(describe_elsewhere(driver, others)),
    })
}

/// Records the namespace before any object is created. The record of an operator that did so first remains.
pub(super) async fn claim_namespace(
    context: &Context,
    driver: &DriverRef<'_>,
) -> Result<Option<Elsewhere>, ReconcileError> {
    let here = driver.namespace;
    let claimed = context.writer.claim_namespace(driver.object, here, None).await;
    let claimed = claimed.map_err(ReconcileError::Status)?;
    Ok((claimed != here).then(|| describe_elsewhere(driver, &[&claimed])))
}

fn describe_elsewhere(driver: &DriverRef<'_>, namespaces: &[&str]) -> Elsewhere {
    let (here, namespace) = (driver.namespace, namespaces.join(" or "));
    let problem = Problem {
        reason: Degraded::OperandsElsewhere,
        message: format!(
            "the driver runs in namespace {namespace}, and this operator would run it in namespace {here}; nothing is changed. \
             Install the operator in namespace {namespace} again; or let this operator maintain the driver there: set \
             spec.operandNamespace to {namespace}, and {REMEDY}. To move the driver to {here}, set the annotation {MOVE_NAMESPACE} to \
             its uid, as the runbook describes"
        ),
    };
    Elsewhere {
        problem,
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
    }
}

fn describe_unknown_residence(driver: &DriverRef<'_>) -> Elsewhere {
    let (here, name) = (driver.namespace, &driver.owner.name);
    let problem = Problem {
        reason: Degraded::OperandsElsewhere,
        message: format!(
            "objects of the driver exist, none of them is in namespace {here}, and the record of its namespace is missing; nothing is \
             changed. Set the annotation {OPERAND_NAMESPACE_ANNOTATION} of CSIDriver {name} to the namespace of the driver's \
             DaemonSet, or to {here} if there is none"
        ),
    };
    Elsewhere {
        problem,
        namespaces: Vec::new(),
    }
}

fn is_namespace(name: &str) -> bool {
    let is_valid = |character: u8| character.is_ascii_lowercase() || character.is_ascii_digit() || character == b'-';
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_valid)
}

/// The namespaces of the accounts that have the rights of the driver in the cluster.
fn subject_namespaces(live: &BTreeMap<Key, Value>) -> BTreeSet<String> {
    let bindings = live.iter().filter(|(key, _)| key.kind == kind::CLUSTER_ROLE_BINDING);
    let subjects = bindings.flat_map(|(_, binding)| binding["subjects"].as_array().into_iter().flatten());
    let namespaces = subjects.filter_map(|subject| subject["namespace"].as_str());
    namespaces
        .filter(|name| is_namespace(name))
        .map(str::to_owned)
        .collect()
}
