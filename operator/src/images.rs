//! Which image each container runs: this version's own choice, the installation's, or the administrator's.

use cinder_csi_crds::ImageOverrides;

/// Where the driver's images are published.
const DRIVER_REPOSITORY: &str = "ghcr.io/cinder-csi/cinder-csi-driver";
/// Creates and deletes volumes. Releases v6.0.1, v6.1.1 and v6.2.0 leave finalizers behind that block deletions.
const PROVISIONER: &str = "registry.k8s.io/sig-storage/csi-provisioner:v6.3.0";
/// Attaches and detaches volumes.
const ATTACHER: &str = "registry.k8s.io/sig-storage/csi-attacher:v4.12.0";

/// One image per container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSet {
    /// The driver, in the controller's pods and on the nodes.
    pub driver: String,
    /// csi-provisioner.
    pub provisioner: String,
    /// csi-attacher.
    pub attacher: String,
}

impl ImageSet {
    /// The images that this version of the operator was tested with. Driver and operator are released together.
    pub fn built_in(operator_version: &str) -> Self {
        Self {
            driver: format!("{DRIVER_REPOSITORY}:v{operator_version}"),
            provisioner: PROVISIONER.into(),
            attacher: ATTACHER.into(),
        }
    }

    /// These images, with those of `overrides` in their place where it names some.
    #[must_use]
    pub fn overridden_by(&self, overrides: &ImageOverrides) -> Self {
        let pick = |own: &String, other: &Option<String>| other.as_ref().unwrap_or(own).clone();
        Self {
            driver: pick(&self.driver, &overrides.driver),
            provisioner: pick(&self.provisioner, &overrides.provisioner),
            attacher: pick(&self.attacher, &overrides.attacher),
        }
    }
}

#[cfg(test)]
mod tests {
    use cinder_csi_crds::ImageOverrides;

    use super::ImageSet;

    #[test]
    fn the_driver_has_the_version_of_the_operator() {
        assert_eq!(
            ImageSet::built_in("1.2.3").driver,
            "ghcr.io/cinder-csi/cinder-csi-driver:v1.2.3"
        );
    }

    #[test]
    fn an_override_replaces_one_image_and_leaves_the_others() {
        let own = ImageSet::built_in("1.2.3");
        let overrides = ImageOverrides {
            attacher: Some("mirror/attacher:v9".into()),
            ..ImageOverrides::default()
        };

        let images = own.overridden_by(&overrides);

        assert_eq!(
            images,
            ImageSet {
                attacher: "mirror/attacher:v9".into(),
                ..own
            }
        );
    }
}
