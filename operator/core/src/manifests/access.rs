// SPDX-License-Identifier: Apache-2.0
//! Service accounts, the roles of `roles.yaml`, and their bindings.

use std::sync::LazyLock;

use cinder_csi_crds::{CinderCSIDriver, SidecarName};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use serde::Deserialize;

use super::metadata::{self, ComponentLabel};
use super::operand::{Operand, RenderError, Stage};
use crate::resolve::{Resolved, name_prefix_of};
use crate::templates::{self, Template};

const RBAC: &str = "rbac.authorization.k8s.io";
/// Placeholder for the names of the Leases of a driver's sidecars.
const LEASES: &str = "$LEASES";
/// Placeholder for the names of the Secrets of classes.
const CLASS_SECRETS: &str = "$CLASS_SECRETS";

/// Service account of the controller pods.
pub(super) fn controller_account(resolved: &Resolved) -> String {
    format!("{}-controller", resolved.name_prefix)
}

/// Service account of the controller pods of a driver with an unresolved spec.
pub fn controller_account_of(driver: &CinderCSIDriver) -> String {
    format!("{}-controller", name_prefix_of(driver))
}

/// Service account of the node pods.
pub(super) fn node_account(resolved: &Resolved) -> String {
    format!("{}-node", resolved.name_prefix)
}

static ROLES: Template<Vec<RoleTemplate>> = LazyLock::new(|| templates::read(include_str!("roles.yaml")));

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleTemplate {
    kind: RoleKind,
    /// Suffix of the name, after the prefix of the driver.
    name: String,
    requires: Option<Requirement>,
    rules: Vec<RuleTemplate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum RoleKind {
    ClusterRole,
    Role,
}

#[derive(Debug, Deserialize)]
struct RuleTemplate {
    requires: Option<Requirement>,
    #[serde(flatten)]
    rule: PolicyRule,
}

/// A condition on the driver or its cluster under which a role or rule applies.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Requirement {
    StorageCapacity,
    ClassSecrets,
    VolumeAttributesClasses,
    GroupSnapshots,
    CrossNamespaceSources,
    #[serde(untagged)]
    Sidecar(SidecarName),
}

impl Requirement {
    fn is_met(self, resolved: &Resolved) -> bool {
        let runs = |sidecar| resolved.controller.runs(sidecar);
        match self {
            Self::Sidecar(name) => runs(name),
            Self::StorageCapacity => resolved.csi_driver.storage_capacity && runs(SidecarName::Provisioner),
            Self::ClassSecrets => !resolved.class_secrets.is_empty(),
            Self::VolumeAttributesClasses => resolved.apis.volume_attributes_classes,
            Self::GroupSnapshots => resolved.apis.group_snapshots,
            Self::CrossNamespaceSources => resolved.controller.cross_namespace_sources,
        }
    }
}

fn is_met(requires: Option<Requirement>, resolved: &Resolved) -> bool {
    requires.is_none_or(|requirement| requirement.is_met(resolved))
}

pub(super) fn operands(resolved: &Resolved) -> Result<Vec<Operand>, RenderError> {
    let mut operands = vec![
        Operand::new(
            Stage::Base,
            &account(resolved, controller_account(resolved), ComponentLabel::Controller),
        )?,
        Operand::new(
            Stage::Base,
            &account(resolved, node_account(resolved), ComponentLabel::Node),
        )?,
    ];
    let templates = templates::get(&ROLES).map_err(|source| RenderError::new("Role", source))?;
    for template in templates.iter().filter(|role| is_met(role.requires, resolved)) {
        let name = format!("{}-{}", resolved.name_prefix, template.name);
        let rules = rules(template, resolved);
        operands.extend(match template.kind {
            RoleKind::ClusterRole => [
                Operand::new(Stage::Base, &cluster_role(resolved, name.clone(), rules))?,
                Operand::new(Stage::Base, &cluster_role_binding(resolved, name))?,
            ],
            RoleKind::Role => [
                Operand::new(Stage::Base, &role(resolved, name.clone(), rules))?,
                Operand::new(Stage::Base, &role_binding(resolved, name))?,
            ],
        });
    }
    Ok(operands)
}

/// Returns the rules of a role that this driver needs, with the names of its sidecars' Leases and its classes'
/// Secrets.
fn rules(template: &RoleTemplate, resolved: &Resolved) -> Vec<PolicyRule> {
    let needed = template.rules.iter().filter(|rule| is_met(rule.requires, resolved));
    let mut rules: Vec<PolicyRule> = needed.map(|rule| rule.rule.clone()).collect();
    for names in rules.iter_mut().filter_map(|rule| rule.resource_names.as_mut()) {
        if *names == [LEASES] {
            let sidecars = resolved.controller.sidecars.iter();
            *names = sidecars
                .filter_map(|sidecar| sidecar.component.row().lease(&resolved.driver_name))
                .collect();
        }
        if *names == [CLASS_SECRETS] {
            *names = resolved.class_secrets.iter().cloned().collect();
        }
    }
    rules
}

fn account(resolved: &Resolved, name: String, component: ComponentLabel) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata::namespaced(resolved, name, component),
        // Pods that need a token mount it explicitly.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

fn role(resolved: &Resolved, name: String, rules: Vec<PolicyRule>) -> Role {
    Role {
        metadata: metadata::namespaced(resolved, name, ComponentLabel::Controller),
        rules: Some(rules),
    }
}

fn role_binding(resolved: &Resolved, name: String) -> RoleBinding {
    RoleBinding {
        metadata: metadata::namespaced(resolved, name.clone(), ComponentLabel::Controller),
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
        metadata: metadata::owner_annotated(resolved, name, ComponentLabel::Controller),
        rules: Some(rules),
        ..ClusterRole::default()
    }
}

fn cluster_role_binding(resolved: &Resolved, name: String) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: metadata::owner_annotated(resolved, name.clone(), ComponentLabel::Controller),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn role_template_is_parsed_completely() {
        let text: Value = serde_yaml::from_str(include_str!("roles.yaml")).expect("YAML");
        let roles = templates::get(&ROLES).expect("roles");
        for (role, given) in roles.iter().zip(text.as_array().expect("a list")) {
            for (rule, given) in role.rules.iter().zip(given["rules"].as_array().expect("rules")) {
                let mut given = given.clone();
                given.as_object_mut().expect("a rule").remove("requires");
                assert_eq!(json!(rule.rule), given, "{}", role.name);
            }
        }
    }
}
