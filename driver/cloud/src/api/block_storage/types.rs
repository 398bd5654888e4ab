// SPDX-License-Identifier: Apache-2.0
//! Volume types, and the change of a volume's type and metadata.

use std::collections::BTreeMap;

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::BlockStorage;
use super::resource::ListItem;
use crate::api::pages::Item;
use crate::error::CloudError;
use crate::ids::VolumeId;
use crate::memory_size::memory_size;
use crate::migration::MigrationPolicy;

/// Extra spec: volumes of the type may be attached to several servers.
const MULTIATTACH: &str = "multiattach";
/// Extra spec: the zones in which volumes of the type may be, separated by commas.
const ZONES: &str = "RESKEY:availability_zones";

/// A volume type. Projects see a few extra specs, which include those of this module.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumeType {
    pub id: String,
    pub name: String,
    /// The description by the administrators of the cloud.
    #[serde(default)]
    pub description: Option<String>,
    /// The extra specs that the project may see; `None` where the cloud shows no extra specs, as before Xena.
    #[serde(default)]
    pub extra_specs: Option<BTreeMap<String, Option<String>>>,
}

memory_size!(VolumeType {
    id,
    name,
    description,
    extra_specs,
});

impl VolumeType {
    /// Whether volumes of this type may be attached to several servers.
    pub fn multiattach(&self) -> bool {
        self.spec(MULTIATTACH).is_some_and(is_true)
    }

    /// Whether the extra specs are visible and restrict volumes of this type to one server.
    pub(crate) fn is_for_one_server(&self) -> bool {
        self.extra_specs.is_some() && !self.multiattach()
    }

    pub fn allows_zone(&self, zone: &str) -> bool {
        self.spec(ZONES)
            .is_none_or(|zones| zones.split(',').any(|name| name.trim() == zone))
    }

    /// Whether `wanted` is the name or the id of the type.
    pub fn is(&self, wanted: &str) -> bool {
        self.name == wanted || self.id == wanted
    }

    fn spec(&self, key: &str) -> Option<&str> {
        self.extra_specs.as_ref()?.get(key)?.as_deref()
    }
}

/// Whether an extra spec is true. Cinder writes `<is> True`.
pub(crate) fn is_true(value: &str) -> bool {
    let value = value.trim();
    value
        .strip_prefix("<is>")
        .unwrap_or(value)
        .trim()
        .eq_ignore_ascii_case("true")
}

impl Item for VolumeType {
    const KEY: &'static str = "volume_types";

    fn marker(&self) -> &str {
        &self.id
    }
}

impl ListItem for VolumeType {
    const LIST: &'static str = "type_list";
    const PATH: &'static [&'static str] = &["types"];
}

impl BlockStorage<'_> {
    /// Lists the types that the project may use.
    pub(crate) async fn types(&self) -> Result<Vec<VolumeType>, CloudError> {
        self.list(None, &[], Some).await
    }

    /// Requests a change of the volume's type. Returns `false` when Cinder does not know the volume.
    pub(crate) async fn retype(
        &self,
        id: &VolumeId,
        new_type: &str,
        policy: MigrationPolicy,
    ) -> Result<bool, CloudError> {
        let path = ["volumes", id.as_str(), "action"];
        let mut request = Self::request("volume_retype", Method::POST, &path, format!("volume {id}"));
        request.body = Some(json!({"os-retype": {"new_type": new_type, "migration_policy": policy.as_str()}}));
        request.may_be_missing = true;
        Ok(!self.transport.send(request).await?.missing())
    }

    /// Adds or replaces metadata entries and retains all others. Returns `false` when Cinder does not know the
    /// volume.
    pub(crate) async fn merge_metadata(
        &self,
        id: &VolumeId,
        metadata: &BTreeMap<String, String>,
    ) -> Result<bool, CloudError> {
        let path = ["volumes", id.as_str(), "metadata"];
        let mut request = Self::request("metadata_update", Method::POST, &path, format!("volume {id}"));
        request.body = Some(json!({ "metadata": metadata }));
        request.may_be_missing = true;
        Ok(!self.transport.send(request).await?.missing())
    }

    /// Removes a metadata key, if it exists.
    pub(crate) async fn remove_metadata(&self, id: &VolumeId, key: &str) -> Result<(), CloudError> {
        let path = ["volumes", id.as_str(), "metadata", key];
        let object = format!("key {key} of volume {id}");
        let mut request = Self::request("metadata_delete", Method::DELETE, &path, object);
        request.may_be_missing = true;
        self.transport.send(request).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn type_with_spec(key: &str, value: &str) -> VolumeType {
        VolumeType {
            id: "1".into(),
            name: "fast".into(),
            description: None,
            extra_specs: Some(BTreeMap::from([(key.to_owned(), Some(value.to_owned()))])),
        }
    }

    #[rstest]
    #[case("<is> True", true)]
    #[case("<is> true", true)]
    #[case("True", true)]
    #[case("<is> False", false)]
    #[case("", false)]
    fn extra_spec_is_parsed_as_boolean(#[case] value: &str, #[case] expected: bool) {
        assert_eq!(type_with_spec(MULTIATTACH, value).multiattach(), expected);
    }

    #[test]
    fn single_server_type_needs_visible_specs() {
        let read = |specs: serde_json::Value| -> VolumeType {
            let mut view = json!({"id": "1", "name": "fast"});
            view.as_object_mut()
                .expect("an object")
                .extend((!specs.is_null()).then(|| ("extra_specs".to_owned(), specs)));
            serde_json::from_value(view).expect("a type")
        };
        assert!(!read(json!(null)).is_for_one_server());
        assert!(read(json!({})).is_for_one_server());
        assert!(!read(json!({"multiattach": "<is> True"})).is_for_one_server());
    }

    #[test]
    fn type_is_limited_to_its_zones() {
        let bound = type_with_spec(ZONES, "az1, az2");
        assert!(bound.allows_zone("az2") && !bound.allows_zone("az3"));
        assert!(type_with_spec("other", "x").allows_zone("az3"));
    }
}
