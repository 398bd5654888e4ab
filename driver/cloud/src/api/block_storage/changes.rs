// SPDX-License-Identifier: Apache-2.0
//! What has changed lately, in one list.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{BlockStorage, Volume};
use crate::error::CloudError;
use crate::http::service::{MicroVersion, Service};

/// Since when Cinder compares times in a list's filter.
const COMPARES_TIMES: MicroVersion = MicroVersion(3, 60);

impl BlockStorage<'_> {
    /// The volumes that have changed since then, by Cinder's clock; `None` for a Cinder that cannot tell.
    pub(crate) async fn changed_since(&self, since: Timestamp) -> Result<Option<Vec<Volume>>, CloudError> {
        if self.transport.highest_version(Service::BlockStorage).await? < Some(COMPARES_TIMES) {
            return Ok(None);
        }
        // Cinder keeps whole seconds.
        let since = since.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S");
        let filter = [("updated_at", format!("gte:{since}"))];
        self.list(Some(COMPARES_TIMES), &filter, Some).await.map(Some)
    }
}
