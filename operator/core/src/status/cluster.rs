// SPDX-License-Identifier: Apache-2.0
//! Whether the operator can read the objects of the cluster.

use super::verdict::{Verdict, verdict};
use crate::{decide::ClusterView, reasons::Upgradeable, text::join_truncated};

/// Returns why an upgrade is not advised while watches fail or objects do not decode.
pub(super) fn unreadable(view: &ClusterView) -> Option<Verdict<Upgradeable>> {
    let watches = (!view.failing_watches.is_empty()).then(|| {
        format!(
            "what the operator knows of these kinds is old, because their watches fail: {}",
            join_truncated(&view.failing_watches)
        )
    });
    let objects = (!view.undecodable.is_empty()).then(|| {
        format!(
            "the operator cannot decode these objects, and counts them as existing and in use: {}. Fix or delete them; `kubectl get -o yaml \
             --show-managed-fields` shows the field",
            join_truncated(&view.undecodable)
        )
    });
    let reason = match (&watches, &objects) {
        (Some(_), _) => Upgradeable::WatchFailing,
        (None, Some(_)) => Upgradeable::ObjectsUndecodable,
        (None, None) => return None,
    };
    let message: Vec<String> = [watches, objects].into_iter().flatten().collect();
    Some(verdict(reason, message.join(" | ")))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::reasons::Reason as _;

    #[rstest]
    #[case::objects(&[], &["Node n1: invalid value"], "ObjectsUndecodable", &["Node n1", "--show-managed-fields"])]
    #[case::watches(&["nodes: forbidden"], &[], "WatchFailing", &["nodes: forbidden"])]
    #[case::both(&["nodes: forbidden"], &["Node n1: invalid value"], "WatchFailing", &["nodes: forbidden", "Node n1"])]
    fn names_objects_and_watches(
        #[case] watches: &[&str],
        #[case] objects: &[&str],
        #[case] reason: &str,
        #[case] parts: &[&str],
    ) {
        let own = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let view = ClusterView {
            undecodable: own(objects),
            failing_watches: own(watches),
        };
        let (is, message) = unreadable(&view).expect("a reason");
        assert_eq!(is.as_str(), reason);
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
    }
}
