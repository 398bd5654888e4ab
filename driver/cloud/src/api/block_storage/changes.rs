// SPDX-License-Identifier: Apache-2.0
//! The list of recently changed volumes.

use std::collections::HashSet;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{BlockStorage, Volume};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};
use crate::ids::VolumeId;

/// The first microversion in which Cinder compares times in the filter of a list.
const COMPARES_TIMES: MicroVersion = MicroVersion(3, 60);

impl BlockStorage<'_> {
    /// Lists the volumes among `ids` that changed since this time of Cinder's clock; `None` for a Cinder that cannot
    /// compare times.
    pub(crate) async fn changed_since(
        &self,
        since: Timestamp,
        ids: &HashSet<VolumeId>,
    ) -> Result<Option<Vec<Volume>>, CloudError> {
        if self.transport.highest_version(Service::BlockStorage).await? < Some(COMPARES_TIMES) {
            return Ok(None);
        }
        // Cinder stores whole seconds.
        let since = since.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S");
        let filter = [("updated_at", format!("gte:{since}"))];
        let is_requested = |volume: &Volume| ids.contains(&volume.id);
        let listed = self.list(Some(COMPARES_TIMES), &filter, |volume| {
            Some(volume).filter(is_requested)
        });
        listed.await.map(Some)
    }
}
