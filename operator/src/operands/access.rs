//! Service accounts and what they may do. The nodes' pods may do nothing: they never talk to the Kubernetes API.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::metadata::{self, Component};
use super::{Operand, RenderError, Stage};
use crate::images;
use crate::resolve::Resolved;

const RBAC: &str = "rbac.authorization.k8s.io";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

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
    for sidecar in &resolved.controller.sidecars {
        let Some((suffix, rules)) = rules_of(resolved, sidecar.component) else {
            continue;
        };
        let name = format!("{}-{suffix}", resolved.slug);
        operands.push(Operand::new(Stage::Base, &cluster_role(resolved, name.clone(), rules))?);
        operands.push(Operand::new(Stage::Base, &cluster_role_binding(resolved, name))?);
    }
    if resolved.csi_driver.storage_capacity && resolved.controller.sidecar(images::Component::Provisioner).is_some() {
        let name = format!("{}-capacity", resolved.slug);
        operands.push(Operand::new(
            Stage::Base,
            &role(resolved, name.clone(), capacity_rules()),
        )?);
        operands.push(Operand::new(Stage::Base, &role_binding(resolved, name))?);
    }
    let name = format!("{}-leader-election", resolved.slug);
    let rules = leader_election_rules(resolved);
    operands.push(Operand::new(Stage::Base, &role(resolved, name.clone(), rules))?);
    operands.push(Operand::new(Stage::Base, &role_binding(resolved, name))?);
    Ok(operands)
}

/// An account of its own for a program beside the controller: it may do `cluster_rules` in the cluster, and have `lease` in
/// the driver's namespace.
pub(super) fn own(
    resolved: &Resolved,
    name: &str,
    component: Component,
    cluster_rules: Vec<PolicyRule>,
    lease: &str,
) -> Result<Vec<Operand>, RenderError> {
    let lease_rules = vec![
        rule("coordination.k8s.io", &["leases"], &["create"]),
        PolicyRule {
            resource_names: Some(vec![lease.to_owned()]),
            ..rule("coordination.k8s.io", &["leases"], &["get", "update"])
        },
        rule("", &["events"], &["create", "patch"]),
    ];
    let subject = || Subject {
        name: name.to_owned(),
        ..controller_subject(resolved)
    };
    let cluster_role = ClusterRole {
        metadata: metadata::remembered(resolved, name.to_owned(), component),
        ..cluster_role(resolved, name.to_owned(), cluster_rules)
    };
    let cluster_binding = ClusterRoleBinding {
        metadata: metadata::remembered(resolved, name.to_owned(), component),
        subjects: Some(vec![subject()]),
        ..cluster_role_binding(resolved, name.to_owned())
    };
    let role = Role {
        metadata: metadata::namespaced(resolved, name.to_owned(), component),
        ..role(resolved, name.to_owned(), lease_rules)
    };
    let binding = RoleBinding {
        metadata: metadata::namespaced(resolved, name.to_owned(), component),
        subjects: Some(vec![subject()]),
        ..role_binding(resolved, name.to_owned())
    };
    Ok(vec![
        Operand::new(Stage::Base, &account(resolved, name.to_owned(), component))?,
        Operand::new(Stage::Base, &cluster_role)?,
        Operand::new(Stage::Base, &cluster_binding)?,
        Operand::new(Stage::Base, &role)?,
        Operand::new(Stage::Base, &binding)?,
    ])
}

fn account(resolved: &Resolved, name: String, component: Component) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata::namespaced(resolved, name, component),
        // The pods ask for a token where they need one.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// What a sidecar may do in the whole cluster, and the end of the name of its role.
fn rules_of(resolved: &Resolved, component: images::Component) -> Option<(&'static str, Vec<PolicyRule>)> {
    Some(match component {
        images::Component::Provisioner => ("provisioner", provisioner_rules(resolved)),
        images::Component::Attacher => ("attacher", attacher_rules()),
        images::Component::Resizer => ("resizer", resizer_rules(resolved)),
        images::Component::Snapshotter => ("snapshotter", snapshotter_rules(resolved)),
        images::Component::HealthMonitor => ("health-monitor", health_monitor_rules()),
        images::Component::Driver
        | images::Component::Registrar
        | images::Component::LivenessProbe
        | images::Component::SnapshotController => return None,
    })
}

/// What csi-provisioner needs to make a PersistentVolume of a claim, and to delete it.
fn provisioner_rules(resolved: &Resolved) -> Vec<PolicyRule> {
    let mut rules = vec![
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
    ];
    if resolved.controller.sidecar(images::Component::Snapshotter).is_some() {
        rules.extend([
            // Volumes made from a snapshot; its finalizer keeps the snapshot meanwhile.
            rule(SNAPSHOTS, &["volumesnapshots"], &["get", "list", "watch", "update"]),
            rule(SNAPSHOTS, &["volumesnapshotcontents"], &["get", "list"]),
        ]);
    }
    rules.extend(attributes_rule(resolved));
    rules
}

/// Classes of attributes, where the cluster has them.
fn attributes_rule(resolved: &Resolved) -> Option<PolicyRule> {
    let classes = || {
        rule(
            "storage.k8s.io",
            &["volumeattributesclasses"],
            &["get", "list", "watch"],
        )
    };
    resolved.apis.volume_attributes_classes.then(classes)
}

/// What csi-provisioner needs to publish how much room there is, in its own namespace.
fn capacity_rules() -> Vec<PolicyRule> {
    vec![
        rule(
            "storage.k8s.io",
            &["csistoragecapacities"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
        ),
        // From its pod to the Deployment, which the objects go with.
        rule("", &["pods"], &["get"]),
        rule("apps", &["replicasets"], &["get"]),
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

/// What csi-resizer needs to let a volume grow and to change its attributes. No pods: volumes grow while they are in use.
fn resizer_rules(resolved: &Resolved) -> Vec<PolicyRule> {
    let mut rules = vec![
        // The new size.
        rule("", &["persistentvolumes"], &["get", "list", "watch", "patch"]),
        rule("", &["persistentvolumeclaims"], &["get", "list", "watch"]),
        // How far it is.
        rule("", &["persistentvolumeclaims/status"], &["patch"]),
        // Events on claims, in every namespace.
        rule("", &["events"], &["create", "patch"]),
    ];
    rules.extend(attributes_rule(resolved));
    rules
}

/// What csi-snapshotter needs to take a snapshot for a VolumeSnapshotContent, and to delete it.
fn snapshotter_rules(resolved: &Resolved) -> Vec<PolicyRule> {
    const GROUPS: &str = "groupsnapshot.storage.k8s.io";
    let mut rules = vec![
        rule(SNAPSHOTS, &["volumesnapshotclasses"], &["get", "list", "watch"]),
        rule(
            SNAPSHOTS,
            &["volumesnapshotcontents"],
            &["get", "list", "watch", "update", "patch"],
        ),
        rule(SNAPSHOTS, &["volumesnapshotcontents/status"], &["update", "patch"]),
        // Events on snapshots, in every namespace.
        rule("", &["events"], &["create", "patch"]),
    ];
    if resolved.apis.group_snapshots {
        rules.extend([
            rule(GROUPS, &["volumegroupsnapshotclasses"], &["get", "list", "watch"]),
            rule(
                GROUPS,
                &["volumegroupsnapshotcontents"],
                &["get", "list", "watch", "update", "patch"],
            ),
            rule(GROUPS, &["volumegroupsnapshotcontents/status"], &["update", "patch"]),
        ]);
    }
    rules
}

/// What the health monitor needs to tell the pods and claims of a volume that is not well.
fn health_monitor_rules() -> Vec<PolicyRule> {
    vec![
        rule(
            "",
            &["persistentvolumes", "persistentvolumeclaims", "nodes", "pods"],
            &["get", "list", "watch"],
        ),
        rule("", &["events"], &["get", "list", "watch", "create", "patch"]),
    ]
}

fn leader_election_rules(resolved: &Resolved) -> Vec<PolicyRule> {
    let sidecars = resolved.controller.sidecars.iter();
    let leases = sidecars.filter_map(|sidecar| sidecar.component.lease(&resolved.driver_name));
    vec![
        // A name cannot be checked when an object is created.
        rule("coordination.k8s.io", &["leases"], &["create"]),
        PolicyRule {
            resource_names: Some(leases.collect()),
            ..rule("coordination.k8s.io", &["leases"], &["get", "update"])
        },
        // Who became leader.
        rule("", &["events"], &["create", "patch"]),
    ]
}

fn role(resolved: &Resolved, name: String, rules: Vec<PolicyRule>) -> Role {
    Role {
        metadata: metadata::namespaced(resolved, name, Component::Controller),
        rules: Some(rules),
    }
}

fn role_binding(resolved: &Resolved, name: String) -> RoleBinding {
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

pub(super) fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}
