// SPDX-License-Identifier: Apache-2.0
//! Inputs of pod templates in addition to the spec, the credentials and the operator's version. Each workload records
//! the inputs of its template in an annotation, so that the operator can render the same template again.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{COMPONENTS, ComponentRow, InstalledImages};
use crate::{
    cluster::{KubernetesVersion, OptionalApi, OptionalApis},
    text::short_hash,
};

/// Annotation of a workload with the inputs of its pod template, in JSON.
pub const TEMPLATE_INPUTS: &str = "csi.openstack.org/template-inputs";

/// Maximum length of the annotation, in bytes. It exceeds the size of all images by far.
const LONGEST_ANNOTATION: usize = 32 * 1024;

/// Number of digits in an approval token.
const TOKEN_DIGITS: usize = 8;

/// The inputs of a pod template, in addition to the spec, the credentials and the operator's version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateInputs {
    /// Version of the API server, which selects the sidecars.
    pub kubernetes: Option<KubernetesVersion>,
    /// Optional APIs, which select feature gates.
    pub apis: OptionalApis,
    /// Whether the driver uses zones.
    pub topology: bool,
    /// Images of the operator's installation.
    pub images: InstalledImages,
}

impl TemplateInputs {
    /// Reads the inputs that a workload records. An invalid record is unknown.
    pub fn read(workload: &Value) -> Option<Self> {
        let text = workload["metadata"]["annotations"][TEMPLATE_INPUTS].as_str()?;
        serde_json::from_str(text)
            .ok()
            .filter(|_| text.len() <= LONGEST_ANNOTATION)
    }

    /// Returns the value of the annotation.
    pub fn annotation(&self) -> String {
        // Serializing numbers, strings and maps of strings cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns a token that identifies the inputs in an approval.
    pub fn token(&self) -> String {
        short_hash(self.annotation(), TOKEN_DIGITS)
    }

    /// Describes the changes from `before` to these inputs.
    pub fn changes_since(&self, before: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        if self.kubernetes != before.kubernetes {
            let [old, new] = [before, self].map(|inputs| inputs.kubernetes.map(|version| version.to_string()));
            let unknown = || "unknown".to_owned();
            let (old, new) = (old.unwrap_or_else(unknown), new.unwrap_or_else(unknown));
            changes.push(format!("Kubernetes {old} to {new}"));
        }
        let other_apis = OptionalApi::ALL
            .into_iter()
            .filter(|api| self.apis.has(*api) != before.apis.has(*api));
        changes.extend(other_apis.map(|api| {
            let state = if self.apis.has(api) { "with" } else { "without" };
            format!("{state} {}", api.as_str())
        }));
        if self.topology != before.topology {
            changes.push(format!("zones {}", if self.topology { "on" } else { "off" }));
        }
        let has_changed = |row: &&ComponentRow| self.images.get(&row.component) != before.images.get(&row.component);
        let images = COMPONENTS.iter().filter(has_changed);
        changes.extend(images.map(|row| format!("image of {}", row.container)));
        changes
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::releases::Component;

    fn mk_inputs() -> TemplateInputs {
        TemplateInputs {
            kubernetes: Some(KubernetesVersion { major: 1, minor: 35 }),
            images: InstalledImages::from([(Component::Driver, "mirror/driver:1".to_owned())]),
            ..TemplateInputs::default()
        }
    }

    #[test]
    fn written_inputs_are_read_again() {
        let workload = json!({"metadata": {"annotations": {(TEMPLATE_INPUTS): mk_inputs().annotation()}}});
        assert_eq!(TemplateInputs::read(&workload), Some(mk_inputs()));
    }

    #[rstest]
    #[case::missing(json!({}))]
    #[case::no_json(json!({"metadata": {"annotations": {(TEMPLATE_INPUTS): "{"}}}))]
    #[case::too_long(json!({"metadata": {"annotations": {(TEMPLATE_INPUTS): format!("{}{}", mk_inputs().annotation(), " ".repeat(LONGEST_ANNOTATION))}}}))]
    fn damaged_inputs_are_unknown(#[case] workload: Value) {
        assert_eq!(TemplateInputs::read(&workload), None);
    }

    #[test]
    fn changes_are_named() {
        let mut after = mk_inputs();
        after.kubernetes = Some(KubernetesVersion { major: 1, minor: 36 });
        after.apis.volume_attributes_classes = true;
        after.topology = true;
        after.images.insert(Component::Resizer, "mirror/resizer:2".to_owned());
        assert_eq!(
            after.changes_since(&mk_inputs()),
            [
                "Kubernetes 1.35 to 1.36",
                "with VolumeAttributesClass",
                "zones on",
                "image of csi-resizer"
            ]
        );
        assert_ne!(after.token(), mk_inputs().token());
    }
}
