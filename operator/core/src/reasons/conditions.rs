// SPDX-License-Identifier: Apache-2.0
//! The reasons of conditions.

use super::reason::{ConditionReason, Reason};
use cinder_csi_crds::ConditionType;

/// Defines one enum per condition. Each reason has its meaning, the status of the condition, its name in the status,
/// and the remedy.
macro_rules! conditions {
    ($($name:ident {
        $($(#[doc = $meaning:literal])+ $status:ident $reason:ident $(= $word:literal)? $(=> $remedy:literal)?,)+
    })+) => {
        $(
            #[doc = concat!("The reasons of condition ", stringify!($name), ".")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum $name {
                $($(#[doc = $meaning])+ $reason,)+
            }

            impl $name {
                const ROWS: &[ConditionReason] = &[$(ConditionReason {
                    type_: ConditionType::$name,
                    status: stringify!($status),
                    reason: word!($reason $($word)?),
                    meaning: concat!($($meaning),+),
                    remedy: concat!($($remedy)?),
                },)+];
            }

            impl Reason for $name {
                fn row(self) -> &'static ConditionReason {
                    &Self::ROWS[self as usize]
                }
            }
        )+

        /// Each enum with its variants.
        #[cfg(test)]
        pub(super) const VARIANTS: &[(&str, &[&str])] = &[$((stringify!($name), &[$(stringify!($reason)),+])),+];

        /// Returns the reasons of a condition.
        pub fn reasons_of(type_: ConditionType) -> &'static [ConditionReason] {
            match type_ {
                $(ConditionType::$name => $name::ROWS,)+
            }
        }
    };
}

conditions! {
    Ready {
        /// The driver is available, and nothing is degraded except single nodes, which the message names.
        True AsExpected,
        /// The driver does not work.
        False Unavailable => "See condition Available.",
        /// The driver is available and degraded.
        False Degraded => "See condition Degraded.",
        /// The state of the driver is unknown: reconciliation is suspended, or the operator has released the driver.
        Unknown NotReconciled => "See condition Available.",
    }
    Reconciling {
        /// The operator changes nothing: the driver matches the spec, or an administrator must act first.
        False AsExpected,
        /// The operator installs, updates, migrates or removes the driver.
        True Progressing => "See condition Progressing.",
        /// The operator retries a failed operation.
        True Retrying => "See condition Degraded.",
    }
    Stalled {
        /// No action of an administrator is required.
        False AsExpected,
        /// An administrator must act before the driver can match the spec.
        True Degraded => "See condition Degraded.",
        /// The removal of the driver is blocked.
        True DeletionBlocked => "See condition DeletionBlocked.",
    }
    Available {
        /// The controller serves, and at most spec.node.update.maxUnavailable nodes, and not all, have been without the driver
        /// for longer than --registration-deadline. Condition Degraded names these.
        True AsExpected,
        /// The controller's Deployment does not exist yet.
        False ControllerMissing => "Condition Degraded names what prevents it.",
        /// Pods of the controller or the nodes lack a container that the driver needs.
        False ContainersMissing =>
            "Take back what changed the template: an edit while the operator may not write, or a webhook.",
        /// No pod of the controller is available: volumes are neither created nor attached. Volumes of running pods
        /// remain usable.
        False ControllerDown => "`kubectl describe` of the Deployment and of its pods shows why.",
        /// The DaemonSet of the nodes does not exist: no volume can be mounted or unmounted.
        False DaemonSetMissing => "Condition Degraded names what prevents it.",
        /// More nodes than spec.node.update.maxUnavailable are without the driver. Most of them have volumes attached, the
        /// DaemonSet excludes them, and no pod of the driver runs there. Pods there can neither unmount their volumes nor be
        /// deleted.
        False NodesWithoutDriver =>
            "Let spec.node include the nodes again, or restore their labels and taints, until the volumes are detached.",
        /// No node matches spec.node.
        False NoNodes => "Fix nodeSelector, affinity or tolerations in spec.node.",
        /// More nodes than spec.node.update.maxUnavailable, or all, are without the driver. Most of them have no CSINode entry
        /// of the driver; pods there cannot use volumes. A node has --registration-deadline, except while the driver is
        /// installed.
        False NodesUnregistered => "Check the node pods there and their logs.",
        /// None of the nodes is Ready.
        False NodesNotReady => "Check the nodes.",
        /// No node pod is available, or more nodes than spec.node.update.maxUnavailable have been without the driver
        /// for longer than --registration-deadline. On most of them the kubelet has registered the driver, and its
        /// pod is not ready.
        False NodePodsDown =>
            "Condition Degraded names nodes, pods and reasons; `kubectl describe` of the DaemonSet and of its pods \
             shows more.",
        /// Reconciliation is suspended, and the driver keeps running. Other conditions show the last observed state.
        Unknown NotReconciled => "Condition Degraded has the cause.",
        /// The driver is being removed.
        False Removing,
        /// spec.deletion.policy is Orphan: the operator has released the driver, which continues to run.
        Unknown Orphaned =>
            "To adopt it again, set spec.adoption.mode to Adopt and spec.managementState to Managed.",
        /// The driver was removed: the objects that the operator owned for it are deleted.
        False Removed => "Set spec.managementState to Managed to install it again.",
        /// The cloud has refused the driver's own credentials for 15 minutes: volumes are neither created, attached,
        /// detached nor deleted. Volumes of running pods remain usable.
        False AuthFailed => "See condition CredentialsValid.",
        /// Keystone, Cinder or Nova has been unavailable or has failed for 15 minutes: volumes are neither created,
        /// attached, detached nor deleted. Volumes of running pods remain usable.
        False BackendDown => "See condition CredentialsValid.",
    }
    Progressing {
        /// The operator creates the objects of the driver.
        True Installing,
        /// Another installation of the driver is replaced; status.adoption shows the step.
        True Migrating,
        /// Pods of controller or nodes are being replaced or started.
        True RollingOut,
        /// The driver is being removed. The message names what the removal waits for.
        True Removing,
        /// The driver is to be removed, and volumes of it exist.
        True DeletionBlocked => "Delete the claims and pods that use the volumes.",
        /// The driver matches the spec.
        False AsExpected,
        /// Nothing continues until the problem that Degraded reports is fixed.
        False Blocked => "See condition Degraded.",
        /// The object is being deleted and is Unmanaged.
        False DeletionPaused => "Set spec.managementState to Managed to begin the removal.",
        /// An update waits for an administrator; no pod is replaced until then.
        True WaitingForApproval => "Set spec.update.approvedVersion to status.targetVersion.",
        /// spec.managementState is Paused, DryRun or Unmanaged: nothing is changed.
        False Paused => "Set spec.managementState to Managed to allow changes.",
    }
    Degraded {
        /// The operator has detected no problem.
        False AsExpected,
        /// The cluster's Kubernetes is too old.
        True UnsupportedKubernetes => "Upgrade the cluster.",
        /// Neither spec.clusterID nor the uid of kube-system is known.
        True ClusterIDUnknown => "Let the operator read that namespace, or set spec.clusterID.",
        /// A value of the spec cannot be used, and no rule of the CustomResourceDefinition rejects it. The objects
        /// that depend on it retain their last applied content. The operator maintains all others.
        True InvalidSpec => "Change what the message names.",
        /// spec.overrides is set, and the operator's --allow-overrides is false. The affected objects retain their
        /// last applied content.
        True OverridesForbidden => "Remove the overrides, or ask the administrator of the operator.",
        /// An image is from none of the registries of the operator's --allowed-registries. The workloads that use it
        /// retain their last applied content.
        True ImageForbidden => "Name another image in spec.images, or ask the administrator of the operator.",
        /// A patch of spec.overrides fails. Its object retains its last applied content, or is not created.
        True OverrideFailed => "Fix the patch or remove it; the message has the reason.",
        /// The DaemonSet would exclude nodes that have volumes of the driver attached. It retains its last applied
        /// content until the volumes are detached.
        True NodesInUse =>
            "Drain the nodes that the message names, revert the change, or confirm it with the annotation \
             csi.openstack.org/narrow-nodes.",
        /// Volumes are attached on nodes that the DaemonSet excludes and where no pod of the driver runs.
        True NodesWithoutDriver =>
            "Let spec.node include the nodes again, or restore their labels and taints, until the volumes are detached.",
        /// The driver registered nodes as another server than the one in their providerID. Volumes of pods there are
        /// attached to the registered server.
        True NodeIdentityMismatch =>
            "Compare both with `openstack server list`, and correct the source of the node's identity or the providerID.",
        /// An object with the required name has another owner. The operator does not change it.
        True OwnershipConflict => "The message names the object and its owner.",
        /// The operator does not serve the namespace in spec.operandNamespace, and changes nothing there.
        True OperandNamespaceNotServed =>
            "Create the namespace and give it to the operator: the chart's value operandNamespaces, or \
             --operand-namespaces and config/rbac/operand-namespace.",
        /// The operator has no role in spec.operandNamespace, or the namespace does not exist. The message has the
        /// missing right.
        True OperandNamespaceForbidden =>
            "Create the namespace and apply config/rbac/operand-namespace, or the chart with the value \
             operandNamespaces.",
        /// The driver runs in another namespace than the one that this operator is configured for, or its namespace
        /// is unknown. The operator changes nothing.
        True OperandsElsewhere =>
            "Install the operator in the namespace that the message names, or set spec.operandNamespace to it; see the \
             runbook.",
        /// A migration or its reversal is in progress, and the operator has no role in the namespace of the other
        /// installation. The operator starts and changes no workload, because the other controller may run.
        True AdoptionForbidden =>
            "`kubectl apply -k config/rbac/adoption`, or set spec.adoption.mode to Refuse when the migration is done.",
        /// The migration does not begin, because the check has open findings or the API server refuses this driver's
        /// controller in a dry run.
        True MigrationHeldUp => "Fix what the message names: a finding, a quota, an admission policy, a right of the operator.",
        /// This driver's controller did not serve in time. The operator restores the pods of the other installation's
        /// controller.
        True MigrationFailed => "Fix what the message names, and change the spec to retry the migration.",
        /// A field differs from the spec, and Kubernetes does not allow its change.
        True ImmutableField => "Revert the spec, or delete the object yourself at a time without volumes in use.",
        /// The API server refused a write.
        True ApplyFailed => "The message has the answer of the API server.",
        /// A reconcile failed or took too long. The message reports conditions that were not evaluated.
        True ReconcileFailed =>
            "The message has the cause. If a right is missing, apply the operator's roles of its version. If a webhook or \
             a policy refuses a request, allow the operator's service account.",
        /// The operator's version cannot read the object, for example after a downgrade of the operator without its
        /// CustomResourceDefinition. Other conditions show the last observed state. A deletion waits.
        True Unreadable =>
            "Fix the field that the message names, or bring the operator and its CustomResourceDefinition to the same \
             version.",
        /// The controller's Deployment cannot start its pods.
        True ControllerStalled => "The message has the Deployment's own message.",
        /// The Secret with the credentials does not exist, or does not have the key.
        True SecretMissing => "Create it, add the key, or name another one in spec.clouds.",
        /// The content of the Secret or the CA bundle is invalid.
        True SecretMalformed => "Fix the key that the message names; it has the line where one is known.",
        /// The operator could not read the Secret or ConfigMap.
        True SecretUnreadable => "The message has the cause. If a right is missing, apply the operator's roles again.",
        /// clouds.yaml has no such entry.
        True UnknownCloud => "Fix spec.clouds[].cloudName, or the file.",
        /// The certificates that the spec or the credentials reference do not exist.
        True CABundleMissing => "Create the object, or change caBundleRef.",
        /// Keystone refuses the credentials.
        True CredentialsRejected => "Put valid credentials into the Secret.",
        /// Login with the credentials leads to another project or region than that of the driver's volumes, or the project
        /// of the volumes is unknown.
        True ProjectChanged =>
            "Put credentials of the same project and region into the Secret; see the runbook for an intended move.",
        /// Login with the credentials works, and the catalogue has no Cinder v3 or Nova v2.1 for the region and the endpoint
        /// type. Or the endpoint uses http while the auth URL uses https.
        True EndpointMissing =>
            "Correct region_name, spec.clouds[].region or spec.clouds[].endpointType, or the catalogue; for http, see allow-http-endpoints.",
        /// Login with the credentials works, the catalogue has several regions, and neither the credentials nor the spec name one.
        True RegionAmbiguous => "Set region_name in the Secret, or spec.clouds[].region, to the region of the volumes and servers.",
        /// A cloud is no longer in spec.clouds, and volumes of the driver exist there, or the cloud does not answer.
        True CloudInUse =>
            "Add it again, or delete its volumes first; see the runbook for volumes to abandon.",
        /// Keystone, Cinder or Nova has been unavailable or has failed for two minutes.
        True CloudUnreachable => "Check the address, the network and the certificates.",
        /// The CustomResourceDefinition is of another release than the operator. The operator does not change the
        /// pods of the driver.
        True CRDMismatch => "Apply the definition of the operator's release.",
        /// The login failed in another way.
        True LoginFailed => "The message has the answer.",
        /// The operator is older than the driver.
        True DowngradeRefused =>
            "Bring the operator to the driver's version again, or allow the downgrade in spec.update.",
        /// The operator is more than one minor version newer than the driver.
        True SkipRefused => "Install the operator of the version that the message names first.",
        /// After a change, node pods did not start in time on as many nodes as spec.node.update.maxUnavailable. The
        /// other nodes retain their old pods.
        True RolloutStopped => "Fix the spec or the node, and delete the pod that the message names to retry.",
        /// Node pods of any revision have not been Ready and registered for longer than --registration-deadline. A
        /// rollout continues.
        True NodePodsFailing => "Fix the node, or delete the pod that the message names to retry.",
        /// An older CinderCSIDriver uses the port on the same nodes.
        True PortTaken => "Choose another port or other nodes.",
        /// An older CinderCSIDriver has objects of the same names.
        True InstanceNameTaken => "Create the object again with another spec.instanceName.",
        /// Keystone recognizes the credentials and refuses the login.
        True CredentialsForbidden => "Ask the administrator of the cloud to enable user and project, or to assign the user a role.",
        /// The client certificate that the spec or the credentials reference does not exist.
        True ClientCertificateMissing =>
            "Create the Secret of type kubernetes.io/tls, or name another one in spec.clouds[].clientCertSecretRef.",
        /// An object must be recreated to change an immutable field, and another object still needs it.
        True PendingRecreate => "The message names what needs it. The operator recreates the object after that.",
        /// spec.snapshots.mode is Enabled, and the cluster does not serve VolumeSnapshots. Or their
        /// CustomResourceDefinitions were deleted while the driver had snapshots.
        True SnapshotCRDsMissing => "Install their CustomResourceDefinitions. The message describes how to find lost snapshots.",
        /// csi-snapshotter continues to run, although the spec disables snapshots or one of their
        /// CustomResourceDefinitions is missing. Contents of snapshots exist, or could exist.
        True SnapshotsInUse => "Delete the VolumeSnapshots, or enable snapshots again as the message describes.",
        /// The spec disables zones, and PersistentVolumes are bound to them.
        True TopologyInUse => "Set spec.topology.mode to Enabled, or confirm as the message describes.",
        /// spec.snapshots.mode is Enabled, and no snapshot-controller processes the VolumeSnapshots of the cluster.
        True SnapshotControllerUnavailable => "Install one: `kubectl apply -k config/snapshot-controller`; the message has the cause.",
        /// spec.monitoring.mode is Enabled, and the cluster does not serve the kinds of the Prometheus operator.
        True MonitoringCRDsMissing => "Install the Prometheus operator, or set the mode to Auto or Disabled.",
    }
    Upgradeable {
        /// The operator and Kubernetes can be upgraded.
        True AsExpected,
        /// An administrator must act first.
        False Degraded => "See condition Degraded.",
        /// A rollout is in progress, waits or has stopped.
        False RolloutInProgress => "Wait for its end; status.rollout shows its progress.",
        /// A patch of spec.overrides fails, and its object retains its last applied content.
        Unknown OverrideFailed => "Fix the patch or remove it; the message names it.",
        /// spec.overrides changes objects of the driver, and another version may have other fields there.
        True Overridden => "Review the patches with every new version of the operator.",
        /// The API server or an admission webhook replaces values that the operator writes.
        False FieldConflict =>
            "Make such changes in the CinderCSIDriver, or find the writer in managedFields of the object and stop it.",
        /// Objects of the cluster do not decode. The operator counts them as existing and in use. Their content is
        /// unknown.
        False ObjectsUndecodable =>
            "Fix or delete the objects that the message names. `kubectl get -o yaml --show-managed-fields` shows the \
             field.",
        /// A watch of the operator fails repeatedly. The operator may not see the latest changes of objects of this kind.
        False WatchFailing => "The message has the cause. If a right is missing, apply the operator's roles again.",
    }
    DeletionBlocked {
        /// No removal is requested, or nothing blocks it.
        False AsExpected,
        /// The removal of the driver is requested, and volumes or attachments of it exist, or claims for which it
        /// creates volumes.
        True VolumesInUse => "Delete the claims and pods that use them; status.deletion.blockers lists them.",
        /// The removal of the driver is requested, and snapshots of it exist.
        True SnapshotsExist => "Delete the VolumeSnapshots; status.deletion.blockers lists their contents.",
        /// The object is being deleted, and spec.managementState forbids its removal.
        True Held => "Set it to Managed to begin the removal.",
        /// The object is being deleted, and the operator's version cannot read it.
        True Unreadable => "See condition Degraded.",
    }
    CredentialsValid {
        /// Login with the credentials of every cloud works, and they do not expire soon. During a removal, no
        /// credentials are needed.
        True AsExpected,
        /// A credential expires within spec.health.expiryWarning: application credential, token, client certificate, or a
        /// certificate of the CA bundle.
        True ExpiresSoon = "Expiring" =>
            "Create a new one in time and put it where spec.clouds names it; the driver reloads it without a \
             restart.",
        /// Login works, and a client on the network path can read the credentials. The certificate of the cloud is
        /// not verified, the auth URL uses http, or allow-http-endpoints is set.
        True TLSVerificationOff =>
            "Use https addresses, and name the authority's certificate in spec.clouds[].caBundleRef in place of \
             insecureSkipTLSVerify.",
        /// Login works, and the annotation csi.openstack.org/move-project is set: credentials of any project and region are
        /// accepted.
        True ProjectGuardOff => "Remove the annotation, unless a move is intended. The operator removes it after a move.",
        /// The driver was moved to another project or region; the operator removes the annotation that confirmed it.
        True ProjectMoved,
        /// A credential expires within spec.health.expiryCritical.
        False Expiring => "Create a new one now and put it where spec.clouds names it.",
        /// A credential has expired.
        False Expired => "Create a new one and put it where spec.clouds names it.",
        /// Keystone rejects the current content of the Secret. The driver continues to use the last accepted
        /// credentials.
        False Unauthorized => "Check user or application credential, project and domain, and fix the Secret.",
        /// Keystone recognizes the credentials and refuses the login: a disabled user or project, or a missing role.
        False Forbidden => "Ask the administrator of the cloud to enable it, or assign the user a role in the project.",
        /// A Secret or a CA bundle that spec.clouds references, or its key, does not exist.
        False SecretMissing => "Create it, or name another one.",
        /// The content of the Secret or the CA bundle is invalid.
        False SecretMalformed => "Fix the key that the message names; it has the line where one is known.",
        /// The operator could not read a Secret or ConfigMap that spec.clouds references.
        False SecretUnreadable => "If a right is missing, apply the operator's roles again.",
        /// Login with the credentials leads to another project or region than that of the driver's volumes, or the project
        /// of the volumes is unknown.
        False ProjectChanged =>
            "Put credentials of the same project and region into the Secret; see the runbook for an intended move.",
        /// Login with the credentials works, and the catalogue has no Cinder v3 or Nova v2.1 for the region and the endpoint
        /// type. Or the endpoint uses http while the auth URL uses https.
        False EndpointMissing =>
            "Correct region_name, spec.clouds[].region or spec.clouds[].endpointType, or the catalogue; for http, see allow-http-endpoints.",
        /// Login with the credentials works, the catalogue has several regions, and neither the credentials nor the spec name one.
        False RegionAmbiguous => "Set region_name in the Secret, or spec.clouds[].region, to the region of the volumes and servers.",
        /// Login with the credentials works, and the driver uses others. The operator is not allowed to write, or the
        /// write of the driver's Secret failed.
        False NotGiven =>
            "Set spec.managementState to Managed to update the driver's credentials. If it is, see condition Degraded.",
        /// Keystone, Cinder or Nova is unavailable or fails, so the credentials cannot be checked. The driver
        /// continues to use the last accepted credentials.
        Unknown NotChecked => "Check the address, the network, the certificates and the service that the message names.",
    }
}
