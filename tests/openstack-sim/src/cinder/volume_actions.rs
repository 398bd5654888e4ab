// SPDX-License-Identifier: Apache-2.0
//! Handlers for volume actions except extend: retype and the administrators' actions.

use serde::Deserialize;

use super::Context;
use crate::api::{Fault, Reply};
use crate::state::VolumeStatus;
use crate::work;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Retype {
    new_type: String,
    migration_policy: Option<Policy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Policy {
    #[serde(rename = "never")]
    Never,
    #[serde(rename = "on-demand")]
    OnDemand,
}

#[derive(Debug, Deserialize)]
struct Reset {
    status: Option<String>,
    migration_status: Option<String>,
}

impl Context<'_> {
    pub(super) fn retype_volume(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| world.volume(id).map(drop))?;
        let retype: Retype = self.request.object("os-retype")?;
        let may_migrate = retype.migration_policy == Some(Policy::OnDemand);
        let (target, way) = self
            .cloud
            .change(|world| world.begin_retype(id, &retype.new_type, may_migrate))?;
        work::retype_volume(self.cloud, id.to_owned(), target, way, self.request.work_fails.clone());
        Ok(Reply::empty(202))
    }

    pub(super) fn reset_status(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| world.volume(id).map(drop))?;
        if !self.token.admin {
            return Err(Fault::forbidden("volume_extension:volume_admin_actions:reset_status"));
        }
        let reset: Reset = self.request.object("os-reset_status")?;
        let status = reset.status.as_deref().map(|name| {
            VolumeStatus::from_name(name).ok_or_else(|| {
                Fault::bad_request(format!(
                    "Invalid input for field/attribute status. Value: {name}. '{name}' is not one of the states of a volume"
                ))
            })
        });
        let status = status.transpose()?;
        self.cloud.change(|world| {
            if let Some(status) = status {
                world.set_status(id, status);
            }
            if let Some(migration) = &reset.migration_status {
                world.set_migration(id, migration);
            }
        });
        Ok(Reply::empty(202))
    }
}
