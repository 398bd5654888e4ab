// SPDX-License-Identifier: Apache-2.0
//! Every interval, timeout and retry of this crate.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Timing {
    /// How long an operation that is taken back may take to end: it only has to notice.
    pub(crate) withdrawal: Duration,
    /// The most of a call's time that is kept for the way of its answer: enough over a unix socket on a busy machine.
    pub(crate) answer_margin_max: Duration,
    /// How long a walk is kept after its last page.
    pub(crate) walk_ttl: Duration,
    /// How long the API server may take to answer for a claim.
    pub(crate) claim_timeout: Duration,
    /// How long an id that was found with the secrets of a call is not looked for again with the same ones.
    pub(crate) found_cloud_ttl: Duration,
    /// How long other clouds may take to say whether they have a volume of a new one's name.
    pub(crate) other_clouds_timeout: Duration,
    /// The time that a backup may take whatever its size.
    pub(crate) backup_base: Duration,
    /// How long NodeStageVolume waits for the device of a volume that Nova says is attached. Hot-plug takes well under a
    /// second; a busy guest may need much longer. It ends before the kubelet's two minutes, so that the kubelet sees the
    /// reason.
    pub(crate) device_wait: Duration,
    /// How long NodeStageVolume waits for a disk that is smaller than its volume, before it uses the disk as it is. A kernel that
    /// has not yet read the size of a fresh disk needs less.
    pub(crate) whole_device_wait: Duration,
    /// The device was there when the volume was staged: this is for a udev that is redoing its links.
    pub(crate) staged_device_wait: Duration,
    /// How long this node may take to see a volume's new size. Nova tells the hypervisor within moments, if Cinder tells Nova.
    pub(crate) growth_wait: Duration,
    /// The same while the kubelet starts a pod, which starts with the existing size afterwards.
    pub(crate) growth_wait_at_start: Duration,
    /// How long after NodePublishVolume a pod may still be starting. The kubelet changes the owner of all files of a volume in this
    /// time, if the pod has an `fsGroup`.
    pub(crate) pod_start_limit: Duration,
    /// How long a device that has to be idle may stay in use before one call says so. The kernel needs moments after an
    /// unmount.
    pub(crate) device_idle_wait: Duration,
    /// How long one question to the metadata service may take where cloud.conf does not say it.
    pub(crate) metadata_timeout: Duration,
    /// How long reading cloud-init's file may take.
    pub(crate) cloud_init_timeout: Duration,
    /// How long reading and writing the record of the identity may take. It is on a disk of the node.
    pub(crate) identity_record_timeout: Duration,
    /// How long one probe may take: less than the kubelet's patience, so that the reason reaches it.
    pub(crate) probe_timeout: Duration,
    /// NodeGetInfo is asked again after this time, doubled each time …
    pub(crate) node_info_retry_first: Duration,
    /// … up to this.
    pub(crate) node_info_retry_max: Duration,
    /// How often it is looked whether link and socket are still there: somebody may clear the kubelet's directory.
    pub(crate) registration_check: Duration,
    /// How long running calls and operations may take to end: less than Kubernetes' 30 s from SIGTERM to SIGKILL.
    pub(crate) drain_timeout: Duration,
    /// How often it is looked whether somebody serves.
    pub(crate) socket_check: Duration,
    /// The first login is tried again after this time, doubled each time …
    pub(crate) login_retry_first: Duration,
    /// … up to this.
    pub(crate) login_retry_max: Duration,
    /// How often the files are read even where the kernel reported nothing: a network file system, a link's target elsewhere.
    pub(crate) config_poll: Duration,
    /// How long files are left alone after a change: several are written one after the other.
    pub(crate) config_settle: Duration,
    /// After a cloud gave no answer it is tried again after this, doubled each time up to `config_poll`.
    pub(crate) config_retry: Duration,
    /// After a cloud refused, the same credentials are tried again after this only: Keystone locks accounts.
    pub(crate) config_retry_refused: Duration,
    /// The pause between two observations of the clouds for the metrics.
    pub(crate) observation_interval: Duration,
    /// The same while a service does not answer, so that its recovery is visible soon.
    pub(crate) observation_retry: Duration,
    /// The longest time that one answer of an observation may take.
    pub(crate) observation_timeout: Duration,
    /// The longest time that a client may ask for in a call.
    pub(crate) longest_call: Duration,
    /// How long a call without a deadline of its own waits for its operation.
    pub(crate) operation_wait: Duration,
}

/// What holds in the product and in tests alike.
pub(crate) const TIMING: Timing = Timing {
    withdrawal: Duration::from_millis(100),
    answer_margin_max: Duration::from_millis(500),
    walk_ttl: Duration::from_mins(1),
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
