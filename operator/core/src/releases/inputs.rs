// SPDX-License-Identifier: Apache-2.0
//! Pod templates depend on the spec, the credentials, the operator's version and these inputs. Each workload records the inputs of its
//! template in an annotation, so that the operator can render the same template again.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{COMPONENTS, ComponentRow, InstalledImages};
use crate::{
    cluster::{KubernetesVersion, OptionalApi, OptionalApis},
    text::short_hash,
};

/// Annotation of a workload with the inputs of its pod template, in JSON.
pub const TEMPLATE_INPUTS: &str = "csi.openstack.org/template-inputs";

/// The longest annotation that is read: far more than all images need.
const LONGEST_ANNOTATION: usize = 32 * 1024;

/// The digits of an approval token.
const TOKEN_DIGITS: usize = 8;

/// The inputs of a pod template, next to the spec, the credentials and the operator's version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateInputs {
    /// The version of the API server, which selects the sidecars.
    pub kubernetes: Option<KubernetesVersion>,
    /// The optional APIs, which select feature gates.
    pub apis: OptionalApis,
    /// Whether the driver uses zones.
    pub topology: bool,
    /// The images of the operator's installation.
    pub images: InstalledImages,
}

impl TemplateInputs {
    /// Reads the inputs that a workload records. A record that cannot be read is unknown.
    pub fn read(workload: &Value) -> Option<Self> {
        let text = workload["metadata"]["annotations"][TEMPLATE_INPUTS].as_str()?;
        serde_json::from_str(text)
            .ok()
            .filter(|_| text.len() <= LONGEST_ANNOTATION)
    }

    /// The value of the annotation.
    pub fn annotation(&self) -> String {
        // Numbers, strings and maps of strings always become JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Identifies the inputs in an approval.
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
