// SPDX-License-Identifier: Apache-2.0
//! The objects that need the driver, queried once in a reconcile and only when a decision depends on them.

use std::sync::Arc;

use cinder_operator_core::cluster::Blockers;
use futures::future::BoxFuture;
use tokio::sync::OnceCell;

use super::Context;
use crate::{
    observe,
    openstack::{Usage, UsageQuery},
};

/// The query of one reconcile.
pub(super) struct ClusterUsage<'a> {
    context: &'a Context,
    driver: &'a str,
    answer: OnceCell<Usage>,
}

impl<'a> ClusterUsage<'a> {
    pub(super) fn new(context: &'a Context, driver: &'a str) -> Self {
        Self {
            context,
            driver,
            answer: OnceCell::new(),
        }
    }

    /// Lists snapshots, which no watch reports, and reads the index of the watches. An empty index is no proof, so all kinds are listed then.
    async fn query(&self) -> Usage {
        let (client, driver) = (&self.context.client, self.driver);
        let (watched, volumes) = self.context.cluster.read(|index| {
            let volumes = index.volume_facts(driver);
            let volumes = volumes.map(|(_, volume)| volume.handle.clone());
            let volumes = volumes.filter(|handle| !handle.is_empty()).collect();
            (index.blockers(driver, false), volumes)
        });
        let snapshots = observe::snapshots(client, driver).await;
        let blockers = match snapshots {
            Ok(snapshots) if watched.is_empty() && snapshots.is_empty() => {
                observe::blockers(client, driver, false).await
            }
            Ok(snapshots) => Ok(Blockers {
                snapshots: snapshots.snapshots,
                group_snapshots: snapshots.group_snapshots,
                ..watched
            }),
            // The objects of the index are in use in any case.
            Err(error) => {
                return Usage {
                    blockers: watched,
                    volumes: Arc::new(volumes),
                    failure: Some(error.to_string()),
                };
            }
        };
        Usage {
            failure: blockers.as_ref().err().map(ToString::to_string),
            blockers: blockers.unwrap_or_default(),
            volumes: Arc::new(volumes),
        }
    }
}

impl UsageQuery for ClusterUsage<'_> {
    fn usage(&self) -> BoxFuture<'_, &Usage> {
        Box::pin(self.answer.get_or_init(|| self.query()))
    }
}
