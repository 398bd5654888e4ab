// SPDX-License-Identifier: Apache-2.0
//! The queue metrics: every increment is followed by a decrement, whatever the result.

use std::time::Duration;

use cinder_cloud::{AttachOptions, ServerId, Volume};
use futures::future::join_all;
use openstack_sim::{Effect, Fault, SimConfig};

use crate::support::{ONE, Stage, latencies, stage_with};

async fn crowd() -> (Stage, Vec<Volume>) {
    let stage = stage_with(SimConfig {
        latencies: latencies(|l| {
            l.attach = Duration::from_millis(30);
            l.detach = Duration::from_millis(30);
        }),
        ..SimConfig::default()
    })
    .await;
    let names: Vec<String> = (0..24).map(|number| format!("pvc-{number}")).collect();
    let volumes = join_all(names.iter().map(|name| stage.create(name))).await;
    (stage, volumes)
}

impl Stage {
    async fn attach_all(&self, volumes: &[Volume]) -> usize {
        let server = ServerId::new(ONE);
        let attached = volumes
            .iter()
            .map(|volume| self.cloud.attach(&volume.id, &server, AttachOptions::default()));
        join_all(attached)
            .await
            .iter()
            .filter(|attached| attached.is_ok())
            .count()
    }

    async fn detach_all(&self, volumes: &[Volume]) {
        let server = ServerId::new(ONE);
        let detached = volumes
            .iter()
            .map(|volume| self.cloud.detach(&volume.id, Some(&server)));
        for detached in join_all(detached).await {
            detached.expect("detached");
        }
    }

    /// Checks that all queues are empty and were never negative. Returns the largest length of each.
    fn longest_queues(&self) -> Vec<(&'static str, i64)> {
        let queues = self.counter.queues.lock();
        for (queue, (now, least, _)) in queues.iter() {
            assert_eq!((*now, *least), (0, 0), "{queue}");
        }
        queues.iter().map(|(queue, (_, _, most))| (*queue, *most)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn queues_fill_and_are_empty_again() {
    let (stage, volumes) = crowd().await;
    assert_eq!(stage.attach_all(&volumes).await, volumes.len());
    stage.detach_all(&volumes).await;
    let most = stage.longest_queues();
    for queue in ["attach", "detach", "wait"] {
        assert!(
            most.iter().any(|(name, most)| *name == queue && *most > 1),
            "{queue}: {most:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn queues_are_empty_after_failed_requests() {
    let (stage, volumes) = crowd().await;
    stage
        .sim
        .fault(
            Fault::on("attach_volume")
                .skip(3)
                .times(5)
                .effect(Effect::policy("os_compute_api:attach")),
        )
        .expect("a rule");
    let attached = stage.attach_all(&volumes).await;
    assert!(attached < volumes.len(), "some were refused");
    stage.longest_queues();
    stage.detach_all(&volumes).await;
    stage.longest_queues();
}

#[tokio::test(start_paused = true)]
async fn queues_are_empty_after_cancelled_callers() {
    let (stage, volumes) = crowd().await;
    let waiting = async {
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        let many = || {
            stage
                .counter
                .queues
                .lock()
                .get("attach")
                .is_some_and(|(now, ..)| *now > 1)
        };
        while !many() {
            tick.tick().await;
        }
    };
    tokio::select! {
        attached = stage.attach_all(&volumes) => panic!("{attached} were attached, and nobody waited"),
        () = waiting => {}
    }
    stage.longest_queues();
}
