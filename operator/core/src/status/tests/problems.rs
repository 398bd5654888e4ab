// SPDX-License-Identifier: Apache-2.0
//! Problems that condition Degraded reports.

use super::*;

#[test]
fn foreign_storage_class_is_named_with_remedy() {
    let key = Key::new(kind::STORAGE_CLASS, None, "fast");
    let report = but(mk_healthy(), |report| {
        report.decision.plan.obstacles = vec![Obstacle::Foreign {
            key,
            maker: "kubectl-create".to_owned(),
        }];
    });
    assert_eq!(verdicts(&report)[2], "Degraded=True/OwnershipConflict");
    let message = message(&report, ConditionType::Degraded);
    for part in [
        "StorageClass fast",
        "kubectl-create",
        "spec.storageClasses.items",
        "kubectl delete storageclass fast",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn many_foreign_objects_are_counted() {
    let foreign = |kind, number| Obstacle::Foreign {
        key: Key::new(kind, None, &format!("x{number:02}")),
        maker: "field manager kubectl".to_owned(),
    };
    let obstacles = (0..12).map(|number| foreign(kind::CLUSTER_ROLE_BINDING, number));
    let report = but(mk_healthy(), |report| {
        report.decision.plan.obstacles = obstacles.chain([foreign(kind::STORAGE_CLASS, 0)]).collect();
    });
    assert_eq!(
        message(&report, ConditionType::Degraded),
        "12 objects exist, were made by field manager kubectl and are left alone: ClusterRoleBinding x00, ClusterRoleBinding x01, \
         ClusterRoleBinding x02, ClusterRoleBinding x03, ClusterRoleBinding x04, ClusterRoleBinding x05, ClusterRoleBinding x06, \
         ClusterRoleBinding x07, ClusterRoleBinding x08, ClusterRoleBinding x09 and 2 more. Delete or rename them if nothing needs \
         them any more; status.pendingChanges lists them while managementState is DryRun | StorageClass x00 exists, was made by \
         field manager kubectl and is left alone. Use another name in spec.storageClasses.items, or delete it (`kubectl delete storageclass x00`; volumes \
         made from it stay)"
    );
}

#[test]
fn most_severe_problem_determines_reason() {
    let report = but(mk_healthy(), |report| {
        report.facts.clouds = vec![refused()];
        report.outcome.failures = vec![FailedWrite {
            key: Key::new(kind::SECRET, Some("ns"), "s"),
            message: "Forbidden: no".to_owned(),
        }];
        report.outcome.controller = Some(Workload {
            stalled: Some("quota exceeded".to_owned()),
            ..mk_workload(2, 2, 2)
        });
    });
    assert_eq!(verdicts(&report)[2], "Degraded=True/CredentialsRejected");
    let message = message(&report, ConditionType::Degraded);
    assert!(
        message.contains("Secret ns/s") && message.contains("quota exceeded"),
        "{message}"
    );
}
