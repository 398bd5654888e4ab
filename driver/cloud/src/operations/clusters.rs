// SPDX-License-Identifier: Apache-2.0
//! The cluster for which a resource was created.
//!
//! A cluster that was restored from a backup of another cluster requests resources of the same names. Therefore
//! creations check the cluster of every resource that they find by name.

use crate::metadata_keys;

/// Returns the difference if a resource of the requested name was created for another cluster. A resource without a
/// cluster passes, because the Go driver and administrators create such resources.
pub(crate) fn other_cluster(found: Option<impl AsRef<str>>, own: Option<impl AsRef<str>>) -> Option<String> {
    let (found, own) = (found?, own?);
    let (found, own) = (found.as_ref(), own.as_ref());
    (!found.is_empty() && found != own).then(|| {
        format!(
            "it was created for cluster {found:?} ({}), and this driver serves {own:?} (--cluster); delete the claim or snapshot \
             object and create one of another name, or correct the mark of the cluster",
            metadata_keys::CLUSTER
        )
    })
}
