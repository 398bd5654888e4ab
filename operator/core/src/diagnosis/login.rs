// SPDX-License-Identifier: Apache-2.0
//! Finds operations on volumes that suggest a failed login of the driver.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::jiff::Timestamp;

use super::{
    cases::{LOOKED_INTO, OverdueOperations, overdue},
    rules::is_login_failure,
};
use crate::{cluster::Index, resolve::health::StuckSettings};

/// Age from which an operation without an error in its object counts as silent. The sidecars report failed creations
/// and deletions in events only, which the operator has no right to read.
const SILENT_AFTER: Duration = Duration::from_secs(20);

/// Objects whose operations suggest a failed login, as kind and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginDoubts {
    /// Objects with a failed login as their last error.
    pub refused: BTreeSet<String>,
    /// Objects without an error that are older than 20 seconds.
    pub silent: BTreeSet<String>,
    /// Time until the next operation counts as silent.
    pub next: Option<Duration>,
}

/// Lists operations of a driver that suggest a failed login: the newest of each kind of doubt, at most
/// [`LOOKED_INTO`].
pub fn login_doubts(index: &Index, driver: &str, now: Timestamp) -> LoginDoubts {
    let limits = StuckSettings {
        attach: SILENT_AFTER,
        detach: SILENT_AFTER,
        provision: SILENT_AFTER,
        delete: SILENT_AFTER,
        resize: SILENT_AFTER,
        max_reported: 0,
    };
    let OverdueOperations { mut late, next, .. } = overdue(index, driver, &limits, now);
    late.retain(|(_, _, fact)| fact.error().is_none());
    late.sort_by_key(|(operation, since, fact)| (std::cmp::Reverse(*since), fact.name(), *operation));
    let attachments = index
        .attachment_facts(driver)
        .filter(|(_, fact)| is_refused(fact.error.0.as_deref()));
    let attachments = attachments.map(|(name, _)| format!("VolumeAttachment {name}"));
    let claims = index
        .claim_facts(driver)
        .filter(|claim| is_refused(claim.error.0.as_deref()));
    let claims = claims.map(|claim| format!("PersistentVolumeClaim {}/{}", claim.claim.namespace, claim.claim.name));
    LoginDoubts {
        refused: attachments.chain(claims).take(LOOKED_INTO).collect(),
        silent: late
            .iter()
            .take(LOOKED_INTO)
            .map(|(_, _, fact)| fact.object())
            .collect(),
        next,
    }
}

fn is_refused(error: Option<&str>) -> bool {
    error.is_some_and(is_login_failure)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::{AttachmentObject, Indexed, VolumeObject};

    fn put<K: Indexed + serde::de::DeserializeOwned>(index: &mut Index, object: Value) {
        index.put(&serde_json::from_value::<K>(object).expect("an object"));
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    fn attachment(name: &str, error: Option<&str>) -> Value {
        json!({
            "metadata": {"name": name, "creationTimestamp": at(0).to_string()},
            "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": name}},
            "status": {"attached": false, "attachError": error.map(|message| json!({"message": message}))},
        })
    }

    #[test]
    fn deletion_is_silent_after_20_seconds() {
        let mut index = Index::default();
        put::<VolumeObject>(
            &mut index,
            json!({"metadata": {"name": "pv", "deletionTimestamp": at(0).to_string()},
                "spec": {"csi": {"driver": "d", "volumeHandle": "v"}}}),
        );
        let doubts = login_doubts(&index, "d", at(19));
        assert!(doubts.silent.is_empty());
        assert_eq!(doubts.next, Some(Duration::from_secs(1)));
        let doubts = login_doubts(&index, "d", at(20));
        assert_eq!(doubts.silent, ["PersistentVolume pv".to_owned()].into());
        assert_eq!(login_doubts(&index, "other", at(20)), LoginDoubts::default());
    }

    #[test]
    fn attachment_error_decides_immediately() {
        let mut index = Index::default();
        put::<AttachmentObject>(&mut index, attachment("refused", Some("[auth] token_create: HTTP 401")));
        put::<AttachmentObject>(&mut index, attachment("other", Some("volume is in use")));
        put::<AttachmentObject>(&mut index, attachment("silent", None));
        let refused = ["VolumeAttachment refused".to_owned()].into();
        assert_eq!(login_doubts(&index, "d", at(1)).refused, refused);
        let doubts = login_doubts(&index, "d", at(60));
        assert_eq!(doubts.refused, refused);
        assert_eq!(doubts.silent, ["VolumeAttachment silent".to_owned()].into());
    }
}
