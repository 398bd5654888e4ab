// SPDX-License-Identifier: Apache-2.0
//! Volume contexts in logs.

use std::collections::BTreeMap;
use std::fmt;

/// Keys whose values are printed. Other values may be secret, such as `csi.storage.k8s.io/serviceAccount.tokens`,
/// which the kubelet adds if the CSIDriver object requests tokens.
const PRINTED: [&str; 11] = [
    "affinity",
    "anti-affinity",
    "cinder.csi.openstack.org/resizeRequired",
    "csi.storage.k8s.io/ephemeral",
    "csi.storage.k8s.io/pod.name",
    "csi.storage.k8s.io/pod.namespace",
    "csi.storage.k8s.io/pod.uid",
    "csi.storage.k8s.io/serviceAccount.name",
    "mkfs-options",
    "mkfsOptions",
    "storage.kubernetes.io/csiProvisionerIdentity",
];

/// Prints a volume context with the values of known keys.
pub(crate) struct RedactedContext<'a>(pub(crate) &'a BTreeMap<String, String>);

impl fmt::Debug for RedactedContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (key, value) in self.0 {
            if PRINTED.contains(&key.as_str()) {
                map.entry(key, value);
            } else {
                map.entry(key, &format_args!("<redacted>"));
            }
        }
        map.finish()
    }
}
