// SPDX-License-Identifier: Apache-2.0
//! The programs that run in containers of their own.

use cinder_csi_crds::Images;

/// A program that runs in a container of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    /// The driver, in the controller's pods and on the nodes.
    Driver,
    /// Creates and deletes volumes.
    Provisioner,
    /// Attaches and detaches volumes.
    Attacher,
    /// Lets volumes grow and changes their attributes.
    Resizer,
    /// Takes and deletes snapshots.
    Snapshotter,
    /// Registers the driver with the kubelet.
    Registrar,
    /// Tells the kubelet whether the driver lives.
    LivenessProbe,
}

impl Component {
    /// Every component.
    pub const ALL: [Self; 7] = [
        Self::Driver,
        Self::Provisioner,
        Self::Attacher,
        Self::Resizer,
        Self::Snapshotter,
        Self::Registrar,
        Self::LivenessProbe,
    ];

    /// Name of its container.
    pub fn container(self) -> &'static str {
        match self {
            Self::Driver => "cinder-csi-driver",
            Self::Provisioner => "csi-provisioner",
            Self::Attacher => "csi-attacher",
            Self::Resizer => "csi-resizer",
            Self::Snapshotter => "csi-snapshotter",
            Self::Registrar => "node-driver-registrar",
            Self::LivenessProbe => "livenessprobe",
        }
    }

    /// The environment variable by which an installation of the operator names its image.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Driver => "RELATED_IMAGE_DRIVER",
            Self::Provisioner => "RELATED_IMAGE_PROVISIONER",
            Self::Attacher => "RELATED_IMAGE_ATTACHER",
            Self::Resizer => "RELATED_IMAGE_RESIZER",
            Self::Snapshotter => "RELATED_IMAGE_SNAPSHOTTER",
            Self::Registrar => "RELATED_IMAGE_REGISTRAR",
            Self::LivenessProbe => "RELATED_IMAGE_LIVENESS_PROBE",
        }
    }

    /// The lease by which the pods of a driver agree on a leader of this sidecar: sidecars derive its name from the driver's.
    pub fn lease(self, driver: &str) -> Option<String> {
        let prefix = match self {
            Self::Provisioner => "",
            Self::Attacher => "external-attacher-leader-",
            Self::Resizer => "external-resizer-",
            Self::Snapshotter => "external-snapshotter-leader-",
            Self::Driver | Self::Registrar | Self::LivenessProbe => return None,
        };
        Some(format!("{prefix}{}", driver.replace('.', "-")))
    }

    /// Name of its image, below the registry's path.
    pub(super) fn image_name(self) -> &'static str {
        match self {
            Self::Registrar => "csi-node-driver-registrar",
            other => other.container(),
        }
    }

    /// The administrator's own choice.
    pub(super) fn overridden(self, images: &Images) -> Option<&String> {
        let overrides = &images.overrides;
        match self {
            Self::Driver => &overrides.driver,
            Self::Provisioner => &overrides.provisioner,
            Self::Attacher => &overrides.attacher,
            Self::Resizer => &overrides.resizer,
            Self::Snapshotter => &overrides.snapshotter,
            Self::Registrar => &overrides.registrar,
            Self::LivenessProbe => &overrides.liveness_probe,
        }
        .as_ref()
    }
}
