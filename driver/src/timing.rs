// SPDX-License-Identifier: Apache-2.0
//! Every interval, timeout and retry of this crate.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Timing {
    /// How long a withdrawn operation may take to end. It only has to check its token.
    pub(crate) withdrawal: Duration,
    /// The maximum part of a call's time that is reserved for the response. It suffices for a unix socket on a busy
    /// machine.
    pub(crate) answer_margin_max: Duration,
    /// How long the position in a list is retained after its last page.
    pub(crate) list_cache_ttl: Duration,
    /// How long the API server may take to return a claim.
    pub(crate) claim_timeout: Duration,
    /// How long the cloud of an id that was found with the secrets of a call is cached for the same secrets.
    pub(crate) found_cloud_ttl: Duration,
    /// How long other clouds may take to report whether they have a volume with the name of a new one.
    pub(crate) other_clouds_timeout: Duration,
    /// The time that every backup may take, whatever its size.
    pub(crate) backup_base: Duration,
    /// How long NodeStageVolume waits for the device of a volume that Nova reports as attached.
    ///
    /// Hot-plug takes well under a second, but much longer in a busy guest. The wait ends before the kubelet's timeout
    /// of two minutes, so that the kubelet receives the reason.
    pub(crate) device_wait: Duration,
    /// How long NodeStageVolume waits for a disk that is smaller than its volume, before it uses the disk as it is.
    ///
    /// A kernel that has not yet read the size of a new disk needs less.
    pub(crate) whole_device_wait: Duration,
    /// How long to wait for the device of a staged volume. The device existed at staging, and udev may be recreating
    /// its links.
    pub(crate) staged_device_wait: Duration,
    /// How long this node may take to see a new size. Nova notifies the hypervisor within moments if Cinder notifies
    /// Nova.
    pub(crate) growth_wait: Duration,
    /// Like `growth_wait`, while the kubelet starts a pod. The pod starts with the existing size after the wait.
    pub(crate) growth_wait_at_start: Duration,
    /// How long after NodePublishVolume a pod may still be starting.
    ///
    /// If the pod has an `fsGroup`, the kubelet changes the owner of all files of the volume in this time.
    pub(crate) pod_start_limit: Duration,
    /// How long one call waits for a device to become idle. The kernel needs moments after an unmount.
    pub(crate) device_idle_wait: Duration,
    /// How long one request to the metadata service may take if cloud.conf has no timeout.
    pub(crate) metadata_timeout: Duration,
    /// How long the read of cloud-init's file may take.
    pub(crate) cloud_init_timeout: Duration,
    /// How long a read or write of the identity record may take. The record is on a disk of the node.
    pub(crate) identity_record_timeout: Duration,
    /// How long one probe may take. It is less than the kubelet's timeout, so that the kubelet receives the reason.
    pub(crate) probe_timeout: Duration,
    /// The first pause before NodeGetInfo is retried. It doubles with each retry.
    pub(crate) node_info_retry_first: Duration,
    /// The maximum pause before NodeGetInfo is retried.
    pub(crate) node_info_retry_max: Duration,
    /// The interval of the check for the registration link and socket. An administrator may clear the kubelet's
    /// directory.
    pub(crate) registration_check: Duration,
    /// How long running calls and operations may take to end. It is less than the 30 s of Kubernetes from SIGTERM to
    /// SIGKILL.
    pub(crate) drain_timeout: Duration,
    /// The interval of the check whether another process serves the socket.
    pub(crate) socket_check: Duration,
    /// The first pause before the first login is retried. It doubles with each retry.
    pub(crate) login_retry_first: Duration,
    /// The maximum pause before the first login is retried.
    pub(crate) login_retry_max: Duration,
    /// The interval at which files are read without an event, for network file systems and links to other directories.
    pub(crate) config_poll: Duration,
    /// How long to wait after a change of a file, because several files are often written in sequence.
    pub(crate) config_settle: Duration,
    /// The first pause after a cloud did not respond. It doubles with each retry, up to `config_poll`.
    pub(crate) config_retry: Duration,
    /// The pause before refused credentials are retried, because Keystone locks accounts.
    pub(crate) config_retry_refused: Duration,
    /// The interval between two observations of the clouds for the metrics.
    pub(crate) observation_interval: Duration,
    /// The interval while a service does not respond, so that its recovery is visible soon.
    pub(crate) observation_retry: Duration,
    /// The maximum duration of one request of an observation.
    pub(crate) observation_timeout: Duration,
    /// The maximum timeout that a client may set for a call.
    pub(crate) longest_call: Duration,
    /// How long a call without a deadline waits for its operation.
    pub(crate) operation_wait: Duration,
}

/// The values, which are the same in production and in tests.
pub(crate) const TIMING: Timing = Timing {
    withdrawal: Duration::from_millis(100),
    answer_margin_max: Duration::from_millis(500),
    list_cache_ttl: Duration::from_mins(1),
    claim_timeout: Duration::from_secs(10),
    found_cloud_ttl: Duration::from_mins(10),
    other_clouds_timeout: Duration::from_secs(5),
    backup_base: Duration::from_secs(30),
    device_wait: Duration::from_secs(90),
    whole_device_wait: Duration::from_secs(10),
    staged_device_wait: Duration::from_secs(5),
    growth_wait: Duration::from_mins(1),
    growth_wait_at_start: Duration::from_secs(30),
    pod_start_limit: Duration::from_hours(1),
    device_idle_wait: Duration::from_secs(20),
    metadata_timeout: Duration::from_secs(5),
    cloud_init_timeout: Duration::from_secs(5),
    identity_record_timeout: Duration::from_secs(10),
    probe_timeout: Duration::from_secs(2),
    node_info_retry_first: Duration::from_secs(1),
    node_info_retry_max: Duration::from_secs(30),
    registration_check: Duration::from_secs(10),
    drain_timeout: Duration::from_secs(20),
    socket_check: Duration::from_millis(100),
    login_retry_first: Duration::from_secs(1),
    login_retry_max: Duration::from_secs(30),
    config_poll: Duration::from_mins(1),
    config_settle: Duration::from_millis(200),
    config_retry: Duration::from_secs(1),
    config_retry_refused: Duration::from_mins(10),
    observation_interval: Duration::from_mins(5),
    observation_retry: Duration::from_secs(30),
    observation_timeout: Duration::from_secs(30),
    longest_call: Duration::from_hours(24),
    operation_wait: Duration::from_mins(2),
};
