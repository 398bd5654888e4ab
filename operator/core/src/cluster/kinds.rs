// SPDX-License-Identifier: Apache-2.0
//! All kinds of objects that the operator creates.

use kube::api::ApiResource;

use super::{OptionalApi, OptionalApis};

/// A kind of object in the API.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// API group. Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// Plural name in URLs.
    pub plural: &'static str,
    /// Whether objects belong to a namespace.
    pub namespaced: bool,
    /// The optional API that contains the kind. `None` if every cluster serves the kind.
    pub optional: Option<OptionalApi>,
}

impl Kind {
    /// Restricts the kind to clusters that serve `api`.
    const fn only_with(self, api: OptionalApi) -> Self {
        Self {
            optional: Some(api),
            ..self
        }
    }

    /// Whether a cluster with these optional APIs serves the kind.
    pub fn is_served(&self, apis: OptionalApis) -> bool {
        self.optional.is_none_or(|api| apis.has(api))
    }

    /// Converts the kind for clients of dynamic objects.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.into(),
            version: self.version.into(),
            api_version: self.api_version(),
            kind: self.kind.into(),
            plural: self.plural.into(),
        }
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.into()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind {
        group,
        version,
        kind,
        plural,
        namespaced,
        optional: None,
    }
}

/// Every kind that any release has created. The operator searches these kinds for obsolete objects. Therefore a kind
/// remains in the list when the operator no longer creates objects of it.
pub static KINDS: &[Kind] = &[
    kind("", "v1", "ServiceAccount", "serviceaccounts", true),
    kind("", "v1", "Secret", "secrets", true),
    kind("rbac.authorization.k8s.io", "v1", "Role", "roles", true),
    kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true),
    kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false),
    kind(
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        false,
    ),
    kind("storage.k8s.io", "v1", "CSIDriver", "csidrivers", false),
    kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true),
    kind("apps", "v1", "Deployment", "deployments", true),
    kind("apps", "v1", "DaemonSet", "daemonsets", true),
    kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", false),
    kind(
        "storage.k8s.io",
        "v1",
        "VolumeAttributesClass",
        "volumeattributesclasses",
        false,
    )
    .only_with(OptionalApi::VolumeAttributesClasses),
    kind(
        "snapshot.storage.k8s.io",
        "v1",
        "VolumeSnapshotClass",
        "volumesnapshotclasses",
        false,
    )
    .only_with(OptionalApi::Snapshots),
    kind(
        "groupsnapshot.storage.k8s.io",
        "v1",
        "VolumeGroupSnapshotClass",
        "volumegroupsnapshotclasses",
        false,
    )
    .only_with(OptionalApi::GroupSnapshots),
    kind("", "v1", "Service", "services", true),
    kind("", "v1", "ConfigMap", "configmaps", true),
    kind("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", true).only_with(OptionalApi::Monitoring),
    kind("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules", true).only_with(OptionalApi::Monitoring),
];

/// Returns the kind with this API version and name.
pub(crate) fn of(api_version: &str, name: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| kind.kind == name && kind.api_version() == api_version)
}
