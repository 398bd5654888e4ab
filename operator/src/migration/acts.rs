// SPDX-License-Identifier: Apache-2.0
//! Carries out the acts of a migration.

use cinder_operator_core::{decide::Decision, migration::Act, notice::Notice, problem::Problem, reasons::Event};

use super::context::{MigrationContext, describe_missing_right};
use crate::{error::ReconcileError, kubernetes::ApplyError};

/// Carries out the acts of a migration. Returns the problem if a right is missing.
pub(crate) async fn carry_out_acts(
    context: &MigrationContext<'_>,
    decision: &Decision,
    notices: &mut Vec<Notice>,
) -> Result<Option<Problem>, ReconcileError> {
    let namespace = context.old_namespace();
    let acts = decision.migration.iter().flat_map(|migration| &migration.acts);
    for act in acts {
        match context.writer.migrate(namespace, act).await {
            Ok(()) => notices.extend(act_event(act, namespace)),
            Err(ApplyError::Refused { code: 403, .. }) => {
                let plural = match act {
                    Act::Orphan(_) => "daemonsets",
                    Act::Replace(_) => "pods",
                    _ => "deployments",
                };
                return Ok(Some(describe_missing_right(plural, namespace)));
            }
            Err(source) => {
                return Err(ReconcileError::Migrate {
                    act: describe_act(act, namespace),
                    source,
                });
            }
        }
    }
    Ok(None)
}

fn act_event(act: &Act, namespace: &str) -> Option<Notice> {
    match act {
        Act::Write(..) => None,
        Act::GiveBack(_, Some(_)) => Some(Notice::new(Event::MigrationFailed, describe_act(act, namespace))),
        _ => Some(Notice::new(Event::AdoptionStepDone, describe_act(act, namespace))),
    }
}

fn describe_act(act: &Act, namespace: &str) -> String {
    match act {
        Act::ScaleDown(controller, note) => format!(
            "{} {namespace}/{} of the other installation is scaled to 0 (it had {})",
            controller.kind, controller.name, note.replicas
        ),
        Act::Write(controller, _) => format!(
            "the step of the migration is recorded on {} {namespace}/{}",
            controller.kind, controller.name
        ),
        Act::GiveBack(controller, note) => {
            let reason = note.as_ref().and_then(|note| note.reason.as_deref());
            format!(
                "{} {namespace}/{} of the other installation has its {} pods again: {}",
                controller.kind,
                controller.name,
                controller.note.as_ref().map_or(1, |known| known.replicas),
                reason.unwrap_or("spec.adoption.mode is no longer Migrate")
            )
        }
        Act::Withdraw(key, _) => format!("{key} is removed, because the other installation goes on"),
        Act::Orphan(set) => format!(
            "DaemonSet {namespace}/{} of the other installation is deleted, its pods go on",
            set.name
        ),
        Act::Replace(pod) => format!(
            "pod {namespace}/{} of the other installation is deleted: the driver on node {} changes",
            pod.name, pod.node
        ),
    }
}
