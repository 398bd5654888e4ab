//! The detachments that this process saw the end of a moment ago. An API node whose database lags still shows what was before, so for
//! that time an attachment is not believed because it is shown.

use crate::expiring::ExpiringMap;
use crate::ids::{ServerId, VolumeId};
use crate::watch::NEW;

/// More than any cloud detaches in that time; what does not fit is believed as it is shown.
const MOST: usize = 10_000;

/// See the module.
pub(crate) type DetachedLately = ExpiringMap<(VolumeId, ServerId), ()>;

/// A memory without any.
pub(crate) fn none() -> DetachedLately {
    ExpiringMap::new(NEW, MOST)
}
