// SPDX-License-Identifier: Apache-2.0
//! Identity of this node: the id of its Nova server, and its availability zone.
//!
//! Nova attaches every volume of this node to the server with that id. The id therefore needs a proof that a tenant
//! cannot forge: [`agreement`] compares the [`sources`] with the firmware, and [`record`] compares them with the
//! identity of the running boot. `--instance-id` is the decision of an administrator and takes precedence.

use cinder_cloud::{InstanceMetadata, ServerId};
use csi_host::{Firmware, Host};

use self::agreement::{Answer, confirm, contradiction, use_configured};
use self::record::IdentityRecord;
use self::sources::Sources;
use crate::node_error::InstanceError;

mod agreement;
mod record;
mod sources;

/// The rules by which this node determines its identity.
#[derive(Debug)]
pub(super) struct Identity {
    /// `--instance-id`.
    configured: Option<ServerId>,
    sources: Sources,
    record: IdentityRecord,
}

impl Identity {
    pub(super) fn new(config: &super::NodeConfig) -> Self {
        Self {
            configured: config.args.instance_id.as_deref().map(ServerId::from),
            sources: Sources {
                order: config.args.search_order.clone(),
                metadata_url: config.args.metadata_url.clone(),
                timeout: config.metadata_timeout,
                cloud_init_dir: config.cloud_init_dir.clone(),
            },
            record: IdentityRecord::new(config.plugin_dir.as_deref()),
        }
    }

    /// Determines the server, and the zone if `zone_wanted` and a source reports one. Bounded by about a minute.
    /// Cancel-safe.
    pub(super) async fn determine(&self, host: &Host, zone_wanted: bool) -> Result<InstanceMetadata, InstanceError> {
        let firmware = host.firmware().await;
        let metadata = match &self.configured {
            Some(id) => self.configured(id, &firmware, host, zone_wanted).await,
            None => self.confirmed(&firmware, host, zone_wanted).await?,
        };
        let id = &metadata.instance_id;
        self.record.accept(host.paths(), id, self.configured.is_some()).await?;
        tracing::info!(server = %id, zone = metadata.availability_zone, "determined the Nova server of this node");
        Ok(metadata)
    }

    async fn configured(&self, id: &ServerId, firmware: &Firmware, host: &Host, zone_wanted: bool) -> InstanceMetadata {
        if let Some(uuid) = contradiction(firmware, id) {
            tracing::warn!(
                flag = %id,
                firmware = uuid,
                "--instance-id names another server than the firmware; the driver uses --instance-id"
            );
        }
        let has_zone = |answer: &Answer| answer.names(id) && answer.metadata.availability_zone.is_some();
        let is_complete = |answers: &[Answer]| !zone_wanted || answers.iter().any(has_zone);
        let (answers, problems) = self.sources.query(host, is_complete).await;
        if zone_wanted && !is_complete(&answers) {
            tracing::warn!(flag = %id, problems = problems.join("; "), "no source has a zone for the server of --instance-id");
        }
        use_configured(id, &answers)
    }

    async fn confirmed(
        &self,
        firmware: &Firmware,
        host: &Host,
        zone_wanted: bool,
    ) -> Result<InstanceMetadata, InstanceError> {
        let has_zone = |answer: &Answer| answer.metadata.availability_zone.is_some();
        let is_complete = |answers: &[Answer]| match firmware {
            // One answer that the firmware confirms is sufficient.
            Firmware::Server { .. } => !answers.is_empty() && (!zone_wanted || answers.iter().any(has_zone)),
            // The sources can only confirm each other.
            Firmware::Silent => false,
            Firmware::Unknown(_) => true,
        };
        let (answers, problems) = self.sources.query(host, is_complete).await;
        confirm(firmware, &answers, problems)
    }
}

#[cfg(test)]
mod tests;
