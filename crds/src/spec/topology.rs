// SPDX-License-Identifier: Apache-2.0
//! Availability zones.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Availability zones.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Whether the driver uses availability zones. Enabled: the driver creates a volume in the zone of its
    /// pod, and pods are scheduled to the zone of their volumes. Zones of Nova and Cinder have equal names,
    /// except those in clouds[].availabilityZoneMap. Disabled: the driver ignores zones. Auto: Enabled if
    /// every zone of Nova is also a zone of Cinder, else Disabled. The operator does not disable zones while
    /// PersistentVolumes are bound to them. The annotation csi.openstack.org/disable-topology with the uid of
    /// this object overrides this protection.
    #[serde(default)]
    pub mode: TopologyMode,

    /// Time between comparisons of the zones, as in 10m or 1h. A new result takes effect after three
    /// consecutive comparisons.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 16), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    #[x_kube(validation = Rule::new("duration(self) >= duration('30s') && duration(self) <= duration('24h')")
        .message("reevaluateInterval can be 30s to 24h"))]
    pub reevaluate_interval: String,

    /// Additional topology segments of every node, by label. The scheduler uses them to select nodes where
    /// volumes are accessible. They require zones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    #[x_kube(validation = Rule::new("!('topology.cinder.csi.openstack.org/zone' in self)")
        .message("additional cannot hold topology.cinder.csi.openstack.org/zone, which the driver sets itself"))]
    pub additional: BTreeMap<String, String>,
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            mode: TopologyMode::default(),
            reevaluate_interval: default_interval(),
            additional: BTreeMap::new(),
        }
    }
}

/// Schema of labels with the length and the pattern of a value, which the Kubernetes type does not limit. A
/// rule for the keys would exceed the CEL cost limit.
fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 8,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        },
    })
}

fn default_interval() -> String {
    "10m".into()
}

/// Whether the driver uses availability zones.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopologyMode {
    /// According to the zones of the cloud.
    #[default]
    Auto,
    /// Volumes and nodes have their zone as a segment.
    Enabled,
    /// The driver ignores zones.
    Disabled,
}
