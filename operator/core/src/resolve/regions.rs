// SPDX-License-Identifier: Apache-2.0
//! Nodes of several clouds. Each node reports the region in its label, which identifies its cloud.

use cinder_csi_crds::{CinderCSIDriverSpec, TopologyMode};
use cinder_csi_driver::topology::REGION;

use crate::reasons::Degraded;
use crate::{
    cluster::{KubernetesVersion, at_least},
    problem::Problem,
};

/// Minor version from which Kubernetes copies the region of a node to the labels of its pods, where containers can
/// read it.
const SINCE_MINOR: u32 = 35;

/// Whether the driver on each node reports the region in the label of the node.
pub(super) fn are_reported(spec: &CinderCSIDriverSpec) -> bool {
    spec.clouds.iter().any(|cloud| cloud.node_region.is_some())
}

/// Returns the problems that prevent this.
pub(super) fn problems(spec: &CinderCSIDriverSpec, kubernetes: Option<KubernetesVersion>) -> Vec<Problem> {
    if !are_reported(spec) {
        return Vec::new();
    }
    let mut reasons = Vec::new();
    if let Some(version) = kubernetes.filter(|_| !at_least(kubernetes, SINCE_MINOR)) {
        reasons.push(format!(
            "needs Kubernetes 1.{SINCE_MINOR}, which copies the region of a node to the labels of its pods, and this cluster runs \
             {version}: upgrade the cluster, or leave nodeRegion out and let StorageClasses choose by secretName"
        ));
    }
    if spec.topology.mode == TopologyMode::Disabled {
        reasons.push(
            "needs zones, and spec.topology.mode is Disabled: without them no node reports where it is; set it to Auto or Enabled"
                .to_owned(),
        );
    }
    if spec.topology.additional.contains_key(REGION) {
        reasons.push(format!(
            "takes {REGION} from the labels of each node, and spec.topology.additional sets it for all nodes: take it out there"
        ));
    }
    let problem = |reason| Problem {
        reason: Degraded::InvalidSpec,
        message: format!("spec.clouds[].nodeRegion {reason}"),
    };
    reasons.into_iter().map(problem).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::resolve::tests::mk_driver;

    fn mk_spec(regions: &[&str]) -> CinderCSIDriverSpec {
        let mut spec = mk_driver("cinder.csi.openstack.org").spec;
        let cloud = spec.clouds[0].clone();
        spec.clouds = regions
            .iter()
            .map(|region| cinder_csi_crds::Cloud {
                name: (*region).to_owned(),
                node_region: Some((*region).to_owned()),
                ..cloud.clone()
            })
            .collect();
        spec
    }

    fn one(minor: u32) -> KubernetesVersion {
        KubernetesVersion { major: 1, minor }
    }

    #[rstest]
    #[case::new_enough(Some(one(35)), |_: &mut CinderCSIDriverSpec| (), "")]
    #[case::of_an_unknown_version(None, |_: &mut CinderCSIDriverSpec| (), "")]
    #[case::too_old(Some(one(34)), |_: &mut CinderCSIDriverSpec| (), "this cluster runs 1.34")]
    #[case::without_zones(Some(one(36)), |spec: &mut CinderCSIDriverSpec| spec.topology.mode = TopologyMode::Disabled, "mode is Disabled")]
    #[case::said_twice(Some(one(36)), |spec: &mut CinderCSIDriverSpec| {
        spec.topology.additional.insert(REGION.to_owned(), "one".to_owned());
    }, "take it out there")]
    fn node_regions_require_zones_and_kubernetes_1_35(
        #[case] kubernetes: Option<KubernetesVersion>,
        #[case] change: fn(&mut CinderCSIDriverSpec),
        #[case] complaint: &str,
    ) {
        let mut spec = mk_spec(&["east", "west"]);
        change(&mut spec);

        let problems = problems(&spec, kubernetes);

        match complaint {
            "" => assert_eq!(problems, []),
            complaint => assert!(
                problems.len() == 1 && problems[0].message.contains(complaint),
                "{problems:?}"
            ),
        }
    }

    #[test]
    fn clouds_without_regions_have_no_requirements() {
        let mut spec = mk_spec(&[]);
        spec.topology.mode = TopologyMode::Disabled;

        assert!(!are_reported(&spec));
        assert_eq!(problems(&spec, Some(one(30))), []);
    }
}
