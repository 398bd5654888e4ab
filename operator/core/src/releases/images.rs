// SPDX-License-Identifier: Apache-2.0
//! Selects the image of each container: from the spec, from the installation, or from the table.

use std::collections::BTreeMap;

use cinder_csi_crds::{Images, SidecarPolicy};
use semver::Version;

use super::{COMPONENTS, Component, ComponentRow};
use crate::cluster::KubernetesVersion;
use crate::releases::sidecars::{self, Skew, release_of};

/// Images that an installation of the operator sets with flags or environment variables, for its own registry.
pub type InstalledImages = BTreeMap<Component, String>;

/// The image of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub name: String,
    /// Release of the sidecar, if known. For an image without a version, the release of the table, for which the
    /// arguments are written.
    pub release: Option<Version>,
    /// Difference from the release for this cluster. `None` for the driver.
    pub skew: Option<Skew>,
}

/// One image per component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSet {
    images: BTreeMap<Component, Image>,
}

impl ImageSet {
    /// Selects the images. The spec takes precedence over the installation, and the installation over the table. The
    /// mirror applies only to names from the table.
    pub fn choose(
        operator_version: &str,
        kubernetes: Option<KubernetesVersion>,
        policy: SidecarPolicy,
        installed: &InstalledImages,
        spec: &Images,
    ) -> Self {
        let fitting = sidecars::version_set(kubernetes);
        let set = match policy {
            SidecarPolicy::Auto => fitting,
            SidecarPolicy::Pinned => sidecars::version_set(None),
        };
        let image = |component: &ComponentRow| {
            let expected = set.release(component.component);
            let version = expected
                .as_ref()
                .map_or(operator_version.to_owned(), Version::to_string);
            let own = format!("{}:v{version}", component.image);
            let chosen = (component.image_override)(&spec.overrides)
                .clone()
                .or_else(|| installed.get(&component.component).cloned());
            let is_chosen = chosen.is_some();
            let name = chosen.unwrap_or_else(|| mirror_image(&own, spec.registry.as_deref()));
            let runs = if is_chosen { release_of(&name) } else { expected.clone() };
            Image {
                skew: expected
                    .as_ref()
                    .map(|_| Skew::between(runs.as_ref(), fitting.release(component.component).as_ref())),
                release: expected.map(|expected| runs.unwrap_or(expected)),
                name,
            }
        };
        Self {
            images: COMPONENTS.iter().map(|row| (row.component, image(row))).collect(),
        }
    }

    pub fn get(&self, component: Component) -> Option<&Image> {
        self.images.get(&component)
    }

    /// Returns the name of a component's image.
    pub fn name(&self, component: Component) -> String {
        self.get(component).map(|image| image.name.clone()).unwrap_or_default()
    }
}

/// Returns the same image in a mirror. The mirror replaces the name of the registry and retains the path.
fn mirror_image(image: &str, registry: Option<&str>) -> String {
    match (registry, image.split_once('/')) {
        (Some(registry), Some((_, path))) => format!("{registry}/{path}"),
        _ => image.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use cinder_csi_crds::{ImageOverrides, Images, SidecarPolicy};
    use rstest::rstest;

    use super::{Component, ImageSet, InstalledImages};
    use crate::cluster::KubernetesVersion;
    use crate::releases::COMPONENTS;
    use crate::releases::sidecars::Skew;

    fn mk_images(minor: u32, policy: SidecarPolicy, installed: &InstalledImages, spec: &Images) -> ImageSet {
        ImageSet::choose(
            "1.2.3",
            Some(KubernetesVersion { major: 1, minor }),
            policy,
            installed,
            spec,
        )
    }

    #[test]
    fn driver_follows_operator_and_sidecars_follow_cluster() {
        let images = mk_images(34, SidecarPolicy::Auto, &InstalledImages::default(), &Images::default());

        assert_eq!(
            images.name(Component::Driver),
            "ghcr.io/cinder-csi/cinder-csi-driver:v1.2.3"
        );
        assert_eq!(
            images.name(Component::Resizer),
            "registry.k8s.io/sig-storage/csi-resizer:v2.3.0"
        );
        assert_eq!(images.get(Component::Driver).unwrap().skew, None);
        assert_eq!(images.get(Component::Resizer).unwrap().skew, Some(Skew::Ok));
    }

    #[test]
    fn cluster_upgrade_does_not_change_pinned_sidecars() {
        let of = |minor| {
            mk_images(
                minor,
                SidecarPolicy::Pinned,
                &InstalledImages::default(),
                &Images::default(),
            )
        };

        assert_eq!(of(31).name(Component::Resizer), of(36).name(Component::Resizer));
        assert_eq!(of(31).get(Component::Resizer).unwrap().skew, Some(Skew::New));
    }

    #[test]
    fn mirror_replaces_only_built_in_registries() {
        let spec = Images {
            registry: Some("mirror.example.org:5000/k8s".into()),
            overrides: ImageOverrides {
                attacher: Some("other.example.org/attacher:v4.9.0".into()),
                ..ImageOverrides::default()
            },
            ..Images::default()
        };
        let installed: InstalledImages = [(Component::Resizer, "site/resizer@sha256:1".to_owned())]
            .into_iter()
            .collect();

        let images = mk_images(36, SidecarPolicy::Auto, &installed, &spec);

        for component in COMPONENTS.iter().map(|row| row.component) {
            let name = images.name(component);
            match component {
                Component::Attacher => assert_eq!(name, "other.example.org/attacher:v4.9.0"),
                Component::Resizer => assert_eq!(name, "site/resizer@sha256:1"),
                _ => assert!(name.starts_with("mirror.example.org:5000/k8s/"), "{name}"),
            }
        }
        assert_eq!(images.get(Component::Attacher).unwrap().skew, Some(Skew::Old));
        assert_eq!(images.get(Component::Resizer).unwrap().skew, Some(Skew::Pinned));
    }

    #[rstest]
    #[case("mirror/resizer:v1.14.0", "v1.14.0")]
    #[case("mirror/resizer@sha256:1", "v2.3.0")]
    fn arguments_match_running_release(#[case] image: &str, #[case] release: &str) {
        let spec = Images {
            overrides: ImageOverrides {
                resizer: Some(image.into()),
                ..ImageOverrides::default()
            },
            ..Images::default()
        };

        let images = mk_images(36, SidecarPolicy::Auto, &InstalledImages::default(), &spec);

        let found = images.get(Component::Resizer).unwrap().release.as_ref().unwrap();
        assert_eq!(format!("v{found}"), release);
    }

    #[test]
    fn lease_names_match_sidecars() {
        let lease = |component: Component| component.row().lease("cinder.csi.openstack.org");
        assert_eq!(
            lease(Component::Provisioner).as_deref(),
            Some("cinder-csi-openstack-org")
        );
        assert_eq!(
            lease(Component::Attacher).as_deref(),
            Some("external-attacher-leader-cinder-csi-openstack-org")
        );
        assert_eq!(lease(Component::Registrar), None);
    }
}
