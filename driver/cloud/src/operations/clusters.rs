// SPDX-License-Identifier: Apache-2.0
//! The cluster that an object was created for.
//!
//! A cluster that was restored from the backup of another one requests objects of the same names. Creations check the cluster of every
//! object that they find by name.

use crate::metadata_keys;

/// The difference between an object of the requested name and the request, if the object was created for another cluster. An
/// object without a cluster is not refused: the Go driver and administrators create such objects.
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
