//! Service accounts and what they may do. The nodes' pods may do nothing: they never talk to the Kubernetes API.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::metadata::{self, Component};
use super::{Operand, RenderError, Stage};
use crate::resolve::Resolved;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Service account of the controller's pods.
pub(super) fn controller_account(resolved: &Resolved) -> String {
    format!("{}-controller", resolved.slug)
}

/// Service account of the nodes' pods.
pub(super) fn node_account(resolved: &Resolved) -> String {
    format!("{}-node", resolved.slug)
}

pub(super) fn operands(resolved: &Resolved) -> Result<Vec<Operand>, RenderError> {
    let mut operands = vec![
        Operand::new(
            Stage::Base,
            &account(resolved, controller_account(resolved), Component::Controller),
        )?,
        Operand::new(Stage::Base, &account(resolved, node_account(resolved), Component::Node))?,
    ];
    for (suffix, rules) in [("provisioner", provisioner_rules()), ("attacher", attacher_rules())] {
        let name = format!("{}-{suffix}", resolved.slug);
        operands.push(Operand::new(Stage::Base, &cluster_role(resolved, name.clone(), rules))?);
        operands.push(Operand::new(Stage::Base, &cluster_role_binding(resolved, name))?);
    }
    let name = format!("{}-leader-election", resolved.slug);
    operands.push(Operand::new(
        Stage::Base,
        &leader_election_role(resolved, name.clone()),
    )?);
    operands.push(Operand::new(Stage::Base, &leader_election_binding(resolved, name))?);
    Ok(operands)
}

fn account(resolved: &Resolved, name: String, component: Component) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata::namespaced(resolved, name, component),
        // The pods ask for a token where they need one.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// What csi-provisioner needs to make a PersistentVolume of a claim, and to delete it.
fn provisioner_rules() -> Vec<PolicyRule> {
    vec![
        rule(
            "",
            &["persistentvolumes"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        // It writes the node that a pod was scheduled to, and finalizers.
        rule("", &["persistentvolumeclaims"], &["get", "list", "watch", "update"]),
        rule("storage.k8s.io", &["storageclasses"], &["get", "list", "watch"]),
        // Zones of the nodes.
        rule("", &["nodes"], &["get", "list", "watch"]),
        rule("storage.k8s.io", &["csinodes"], &["get", "list", "watch"]),
        // It does not delete a volume that is still attached.
        rule("storage.k8s.io", &["volumeattachments"], &["get", "list", "watch"]),
        // Events on claims, in every namespace.
        rule("", &["events"], &["create", "patch"]),
    ]
}

/// What csi-attacher needs to carry VolumeAttachments out.
fn attacher_rules() -> Vec<PolicyRule> {
    vec![
        // Its finalizer on the volume.
        rule("", &["persistentvolumes"], &["get", "list", "watch", "patch"]),
        rule("storage.k8s.io", &["csinodes"], &["get", "list", "watch"]),
        rule(
            "storage.k8s.io",
            &["volumeattachments"],
            &["get", "list", "watch", "patch"],
        ),
        rule("storage.k8s.io", &["volumeattachments/status"], &["patch"]),
    ]
}

fn leader_election_role(resolved: &Resolved, name: String) -> Role {
    // The sidecars derive the names of their leases from the driver's.
    let driver = resolved.driver_name.replace('.', "-");
    let leases = vec![driver.clone(), format!("external-attacher-leader-{driver}")];
    Role {
        metadata: metadata::namespaced(resolved, name, Component::Controller),
        rules: Some(vec![
            // A name cannot be checked when an object is created.
            rule("coordination.k8s.io", &["leases"], &["create"]),
            PolicyRule {
                resource_names: Some(leases),
                ..rule("coordination.k8s.io", &["leases"], &["get", "update"])
            },
            // Who became leader.
            rule("", &["events"], &["create", "patch"]),
        ]),
    }
}

fn leader_election_binding(resolved: &Resolved, name: String) -> RoleBinding {
    RoleBinding {
        metadata: metadata::namespaced(resolved, name.clone(), Component::Controller),
        role_ref: RoleRef {
            api_group: Some(RBAC.into()),
            kind: "Role".into(),
            name,
        },
        subjects: Some(vec![controller_subject(resolved)]),
    }
}

fn cluster_role(resolved: &Resolved, name: String, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole {
        metadata: metadata::remembered(resolved, name, Component::Controller),
        rules: Some(rules),
        ..ClusterRole::default()
    }
}

fn cluster_role_binding(resolved: &Resolved, name: String) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: metadata::remembered(resolved, name.clone(), Component::Controller),
        role_ref: RoleRef {
            api_group: Some(RBAC.into()),
            kind: "ClusterRole".into(),
            name,
        },
        subjects: Some(vec![controller_subject(resolved)]),
    }
}

fn controller_subject(resolved: &Resolved) -> Subject {
    Subject {
        kind: "ServiceAccount".into(),
        name: controller_account(resolved),
        namespace: Some(resolved.namespace.clone()),
        ..Subject::default()
    }
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}
