// SPDX-License-Identifier: Apache-2.0
//! Drivers that run in another namespace than the operator (spec.operandNamespace).

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::{cluster::KINDS, problem::Problem, reasons::Degraded, resolve::namespace_of};

use super::Context;
use crate::observe::ObserveError;

/// How the operator is given a namespace.
const REMEDY: &str = "with the chart, add it to the value operandNamespaces; with kustomize, write it into \
                      config/rbac/operand-namespace, apply that, and give the operator the argument --operand-namespaces";

/// Why nothing is done about a driver whose namespace the operator was not told of: what happens there, it would not hear.
pub(super) fn unserved(driver: &CinderCSIDriver, context: &Context) -> Option<Problem> {
    let namespace = namespace_of(driver, &context.namespace);
    let is_served = namespace == context.namespace || context.operand_namespaces.iter().any(|one| one == namespace);
    (!is_served).then(|| Problem {
        reason: Degraded::OperandNamespaceNotServed,
        message: format!(
            "spec.operandNamespace is {namespace}, which is none of the namespaces that the operator serves; nothing is changed. Create \
             the namespace, then {REMEDY}"
        ),
    })
}

/// What the operator lacks in the namespace of a driver, where the API server refused a look for want of rights.
pub(super) fn forbidden(driver: &CinderCSIDriver, context: &Context, error: &ObserveError) -> Option<Problem> {
    let namespace = namespace_of(driver, &context.namespace);
    let (source, is_there) = match error {
        ObserveError::List { plural, source } => {
            let is_there = KINDS.iter().any(|kind| kind.namespaced && kind.plural == plural);
            (source, is_there)
        }
        ObserveError::Get { key, source } => (source, key.namespace.is_some()),
        _ => return None,
    };
    match &**source {
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
