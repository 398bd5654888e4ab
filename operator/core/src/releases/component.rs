// SPDX-License-Identifier: Apache-2.0
//! Table of the programs that run in separate containers.

use cinder_csi_crds::{ImageOverrides, SidecarName};
use serde::{Deserialize, Serialize};

use crate::cluster::{KubernetesVersion, OptionalApis, at_least};

pub const DRIVER_CONTAINER: &str = "cinder-csi-driver";

/// A program that runs in a separate container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Component {
    /// The driver, in the controller pods and in the node pods.
    Driver,
    /// Creates and deletes volumes.
    Provisioner,
    /// Attaches and detaches volumes.
    Attacher,
    /// Expands volumes and changes their attributes.
    Resizer,
    /// Takes and deletes snapshots.
    Snapshotter,
    /// Registers the driver with the kubelet.
    Registrar,
    /// Reports the health of the driver to the kubelet.
    LivenessProbe,
}

impl Component {
    /// Row of the component in the table.
    pub fn row(self) -> &'static ComponentRow {
        &COMPONENTS[self as usize]
    }
}

/// The properties of a component.
#[derive(Debug)]
pub struct ComponentRow {
    pub component: Component,
    pub container: &'static str,
    /// Name of the image, without a tag.
    pub image: &'static str,
    /// Environment variable of the operator that replaces the image.
    pub variable: &'static str,
    /// Flag of the operator that replaces the image.
    pub flag: &'static str,
    /// Field of the spec that replaces the image.
    pub(super) image_override: fn(&ImageOverrides) -> &Option<String>,
    /// Release for each range of versions of Kubernetes, oldest first. The driver has the version of the operator.
    /// Releases that are available as Go modules are preferred, because the tests run them.
    pub(super) releases: &'static [(u64, u64, u64)],
    /// Name in `spec.controller.sidecars`. The driver and the components of the nodes have none.
    pub sidecar: Option<SidecarName>,
    /// Prefix of the Lease for the leader election of its replicas.
    lease_prefix: Option<&'static str>,
    /// Default of `--timeout`.
    pub timeout: &'static str,
    /// Maximum time between two attempts.
    pub retry_interval_max: &'static str,
    /// Flag for the number of concurrent operations.
    pub workers_flag: &'static str,
    /// Arguments that only this component has.
    pub arguments: &'static [&'static str],
    pub(super) gates: &'static [FeatureGate],
}

impl ComponentRow {
    /// Returns the Lease of this sidecar. Sidecars derive its name from the name of the driver.
    pub fn lease(&self, driver: &str) -> Option<String> {
        Some(format!("{}{}", self.lease_prefix?, driver.replace('.', "-")))
    }
}

/// A feature gate of a sidecar: its name, the first release that supports it, and its value if it must be set.
#[derive(Debug)]
pub(super) struct FeatureGate(
    pub(super) &'static str,
    pub(super) (u64, u64),
    pub(super) fn(Option<KubernetesVersion>, OptionalApis) -> Option<bool>,
);

/// Without the gate, a successor waits for the expiry of a Lease that no replica uses.
const fn release_on_exit(major: u64, minor: u64) -> FeatureGate {
    FeatureGate("ReleaseLeaderElectionOnExit", (major, minor), |_, _| Some(true))
}

/// Sidecars discover the API only at their start. A changed argument restarts them when the API appears.
const fn attributes_class(major: u64, minor: u64) -> FeatureGate {
    FeatureGate("VolumeAttributesClass", (major, minor), |_, apis| {
        Some(apis.volume_attributes_classes)
    })
}

/// The properties that most components share.
const COMMON: ComponentRow = ComponentRow {
    component: Component::Driver,
    container: "",
    image: "",
    variable: "",
    flag: "",
    image_override: |_| &None,
    releases: &[],
    sidecar: None,
    lease_prefix: None,
    timeout: "3m",
    retry_interval_max: "30m",
    workers_flag: "worker-threads",
    arguments: &[],
    gates: &[],
};

/// All components, in the order of [`Component`]. The ports of the sidecars follow this order.
pub static COMPONENTS: [ComponentRow; 7] = [
    ComponentRow {
        component: Component::Driver,
        container: DRIVER_CONTAINER,
        image: "ghcr.io/cinder-csi/cinder-csi-driver",
        variable: "RELATED_IMAGE_DRIVER",
        flag: "driver-image",
        image_override: |images| &images.driver,
        ..COMMON
    },
    ComponentRow {
        component: Component::Provisioner,
        container: "csi-provisioner",
        image: "registry.k8s.io/sig-storage/csi-provisioner",
        variable: "RELATED_IMAGE_PROVISIONER",
        flag: "provisioner-image",
        image_override: |images| &images.provisioner,
        // v6.0.1, v6.1.1 and v6.2.0 do not remove finalizers, which block deletions. v5 and v6.0.0 can create a
        // volume in the wrong zone at a second attempt.
        releases: &[(6, 4, 0), (6, 4, 0)],
        sidecar: Some(SidecarName::Provisioner),
        lease_prefix: Some(""),
        // The sidecar passes the names of claim and volume for the metadata in Cinder. ext4 applies to classes
        // without a file system.
        arguments: &["--extra-create-metadata", "--default-fstype=ext4"],
        gates: &[release_on_exit(6, 0), attributes_class(6, 0)],
        ..COMMON
    },
    ComponentRow {
        component: Component::Attacher,
        container: "csi-attacher",
        image: "registry.k8s.io/sig-storage/csi-attacher",
        variable: "RELATED_IMAGE_ATTACHER",
        flag: "attacher-image",
        image_override: |images| &images.attacher,
        releases: &[(4, 13, 0), (4, 13, 0)],
        sidecar: Some(SidecarName::Attacher),
        lease_prefix: Some("external-attacher-leader-"),
        timeout: "5m",
        retry_interval_max: "5m",
        arguments: &["--default-fstype=ext4"],
        gates: &[
            release_on_exit(4, 10),
            // After this error code, the kubelet counts the volumes of the node again.
            FeatureGate("MutableCSINodeAllocatableCount", (4, 10), |kubernetes, _| {
                Some(at_least(kubernetes, 34))
            }),
        ],
        ..COMMON
    },
    ComponentRow {
        component: Component::Resizer,
        container: "csi-resizer",
        image: "registry.k8s.io/sig-storage/csi-resizer",
        variable: "RELATED_IMAGE_RESIZER",
        flag: "resizer-image",
        image_override: |images| &images.resizer,
        // v2.0 and later need the API of Kubernetes 1.34.
        releases: &[(1, 14, 0), (2, 3, 0)],
        sidecar: Some(SidecarName::Resizer),
        lease_prefix: Some("external-resizer-"),
        workers_flag: "workers",
        // Volumes are expanded while they are in use. Otherwise the sidecar watches every pod of the cluster.
        arguments: &["--handle-volume-inuse-error=false"],
        gates: &[
            release_on_exit(2, 0),
            attributes_class(2, 0),
            // The status of a claim has no field for it before Kubernetes 1.32.
            FeatureGate("RecoverVolumeExpansionFailure", (0, 0), |kubernetes, _| {
                (!at_least(kubernetes, 32)).then_some(false)
            }),
        ],
        ..COMMON
    },
    ComponentRow {
        component: Component::Snapshotter,
        container: "csi-snapshotter",
        image: "registry.k8s.io/sig-storage/csi-snapshotter",
        variable: "RELATED_IMAGE_SNAPSHOTTER",
        flag: "snapshotter-image",
        image_override: |images| &images.snapshotter,
        // The snapshot-controller of `config/snapshot-controller` has the newest of these releases.
        releases: &[(8, 7, 0), (8, 7, 0)],
        sidecar: Some(SidecarName::Snapshotter),
        lease_prefix: Some("external-snapshotter-leader-"),
        // The sidecar passes the names of the snapshot for the metadata in Cinder.
        arguments: &["--extra-create-metadata"],
        gates: &[
            release_on_exit(8, 4),
            // Since 8.7 the default is true, and the sidecar waits for the kinds when it starts.
            FeatureGate("CSIVolumeGroupSnapshot", (0, 0), |_, apis| Some(apis.group_snapshots)),
        ],
        ..COMMON
    },
    ComponentRow {
        component: Component::Registrar,
        container: "node-driver-registrar",
        image: "registry.k8s.io/sig-storage/csi-node-driver-registrar",
        variable: "RELATED_IMAGE_REGISTRAR",
        flag: "registrar-image",
        image_override: |images| &images.registrar,
        releases: &[(2, 17, 0), (2, 17, 0)],
        ..COMMON
    },
    ComponentRow {
        component: Component::LivenessProbe,
        container: "livenessprobe",
        image: "registry.k8s.io/sig-storage/livenessprobe",
        variable: "RELATED_IMAGE_LIVENESS_PROBE",
        flag: "liveness-probe-image",
        image_override: |images| &images.liveness_probe,
        releases: &[(2, 19, 0), (2, 19, 0)],
        ..COMMON
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// Returns the name of a component in `spec.images.overrides`, from which the chart forms its variable.
    fn field(variable: &str) -> String {
        let mut words = variable.split('_').map(str::to_lowercase);
        let first = words.next().unwrap_or_default();
        words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
    }

    #[test]
    fn every_component_has_a_complete_row() {
        let manager = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/manager/deployment.yaml");
        let manager = std::fs::read_to_string(manager).unwrap();
        for (index, row) in COMPONENTS.iter().enumerate() {
            assert_eq!(row.component as usize, index);
            assert!(!row.container.is_empty() && !row.image.is_empty());
            let suffix = row.variable.strip_prefix("RELATED_IMAGE_").unwrap();
            assert!(manager.contains(suffix), "config/manager does not name {suffix}");
            assert_eq!(row.flag, format!("{}-image", suffix.to_lowercase().replace('_', "-")));
            let overrides = serde_json::from_value(json!({ field(suffix): "image" })).unwrap();
            assert!((row.image_override)(&overrides).is_some(), "{suffix}");
            let is_sidecar = row.component != Component::Driver;
            assert_eq!(row.releases.len(), if is_sidecar { 2 } else { 0 }, "{suffix}");
            assert_eq!(row.sidecar.is_some(), row.lease("driver").is_some(), "{suffix}");
            if let Some(name) = row.sidecar {
                assert_eq!(json!(name), row.container);
            }
        }
        let containers: BTreeSet<_> = COMPONENTS.iter().map(|row| row.container).collect();
        let images: BTreeSet<_> = COMPONENTS.iter().map(|row| row.image).collect();
        assert_eq!((containers.len(), images.len()), (COMPONENTS.len(), COMPONENTS.len()));
    }
}
