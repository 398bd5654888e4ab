// SPDX-License-Identifier: Apache-2.0
//! State of the sidecars, fields without effect, and overrides.

use super::verdict::{Verdict, verdict};
use crate::{decide::PodsView, reasons::Upgradeable};

/// Returns why an upgrade needs a review of spec.overrides.
pub(super) fn overridden(view: Option<&PodsView>) -> Option<Verdict<Upgradeable>> {
    let overridden = view.map(|view| &view.overridden)?;
    if let Some(failed) = overridden.failed.first() {
        let message =
            format!("a patch of spec.overrides fails, and holds its object at the last applied content: {failed}");
        return Some(verdict(Upgradeable::OverrideFailed, message));
    }
    (!overridden.changed.is_empty()).then(|| {
        let message = format!(
            "spec.overrides changes {}: review the patches with every new version of the operator",
            overridden.changed.join(", ")
        );
        verdict(Upgradeable::Overridden, message)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::overridden;
    use crate::decide::PodsView;
    use crate::manifests::Overridden;
    use crate::reasons::Reason as _;
    use crate::releases::Component;
    use crate::resolve::resolve;
    use crate::{resolve::tests::mk_driver, resolve::tests::mk_environment};

    #[rstest]
    #[case(&["Deployment x"], &[], "True", "Overridden")]
    #[case(&["Deployment x"], &["spec.overrides[1] (Deployment y): no such object"], "Unknown", "OverrideFailed")]
    fn overrides_are_reported(
        #[case] changed: &[&str],
        #[case] failed: &[&str],
        #[case] status: &str,
        #[case] reason: &str,
    ) {
        let own = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let view = PodsView {
            overridden: Overridden {
                changed: own(changed),
                failed: own(failed),
                ..Overridden::default()
            },
            ..PodsView::default()
        };

        let (found, message) = overridden(Some(&view)).expect("a reason");

        assert_eq!((found.row().status, found.as_str()), (status, reason));
        for text in failed {
            assert!(message.contains(text), "{message}");
        }
    }

    #[test]
    fn sidecars_are_reported_with_version_skew() {
        let mut driver = mk_driver("cinder.csi.openstack.org");
        driver.spec.images.overrides.resizer = Some("mirror/resizer:v1.13.0".into());
        driver.spec.node.registration = cinder_csi_crds::NodeRegistration::Sidecar;
        let environment = mk_environment();
        let resolved = resolve(&driver, &environment).unwrap();

        let view = PodsView::of(&resolved, &environment, Overridden::default());

        let reported: Vec<_> = view
            .sidecars
            .iter()
            .map(|s| (s.name.as_str(), s.version_skew.as_str()))
            .collect();
        assert_eq!(
            reported,
            [
                (Component::Provisioner.row().container, "OK"),
                (Component::Attacher.row().container, "OK"),
                (Component::Resizer.row().container, "Old"),
                (Component::Registrar.row().container, "OK"),
                (Component::LivenessProbe.row().container, "OK"),
            ]
        );
        assert_eq!(
            (view.kubernetes.as_deref(), view.version_set.as_str()),
            (Some("1.36"), ">= 1.34")
        );
    }
}
