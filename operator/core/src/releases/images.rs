// SPDX-License-Identifier: Apache-2.0
//! Which image each container runs: the table's choice, the installation's, or the administrator's.

use std::collections::BTreeMap;

use cinder_csi_crds::{Images, SidecarPolicy};
use semver::Version;

use super::Component;
use crate::cluster::KubernetesVersion;
use crate::releases::sidecars::{self, Skew, release_of};

/// Where the driver's images are published.
const DRIVER_REPOSITORY: &str = "ghcr.io/cinder-csi/cinder-csi-driver";
/// Where the sidecars' images are published.
const SIDECARS: &str = "registry.k8s.io/sig-storage";

/// The images that an installation of the operator names, by flags or by its environment, for a registry of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledImages(BTreeMap<Component, String>);

impl FromIterator<(Component, String)> for InstalledImages {
    fn from_iter<T: IntoIterator<Item = (Component, String)>>(images: T) -> Self {
        Self(images.into_iter().collect())
    }
}

impl InstalledImages {
    /// What is named for a component.
    pub fn get(&self, component: Component) -> Option<&str> {
        self.0.get(&component).map(String::as_str)
    }
}

/// The image of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its name.
    pub name: String,
    /// The release of a sidecar as far as it can be told; for an image without a version, the one that the table has: the
    /// arguments are written for it.
    pub release: Option<Version>,
    /// How it stands to the release for this cluster; none for the driver.
    pub skew: Option<Skew>,
}

/// One image per component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSet {
    images: BTreeMap<Component, Image>,
}

impl ImageSet {
    /// Chooses the images: the administrator's before the installation's before the table's. Only names that the operator
    /// chooses itself are led to the mirror.
    pub fn choose(
        operator_version: &str,
        kubernetes: Option<KubernetesVersion>,
        policy: SidecarPolicy,
        installed: &InstalledImages,
        spec: &Images,
    ) -> Self {
        let fitting = sidecars::version_set(kubernetes);
        let row = match policy {
            SidecarPolicy::Auto => fitting,
            SidecarPolicy::Pinned => sidecars::newest(),
        };
        let image = |component: Component| {
            let wanted = row.release(component);
            let own = match wanted {
                None => format!("{DRIVER_REPOSITORY}:v{operator_version}"),
                Some(release) => format!("{SIDECARS}/{}:v{release}", component.image_name()),
            };
            let chosen = component
                .overridden(spec)
                .cloned()
                .or_else(|| installed.get(component).map(str::to_owned));
            let is_chosen = chosen.is_some();
            let name = chosen.unwrap_or_else(|| mirrored(&own, spec.registry.as_deref()));
            let runs = if is_chosen { release_of(&name) } else { wanted.cloned() };
            Image {
                skew: wanted.map(|_| Skew::between(runs.as_ref(), fitting.release(component))),
                release: wanted.map(|wanted| runs.unwrap_or_else(|| wanted.clone())),
                name,
            }
        };
        Self {
            images: Component::ALL
                .into_iter()
                .map(|component| (component, image(component)))
                .collect(),
        }
    }

    /// The image of a component.
    pub fn get(&self, component: Component) -> Option<&Image> {
        self.images.get(&component)
    }

    /// The name of a component's image.
    pub fn name(&self, component: Component) -> String {
        self.get(component).map(|image| image.name.clone()).unwrap_or_default()
    }
}

/// The same image in a mirror: the registry's name is replaced, the path below it stays.
fn mirrored(image: &str, registry: Option<&str>) -> String {
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
    fn the_driver_has_the_version_of_the_operator_and_the_sidecars_that_of_the_cluster() {
        let images = mk_images(34, SidecarPolicy::Auto, &InstalledImages::default(), &Images::default());

        assert_eq!(
            images.name(Component::Driver),
            "ghcr.io/cinder-csi/cinder-csi-driver:v1.2.3"
        );
        assert_eq!(
            images.name(Component::Resizer),
            "registry.k8s.io/sig-storage/csi-resizer:v2.1.0"
        );
        assert_eq!(images.get(Component::Driver).unwrap().skew, None);
        assert_eq!(images.get(Component::Resizer).unwrap().skew, Some(Skew::Ok));
    }

    #[test]
    fn pinned_sidecars_stay_what_they_are_when_the_cluster_is_upgraded() {
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
    fn a_mirror_takes_the_place_of_every_registry_and_leaves_what_somebody_chose() {
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

        for component in Component::ALL {
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
    #[case("mirror/resizer@sha256:1", "v2.2.1")]
    fn arguments_are_written_for_the_release_that_runs(#[case] image: &str, #[case] release: &str) {
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
    fn the_leases_have_the_names_that_the_sidecars_give_them() {
        let lease = |component: Component| component.lease("cinder.csi.openstack.org");
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
