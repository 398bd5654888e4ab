//! Availability zones.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
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

    /// How often the zones are compared, as in 10m or 1h; 10m when it is not given. A new result counts once it has come
    /// three times in a row.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 16), regex(pattern = r"^([1-9][0-9]*(s|m|h))+$"))]
    #[x_kube(validation = Rule::new("duration(self) >= duration('30s') && duration(self) <= duration('24h')")
        .message("reevaluateInterval can be 30s to 24h"))]
    pub reevaluate_interval: String,

    /// More topology segments of every node, by label: the scheduler takes them for where volumes can be used. Only with
    /// zones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    #[x_kube(validation = Rule::new("self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self[k].matches('^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && k != 'topology.cinder.csi.openstack.org/zone')")
        .message("additional holds labels of nodes, other than topology.cinder.csi.openstack.org/zone, which the driver sets itself"))]
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

fn default_interval() -> String {
    "10m".into()
}

/// Whether zones are used.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopologyMode {
    /// As the zones of the cloud are.
    Auto,
    /// Volumes and nodes carry their zone.
    #[default]
    Enabled,
    /// Zones are ignored.
    Disabled,
}
