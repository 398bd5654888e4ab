// SPDX-License-Identifier: Apache-2.0
//! The known faults of the Go driver that concern a driver, in our words.

/// One fault, or some that have one cure.
#[derive(Debug)]
pub(super) struct Row {
    /// Issues and pull requests of kubernetes/cloud-provider-openstack.
    pub(super) issues: &'static [u32],
    /// What users met there.
    pub(super) fault: &'static str,
    /// What happens here.
    pub(super) here: &'static str,
}

const fn row(issues: &'static [u32], fault: &'static str, here: &'static str) -> Row {
    Row { issues, fault, here }
}

/// All of them, those first that cost users most.
pub(super) const ROWS: &[Row] = &[
    row(
        &[1645, 2709],
        "A detachment counted as done while Nova was still at it, and the next attachment met the old one",
        "attached and detached are what Nova and Cinder agree on",
    ),
    row(
        &[2553],
        "A volume left `reserved` by an attachment that failed half way could neither be attached nor detached",
        "a half-made attachment of ours is recognised and removed",
    ),
    row(
        &[1056, 737, 1354, 1003],
        "Volumes of servers that crashed, were shut off or deleted stayed attached",
        "detached through Nova from a server that is off; Cinder's record is followed where the server is gone",
    ),
    row(
        &[944, 1121, 381],
        "One failed detachment blocked a volume; attacher and provisioner raced",
        "one operation per volume at a time, each step repeatable, with codes that make the sidecars try again",
    ),
    row(
        &[3124, 1485, 1479, 1403],
        "A volume was attached while it was still being created",
        "CreateVolume answers when the volume is available, and removes one that failed",
    ),
    row(
        &[2629, 2284, 2285],
        "Changed credentials were used only after a restart",
        "files are watched and the session is renewed",
    ),
    row(
        &[2181, 2182],
        "A volume with snapshots could not be deleted, and no error said why",
        "FAILED_PRECONDITION that names the snapshots; the volume is left alone",
    ),
    row(
        &[2294, 878],
        "A snapshot whose deletion failed later in Cinder was orphaned",
        "deletion is followed until the snapshot is gone",
    ),
    row(
        &[3148],
        "A passing error while looking for a backup leaked it",
        "only a 404 means that something does not exist",
    ),
    row(
        &[3088, 1945, 3126],
        "Volumes from snapshots were made in the wrong zone, or pinned to one without need",
        "the zone of the source is kept where the backend needs it, and snapshots tell theirs",
    ),
    row(
        &[572, 594, 1444],
        "The number of volumes per node was wrong or unlimited, and pods waited for attachments that could not be",
        "the limit is counted from what the instance has; Nova's own limit becomes RESOURCE_EXHAUSTED",
    ),
    row(
        &[3031, 729, 1248, 1367, 1778],
        "A file system was mounted on several nodes at once and lost its data",
        "several nodes share a volume only as a device, or read-only",
    ),
    row(
        &[1169, 1414],
        "There were no read-only attachments",
        "read-only is asked of the cloud where it can be, and always kept on the node",
    ),
    row(
        &[1686],
        "ReadWriteOncePod was not served",
        "SINGLE_NODE_MULTI_WRITER is claimed and kept",
    ),
    row(
        &[2115, 1507, 679, 779, 150],
        "A device was not found, or another volume's was used",
        "a device is used when its serial and its size are the volume's",
    ),
    row(
        &[2588, 2610, 861, 1695],
        "A disk showed no size, or the old one, until an administrator rescanned",
        "the one device is rescanned, and its size is checked before anything is written",
    ),
    row(
        &[852, 1192],
        "Serial numbers as some hypervisors write them were not recognised",
        "virtio, SCSI and NVMe serials and the by-id links of QEMU, ESXi and Hyper-V are read",
    ),
    row(
        &[1065, 2694],
        "Expansion took the wrong device, or grew a file system inside a raw volume",
        "the device comes from the mount table by its number; a raw volume is never looked into",
    ),
    row(
        &[1436, 2059, 2138],
        "The file system did not grow, or the sizes never agreed",
        "the size is read back and answered as it is",
    ),
    row(
        &[3068, 3084, 2469, 1428],
        "mkfs took minutes and ran into its time limit; it had no options",
        "no discard, lazy initialisation, options by class; mkfs goes on when its call times out, and the next call joins it",
    ),
    row(
        &[3077, 3172],
        "Backups were always full",
        "incremental where asked for, with a full one first, deleted in the order that Cinder allows",
    ),
    row(
        &[832, 1812],
        "A snapshot of a volume in use failed",
        "it is cut by force unless the class says otherwise",
    ),
    row(
        &[1069],
        "Each volume in transition was asked for again and again",
        "one list tells all that wait",
    ),
    row(
        &[2860, 1276],
        "A used-up quota looked like a fault of the driver and was tried for ever",
        "RESOURCE_EXHAUSTED with the numbers, for everything that counts against a quota",
    ),
    row(
        &[1465, 2597],
        "There was no capacity to schedule by",
        "GetCapacity from quotas, by type, and from the scheduler's pools where they may be seen",
    ),
    row(
        &[3087, 914, 450],
        "Volumes could not carry metadata of one's own",
        "metadata from class parameters, and changed by a VolumeAttributesClass",
    ),
    row(
        &[1584, 1464, 1585],
        "Nothing reported that a volume was broken",
        "health of volumes from the cloud and from the node",
    ),
    row(
        &[2843, 2035],
        "Each cloud or region needed node pods, a Secret and a class of its own",
        "one driver works on several clouds and chooses by topology",
    ),
    row(
        &[2963],
        "Credentials could not differ by class",
        "full credentials in a class's secrets make a session of their own",
    ),
    row(
        &[1735, 1300, 2185, 1841, 1293, 765, 1018],
        "Zones of Nova and Cinder with different names made volumes that no pod could use",
        "a map between the two",
    ),
    row(
        &[1379, 1380, 2634],
        "Names of zones with spaces or other letters broke topology",
        "names become labels and come back whole",
    ),
    row(
        &[1967, 1986, 819],
        "Clouds without the newest microversions refused every call",
        "versions are read once, and what a cloud lacks is done without",
    ),
    row(
        &[2622, 1030, 761, 325, 859, 1453],
        "A node could not learn who it was",
        "metadata service, config drive, cloud-init, firmware or a flag, each with a time limit",
    ),
    row(
        &[2677, 1020, 2655, 2656],
        "A node needed a cloud's name and credentials that it had no use for",
        "a node knows nothing of clouds",
    ),
    row(
        &[2192, 1126],
        "The driver ended when Keystone was away at its start",
        "it starts and serves; readiness tells what is missing",
    ),
    row(
        &[1546, 1119],
        "A private authority had to be put on every host",
        "it comes with the configuration, and is read again when it changes",
    ),
    row(
        &[913],
        "Metrics were hard to reach, and nodes had none",
        "both roles serve them, the calls of CSI included",
    ),
    row(&[2295], "A list ended at the cloud's page size", "every page is read"),
    row(
        &[1206, 1628, 2558],
        "Slow clouds met fixed time limits",
        "a wait lasts as long as its call, and the work goes on after that",
    ),
    row(
        &[2687],
        "Where a volume lies beside others could be said by ids alone",
        "affinity and anti-affinity from annotations of the claim",
    ),
    row(
        &[91, 98],
        "Two creations at once made two volumes of one name",
        "one creation per name at a time, and one that was lost is found again",
    ),
    row(
        &[2965],
        "A volume that was being detached was asked for again and again",
        "its end is waited for, within bounds",
    ),
    row(
        &[3129],
        "A volume in transition or migration answered with a conflict that said nothing",
        "ABORTED with the state that it is in",
    ),
    row(
        &[1064],
        "Statistics of volumes were missing",
        "bytes and inodes of file systems, bytes of devices",
    ),
    row(
        &[2071],
        "The server was never told that its volume had grown",
        "the size of the device is compared, and the difference is named",
    ),
    row(
        &[1437, 1539, 1439],
        "An expansion that failed, or was still under way, was called done",
        "waited for until its end; a failure is told in Cinder's own words",
    ),
];
