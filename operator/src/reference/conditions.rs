//! The reasons of conditions.

use cinder_csi_crds::ConditionType::{self, Available, Degraded, Progressing};

/// One reason that a condition may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionReason {
    /// The condition.
    pub type_: ConditionType,
    /// True, False or Unknown.
    pub status: &'static str,
    /// The word in the status.
    pub reason: &'static str,
    /// What is the case.
    pub meaning: &'static str,
    /// What to do about it; empty where there is nothing to do.
    pub remedy: &'static str,
}

const fn row(
    type_: ConditionType,
    status: &'static str,
    reason: &'static str,
    meaning: &'static str,
    remedy: &'static str,
) -> ConditionReason {
    ConditionReason {
        type_,
        status,
        reason,
        meaning,
        remedy,
    }
}

/// Every reason that a condition may have.
pub static CONDITIONS: &[ConditionReason] = &[
    row(
        Available,
        "True",
        "AsExpected",
        "The controller serves, and every Ready node that should have the driver has it registered.",
        "",
    ),
    row(
        Available,
        "False",
        "ControllerMissing",
        "The controller's Deployment does not exist yet.",
        "Condition Degraded names what stands in the way.",
    ),
    row(
        Available,
        "False",
        "ControllerDown",
        "No pod of the controller is available: volumes are neither made nor attached. Pods that run keep their volumes.",
        "`kubectl describe` of the Deployment and of its pods tells why.",
    ),
    row(
        Available,
        "False",
        "NoNodes",
        "No node matches spec.node.",
        "Mend nodeSelector, affinity or tolerations in spec.node.",
    ),
    row(
        Available,
        "False",
        "NodesUnregistered",
        "Nodes have no CSINode entry of the driver; pods there cannot use volumes.",
        "Look at the node pods there and at their logs.",
    ),
    row(
        Available,
        "False",
        "NodesNotReady",
        "None of the nodes is Ready.",
        "Look at the nodes.",
    ),
    row(
        Available,
        "False",
        "NodePodsDown",
        "No node pod is available: no volume can be mounted or unmounted.",
        "`kubectl describe` of the DaemonSet and of its pods tells why.",
    ),
    row(Available, "False", "Removing", "The driver is being removed.", ""),
    row(
        Available,
        "False",
        "Removed",
        "The driver was removed and nothing of it is left.",
        "Set spec.managementState to Managed to have it again.",
    ),
    row(
        Progressing,
        "True",
        "Installing",
        "The objects of the driver are being made.",
        "",
    ),
    row(
        Progressing,
        "True",
        "RollingOut",
        "Pods of controller or nodes are being replaced or started.",
        "",
    ),
    row(
        Progressing,
        "True",
        "Removing",
        "The driver is being removed; the message says what is waited for.",
        "",
    ),
    row(
        Progressing,
        "True",
        "DeletionBlocked",
        "The driver is to be removed, and volumes of it exist.",
        "Delete the claims and pods that use the volumes.",
    ),
    row(
        Progressing,
        "False",
        "AsExpected",
        "Everything is as the spec wants it.",
        "",
    ),
    row(
        Progressing,
        "False",
        "Stopped",
        "Nothing more can be made until what Degraded tells is mended.",
        "See condition Degraded.",
    ),
    row(
        Progressing,
        "False",
        "Unmanaged",
        "spec.managementState is Unmanaged: the operator reports and changes nothing.",
        "Set it to Managed to let the operator work.",
    ),
    row(
        Progressing,
        "False",
        "DeletionHeld",
        "The object is being deleted and is Unmanaged.",
        "Set spec.managementState to Managed to let the removal begin.",
    ),
    row(Progressing, "False", "Removed", "Nothing is left to do.", ""),
    row(Degraded, "False", "AsExpected", "Nothing needs help.", ""),
    row(
        Degraded,
        "True",
        "UnsupportedKubernetes",
        "The cluster's Kubernetes is too old.",
        "Upgrade the cluster.",
    ),
    row(
        Degraded,
        "True",
        "ClusterUnidentified",
        "Neither spec.clusterID nor the uid of kube-system is known.",
        "Let the operator read that namespace, or set spec.clusterID.",
    ),
    row(
        Degraded,
        "True",
        "PathTooLong",
        "The path of the registration socket would be too long for a socket.",
        "Use a shorter metadata.name.",
    ),
    row(
        Degraded,
        "True",
        "ForeignObject",
        "An object of the needed name was made by somebody else and is left alone.",
        "The message names the object and its maker.",
    ),
    row(
        Degraded,
        "True",
        "ImmutableField",
        "A field differs that Kubernetes does not let anybody change.",
        "Put the spec back, or delete the object yourself at a time without volumes in use.",
    ),
    row(
        Degraded,
        "True",
        "ApplyFailed",
        "The API server refused a write.",
        "The message holds its sentence.",
    ),
    row(
        Degraded,
        "True",
        "ControllerStalled",
        "The controller's Deployment does not get its pods running.",
        "The message holds the Deployment's own sentence.",
    ),
    row(
        Degraded,
        "True",
        "SecretMissing",
        "The Secret with the credentials does not exist.",
        "Create it, or name another one in spec.clouds.",
    ),
    row(
        Degraded,
        "True",
        "SecretKeyMissing",
        "The Secret has no such key.",
        "Add the key, or name another one in credentialsSecretRef.key.",
    ),
    row(
        Degraded,
        "True",
        "SecretMalformed",
        "The Secret's content cannot be understood.",
        "The message names the line and the key.",
    ),
    row(
        Degraded,
        "True",
        "SecretUnreadable",
        "The API server does not let the operator read the Secret or ConfigMap.",
        "Apply the operator's roles again.",
    ),
    row(
        Degraded,
        "True",
        "UnknownCloud",
        "clouds.yaml has no such entry.",
        "Mend spec.clouds[].cloudName, or the file.",
    ),
    row(
        Degraded,
        "True",
        "CABundleMissing",
        "The certificates that the spec or the credentials name are not there.",
        "Create the object, or change caBundleRef.",
    ),
    row(
        Degraded,
        "True",
        "CABundleMalformed",
        "The certificates are not in PEM.",
        "Store them in PEM.",
    ),
    row(
        Degraded,
        "True",
        "CredentialsRejected",
        "Keystone refuses the credentials.",
        "Put good ones into the Secret.",
    ),
    row(
        Degraded,
        "True",
        "CloudUnreachable",
        "Keystone does not answer.",
        "Check the address, the network and the certificates.",
    ),
    row(
        Degraded,
        "True",
        "LoginFailed",
        "The login failed in another way.",
        "The message tells which.",
    ),
];
