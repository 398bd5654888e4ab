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
    /// Enabled: volumes are created in, and pods scheduled to, the zone of the other. It takes the names of the zones
    /// of Nova and Cinder to be the same, but for those in clouds[].availabilityZoneMap. Disabled: zones are ignored. Auto:
    /// Enabled where every zone of Nova is a zone of Cinder too, else Disabled. It is not turned off while
    /// PersistentVolumes are bound to zones, unless the object has the annotation csi.openstack.org/disable-topology with
    /// its own uid as the value.
    #[serde(default)]
    pub mode: TopologyMode,

    /// How often the zones are compared, as in 10m or 1h. A new result counts once it has come
    /// three times in a row.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 16), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    #[x_kube(validation = Rule::new("duration(self) >= duration('30s') && duration(self) <= duration('24h')")
        .message("reevaluateInterval can be 30s to 24h"))]
    pub reevaluate_interval: String,

    /// More topology segments of every node, by label: the scheduler takes them for where volumes can be used. Only with
    /// zones.
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

/// Labels: how long and of what a value may be, Kubernetes' own type does not say. (A rule for the keys would be too dear.)
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

/// Whether zones are used.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopologyMode {
    /// As the zones of the cloud are.
    #[default]
    Auto,
    /// Volumes and nodes carry their zone.
    Enabled,
    /// Zones are ignored.
    Disabled,
}
