// SPDX-License-Identifier: Apache-2.0
//! One look at a cloud: a handful of requests that only read.

use cinder_cloud::{Cloud, CloudError, CloudService, Quota, VolumeType};
use cinder_operator_core::clouds::{CloudState, QuotaFact, ServiceFact, Trouble, VolumeTypeFact, trouble};
use tracing::debug;

/// The quotas that something uses up.
const COUNTED: [&str; 5] = ["volumes", "gigabytes", "snapshots", "backups", "backup_gigabytes"];

/// Looks at a cloud. What is not told now stays as it was told before.
pub(super) async fn look(cloud: &Cloud, before: &CloudState) -> CloudState {
    let mut look = Look {
        cloud,
        state: CloudState {
            is_known: true,
            troubles: Vec::new(),
            ..before.clone()
        },
    };
    // Who cannot log in need not ask the others.
    if look.identity().await {
        look.block_storage().await;
        look.compute().await;
    }
    look.state
}

struct Look<'a> {
    cloud: &'a Cloud,
    state: CloudState,
}

/// The service gave no answer that could be used; its other facts are not asked for.
struct Unusable;

impl Look<'_> {
    async fn identity(&mut self) -> bool {
        const SERVICE: &str = "identity";
        let cloud = self.cloud;
        match self.ask(SERVICE, cloud.login()).await {
            Ok(Some(login)) => self.state.token_ends = Some(login.expires_at),
            Ok(None) => return true,
            Err(Unusable) => return false,
        }
        self.state
            .facts
            .services
            .insert(SERVICE.to_owned(), ServiceFact::default());
        if let Ok(Some(credential)) = self.ask(SERVICE, cloud.application_credential()).await {
            self.state.credential = credential.map(|facts| (facts.name, facts.expires_at));
        }
        true
    }

    async fn block_storage(&mut self) {
        const SERVICE: &str = "block-storage";
        let cloud = self.cloud;
        if self.version(CloudService::BlockStorage, SERVICE).await.is_err() {
            return;
        }
        match self.ask(SERVICE, cloud.volume_zones()).await {
            Ok(Some(zones)) => self.state.facts.volume_zones = sorted(zones),
            Ok(None) => {}
            Err(Unusable) => return,
        }
        match self.ask(SERVICE, cloud.volume_types()).await {
            Ok(Some(types)) => self.state.facts.volume_types = sorted(types.iter().map(type_fact).collect()),
            Ok(None) => {}
            Err(Unusable) => return,
        }
        if let Ok(Some(quotas)) = self.ask(SERVICE, cloud.quotas()).await {
            let types = &self.state.facts.volume_types;
            let facts = quotas
                .iter()
                .filter_map(|(name, quota)| quota_fact(name, *quota, types));
            self.state.facts.quota = sorted(facts.collect());
        }
    }

    async fn compute(&mut self) {
        const SERVICE: &str = "compute";
        let cloud = self.cloud;
        if self.version(CloudService::Compute, SERVICE).await.is_err() {
            return;
        }
        if let Ok(Some(zones)) = self.ask(SERVICE, cloud.compute_zones()).await {
            self.state.facts.compute_zones = sorted(zones);
        }
    }

    async fn version(&mut self, service: CloudService, name: &'static str) -> Result<(), Unusable> {
        if let Some(microversion) = self.ask(name, self.cloud.microversion(service)).await? {
            let fact = ServiceFact { microversion };
            self.state.facts.services.insert(name.to_owned(), fact);
        }
        Ok(())
    }

    /// The answer; `None` where the project may not know.
    async fn ask<T>(
        &mut self,
        service: &'static str,
        answer: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<Option<T>, Unusable> {
        let error = match answer.await {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        debug!(service, %error, "the cloud was asked in vain");
        let Some((kind, message)) = trouble::of(&error) else {
            return Ok(None);
        };
        self.state.troubles.push(Trouble { service, kind, message });
        Err(Unusable)
    }
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort();
    all.dedup();
    all
}

fn type_fact(volume_type: &VolumeType) -> VolumeTypeFact {
    VolumeTypeFact {
        name: volume_type.name.clone(),
        id: volume_type.id.clone(),
        multiattach: volume_type.multiattach(),
        description: volume_type.description.clone().filter(|text| !text.is_empty()),
    }
}

/// A quota with a limit. One of a type has the type's name behind an underscore, which may be in the name too. The largest size
/// of one volume is a limit that nothing uses up.
fn quota_fact(name: &str, quota: Quota, types: &[VolumeTypeFact]) -> Option<QuotaFact> {
    let limit = quota.limit()?;
    let of_type = types.iter().find_map(|volume_type| {
        let resource = name.strip_suffix(&volume_type.name)?.strip_suffix('_')?;
        Some((resource, volume_type.name.clone()))
    });
    let (resource, volume_type) = match of_type {
        Some((resource, volume_type)) => (resource, Some(volume_type)),
        None => (name, None),
    };
    COUNTED.contains(&resource).then(|| QuotaFact {
        resource: resource.to_owned(),
        volume_type,
        used: quota.used(),
        limit,
    })
}

#[cfg(test)]
mod tests;
