// SPDX-License-Identifier: Apache-2.0
//! The object that `diagnose` starts from.

use std::fmt;

/// A kind of object that leads to a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetKind {
    Claim,
    Pod,
    Volume,
    Snapshot,
    Attachment,
}

/// Each kind with its name in Kubernetes, its names on the command line and the help of the first of them.
pub(crate) const TARGET_KINDS: [(TargetKind, &str, &[&str], &str); 5] = [
    (
        TargetKind::Claim,
        "PersistentVolumeClaim",
        &["pvc", "persistentvolumeclaim", "persistentvolumeclaims"],
        "A PersistentVolumeClaim",
    ),
    (TargetKind::Pod, "Pod", &["pod", "pods", "po"], "A pod with volumes"),
    (
        TargetKind::Volume,
        "PersistentVolume",
        &["pv", "persistentvolume", "persistentvolumes"],
        "A PersistentVolume",
    ),
    (
        TargetKind::Snapshot,
        "VolumeSnapshot",
        &["volumesnapshot", "volumesnapshots", "vs"],
        "A VolumeSnapshot",
    ),
    (
        TargetKind::Attachment,
        "VolumeAttachment",
        &["volumeattachment", "volumeattachments", "va"],
        "A VolumeAttachment",
    ),
];

impl TargetKind {
    /// The name in Kubernetes.
    pub(crate) fn as_str(self) -> &'static str {
        let row = TARGET_KINDS.iter().find(|(kind, ..)| *kind == self);
        row.map_or("", |(_, name, ..)| name)
    }

    fn is_namespaced(self) -> bool {
        !matches!(self, Self::Volume | Self::Attachment)
    }

    fn parse(word: &str) -> Option<Self> {
        let lower = word.to_lowercase();
        // As in volumesnapshots.snapshot.storage.k8s.io.
        let plain = lower.split('.').next().unwrap_or_default();
        let row = TARGET_KINDS.iter().find(|(_, _, words, _)| words.contains(&plain));
        row.map(|(kind, ..)| *kind)
    }
}

/// An object of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: TargetKind,
    /// The namespace of the command line. Objects without a namespace ignore it.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Target {
    /// Parses `NAME`, `KIND/NAME` or `KIND NAME`, as kubectl does. A name without a kind is the name of a claim.
    /// Returns an unknown kind as the error.
    pub(crate) fn parse(object: &str, name: Option<&str>, namespace: &str) -> Result<Self, String> {
        let (kind, name) = match (object.split_once('/'), name) {
            (Some((kind, name)), None) => (Some(kind), name),
            (_, Some(name)) => (Some(object), name),
            (None, None) => (None, object),
        };
        let kind = match kind {
            Some(word) => TargetKind::parse(word).ok_or_else(|| word.to_owned())?,
            None => TargetKind::Claim,
        };
        Ok(Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind.as_str())?;
        if self.kind.is_namespaced() {
            write!(f, "{}/", self.namespace)?;
        }
        write!(f, "{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::claim("c", None, "PersistentVolumeClaim n/c")]
    #[case::one_word("pod/web-0", None, "Pod n/web-0")]
    #[case::two_words("pods", Some("web-0"), "Pod n/web-0")]
    #[case::cluster("PV/pvc-1a96", None, "PersistentVolume pvc-1a96")]
    #[case::group("volumesnapshots.snapshot.storage.k8s.io/s", None, "VolumeSnapshot n/s")]
    #[case::attachment("va", Some("csi-16cc"), "VolumeAttachment csi-16cc")]
    fn accepts_names_as_kubectl_does(#[case] object: &str, #[case] name: Option<&str>, #[case] expected: &str) {
        assert_eq!(
            Target::parse(object, name, "n").expect("a target").to_string(),
            expected
        );
    }

    #[test]
    fn unknown_kind_is_an_error() {
        let parsed = Target::parse("deployment/web", None, "n");
        assert_eq!(parsed, Err("deployment".to_owned()));
    }
}
