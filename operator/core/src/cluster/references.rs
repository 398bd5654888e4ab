// SPDX-License-Identifier: Apache-2.0
//! Secrets and zones that objects outside the spec reference. Kubernetes stores the references in PersistentVolumes,
//! classes and snapshot contents.
//!
//! The sidecars read Secrets for calls of the controller. The kubelet reads the Secrets of NodeStageVolume,
//! NodePublishVolume and NodeExpandVolume with its own rights, so they are not collected.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::is_object_name;

/// Prefix of the parameters that the sidecars read.
const PREFIX: &str = "csi.storage.k8s.io/";
/// Parameters with Secrets that the kubelet reads.
const OF_KUBELET: [&str; 5] = [
    "csi.storage.k8s.io/node-stage-secret-name",
    "csi.storage.k8s.io/node-publish-secret-name",
    "csi.storage.k8s.io/node-expand-secret-name",
    "csiNodeStageSecretName",
    "csiNodePublishSecretName",
];
/// Prefixes of the two annotations with a Secret. One pair is for the deletion and the modification of a
/// PersistentVolume. The other is for the deletion of a VolumeSnapshotContent and a VolumeGroupSnapshotContent.
const ANNOTATIONS: [&str; 4] = [
    "volume.kubernetes.io/provisioner-deletion-secret",
    "volume.kubernetes.io/controller-modify-secret",
    "snapshot.storage.kubernetes.io/deletion-secret",
    "groupsnapshot.storage.kubernetes.io/deletion-secret",
];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretName {
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretReference {
    Secret(SecretName),
    /// A Secret that depends on the claim, or text that is not the name of a Secret.
    Unresolved {
        /// The field, parameter or annotation.
        field: String,
        /// The namespace, if known.
        namespace: Option<String>,
    },
}

impl SecretReference {
    fn new(field: &str, namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.filter(|namespace| is_object_name(namespace));
        match namespace {
            Some(namespace) if is_object_name(name) => Self::Secret(SecretName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Self::Unresolved {
                field: field.to_owned(),
                namespace: namespace.map(str::to_owned),
            },
        }
    }
}

/// Returns the Secrets for the sidecars in the parameters of a class.
pub fn secret_parameters(parameters: &BTreeMap<String, String>) -> Vec<SecretReference> {
    let references = parameters.iter().filter_map(|(key, name)| {
        let (beginning, namespace) = match key.strip_suffix("secret-name") {
            Some(beginning) if key.starts_with(PREFIX) => (beginning, "secret-namespace"),
            // Kubernetes before 1.13 used other spellings, which csi-provisioner still reads.
            _ => (
                key.strip_prefix("csi").and(key.strip_suffix("SecretName"))?,
                "SecretNamespace",
            ),
        };
        if OF_KUBELET.contains(&key.as_str()) || name.is_empty() {
            return None;
        }
        let namespace = parameters.get(&format!("{beginning}{namespace}")).map(String::as_str);
        Some(SecretReference::new(key, namespace, name))
    });
    references.collect()
}

/// Returns the Secrets for the sidecars in the annotations of an object.
pub fn annotated_secrets(annotations: &BTreeMap<String, String>) -> Vec<SecretReference> {
    let references = ANNOTATIONS.iter().filter_map(|beginning| {
        let field = format!("{beginning}-name");
        let name = annotations.get(&field).filter(|name| !name.is_empty())?;
        let namespace = annotations.get(&format!("{beginning}-namespace"));
        Some(SecretReference::new(&field, namespace.map(String::as_str), name))
    });
    references.collect()
}

/// A reference to a Secret in a PersistentVolume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct SecretField {
    name: Option<String>,
    namespace: Option<String>,
}

impl SecretField {
    pub(super) fn reference(&self, field: &str) -> Option<SecretReference> {
        let name = self.name.as_deref().filter(|name| !name.is_empty())?;
        Some(SecretReference::new(field, self.namespace.as_deref(), name))
    }
}

/// The node affinity of a PersistentVolume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct VolumeAffinity {
    required: Option<AffinityTerms>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AffinityTerms {
    node_selector_terms: Option<Vec<AffinityTerm>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AffinityTerm {
    match_expressions: Option<Vec<AffinityExpression>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AffinityExpression {
    key: Option<String>,
    values: Option<Vec<String>>,
}

impl VolumeAffinity {
    /// Returns the values of a label that a node must have.
    pub(super) fn values<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a str> {
        let terms = self
            .required
            .iter()
            .flat_map(|required| required.node_selector_terms.iter().flatten());
        let expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
        let of_label = expressions.filter(move |expression| expression.key.as_deref() == Some(label));
        of_label.flat_map(|expression| expression.values.iter().flatten().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::super::VolumeObject;
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        pairs.collect()
    }

    fn secret(namespace: &str, name: &str) -> SecretReference {
        SecretReference::Secret(SecretName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    #[test]
    fn classes_reference_secrets_of_sidecars() {
        // The class in the documentation of cinder-csi-plugin for several regions.
        let mut parameters = Vec::new();
        for call in [
            "provisioner",
            "controller-publish",
            "controller-expand",
            "node-stage",
            "node-publish",
        ] {
            parameters.push((
                format!("csi.storage.k8s.io/{call}-secret-name"),
                format!("secret-of-{call}"),
            ));
            parameters.push((
                format!("csi.storage.k8s.io/{call}-secret-namespace"),
                "kube-system".to_owned(),
            ));
        }
        let found = secret_parameters(&parameters.into_iter().collect());
        let expected = ["controller-expand", "controller-publish", "provisioner"];
        assert_eq!(
            found,
            expected.map(|call| secret("kube-system", &format!("secret-of-{call}")))
        );
        // Parameters for all calls.
        let default = map(&[
            ("csi.storage.k8s.io/secret-name", "s"),
            ("csi.storage.k8s.io/secret-namespace", "n"),
        ]);
        assert_eq!(secret_parameters(&default), [secret("n", "s")]);
        let old = map(&[
            ("csiProvisionerSecretName", "s"),
            ("csiProvisionerSecretNamespace", "n"),
            ("csiNodeStageSecretName", "s"),
            ("csiNodeStageSecretNamespace", "n"),
            ("type", "fast"),
        ]);
        assert_eq!(secret_parameters(&old), [secret("n", "s")]);
    }

    #[test]
    fn secrets_that_depend_on_the_claim_are_unresolved() {
        let key = "csi.storage.k8s.io/provisioner-secret-name";
        let unresolved = |namespace: Option<&str>| SecretReference::Unresolved {
            field: key.to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        for (name, namespace, expected) in [
            ("${pvc.name}", "shop", unresolved(Some("shop"))),
            ("fixed", "${pvc.namespace}", unresolved(None)),
            ("fixed", "", unresolved(None)),
            ("$(reboot)", "shop", unresolved(Some("shop"))),
        ] {
            let parameters = map(&[
                (key, name),
                ("csi.storage.k8s.io/provisioner-secret-namespace", namespace),
            ]);
            assert_eq!(secret_parameters(&parameters), [expected], "{name} {namespace}");
        }
    }

    #[test]
    fn volume_names_its_secrets_and_zones() {
        let zone = "topology.cinder.csi.openstack.org/zone";
        let reference = |name: &str| serde_json::json!({"name": name, "namespace": "kube-system"});
        let volume: VolumeObject = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "pv", "annotations": {"volume.kubernetes.io/provisioner-deletion-secret-name": "delete",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "kube-system"}},
            "spec": {
                "csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": "v", "controllerPublishSecretRef": reference("attach"),
                    "controllerExpandSecretRef": reference("expand"), "nodeStageSecretRef": reference("stage")},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": zone, "operator": "In", "values": ["zone-one"]}, {"key": "other", "operator": "Exists"}]},
                    {"matchFields": [{"key": zone, "operator": "In", "values": ["field"]}]},
                ]}},
            },
        }))
        .expect("a volume");
        let expected = ["attach", "expand", "delete"].map(|name| secret("kube-system", name));
        assert_eq!(volume.secret_references(), expected);
        assert_eq!(volume.label_values(zone).collect::<Vec<_>>(), ["zone-one"]);
    }

    #[test]
    fn annotations_reference_secrets_of_sidecars() {
        for beginning in ANNOTATIONS {
            let name = format!("{beginning}-name");
            let annotations = map(&[(&name, "s"), (&format!("{beginning}-namespace"), "n"), ("other", "x")]);
            assert_eq!(annotated_secrets(&annotations), [secret("n", "s")]);
        }
        assert_eq!(annotated_secrets(&map(&[("other", "x")])), []);
    }
}
