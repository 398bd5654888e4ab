// SPDX-License-Identifier: Apache-2.0
//! The list of recently changed volumes.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{BlockStorage, Volume};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};

/// The first microversion in which Cinder compares times in the filter of a list.
const COMPARES_TIMES: MicroVersion = MicroVersion(3, 60);

impl BlockStorage<'_> {
    /// Lists the volumes that changed since this time of Cinder's clock; `None` for a Cinder that cannot compare
    /// times.
    pub(crate) async fn changed_since(&self, since: Timestamp) -> Result<Option<Vec<Volume>>, CloudError> {
        if self.transport.highest_version(Service::BlockStorage).await? < Some(COMPARES_TIMES) {
            return Ok(None);
        }
        // Cinder stores whole seconds.
        let since = since.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S");
        let filter = [("updated_at", format!("gte:{since}"))];
        self.list(Some(COMPARES_TIMES), &filter, Some).await.map(Some)
    }
}
