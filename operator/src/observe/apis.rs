// SPDX-License-Identifier: Apache-2.0
//! Discovers the optional APIs of the cluster. They depend on CustomResourceDefinitions and on the version of
//! Kubernetes, and can appear and disappear while the operator runs.
//!
//! The API server's discovery documents list the served APIs with their versions. Every authenticated client may read
//! them, so no permission on CustomResourceDefinitions is necessary. They cannot be watched, so the operator polls
//! them. Objects of a kind are managed as soon as the kind appears. A missing kind counts only after two responses
//! without it. Pod templates depend on confirmed responses only. A failed request has no effect.

use std::{collections::BTreeMap, time::Duration};

use cinder_csi_crds::INSTANCE_LABEL;
use cinder_operator_core::cluster::{Affected, ApiAnswers, KINDS, Kind, OptionalApi, OptionalApis};
use kube::{
    Client,
    api::{DynamicObject, PartialObjectMeta},
    runtime::watcher,
};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::Instant,
};
use tracing::{info, warn};

use super::{crd, wake::ChangeSender, wake_watch::hear, watch_loop::WatchHealth};
use crate::kubernetes::GuardedApi;

/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum duration of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Number of polls without an API before it counts as removed.
const POLLS_UNTIL_REMOVED: u8 = 2;

/// Accumulated results of discovery.
#[derive(Debug, Clone, Default)]
pub(super) struct DiscoveredApis {
    pub(super) apis: OptionalApis,
    /// All responses, until they are confirmed.
    pub(super) answers: ApiAnswers,
    /// Number of consecutive polls without an API that existed before.
    missed: BTreeMap<OptionalApi, u8>,
}

impl DiscoveredApis {
    /// Records the response about one API; `None` means that the request failed.
    pub(super) fn record(&mut self, api: OptionalApi, is_served: Option<bool>) {
        if let Some(is_served) = is_served {
            self.answers.add(api, is_served, Instant::now().into_std());
        }
        match is_served {
            Some(true) => {
                self.missed.remove(&api);
                self.apis = self.apis.with(api, true);
            }
            Some(false) if self.apis.has(api) => {
                let missed = self.missed.entry(api).or_default();
                *missed += 1;
                if *missed >= POLLS_UNTIL_REMOVED {
                    self.missed.remove(&api);
                    self.apis = self.apis.with(api, false);
                }
            }
            Some(false) | None => {}
        }
    }
}

/// Whether the API server serves all resources of `api`.
async fn is_served(client: &Client, api: OptionalApi) -> Option<bool> {
    let (group_version, resources) = api.resources();
    let failed = |error: &dyn std::fmt::Display| {
        warn!(?api, %error, "discovery of the API failed; its last state stays in use");
        None
    };
    match tokio::time::timeout(REQUEST_LIMIT, client.list_api_group_resources(group_version)).await {
        Ok(Ok(list)) => {
            let has = |name: &&str| list.resources.iter().any(|resource| resource.name == *name);
            Some(resources.iter().all(has))
        }
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Some(false),
        Ok(Err(error)) => failed(&error),
        Err(elapsed) => failed(&elapsed),
    }
}

/// Discovers all optional APIs once. An API counts as absent if the request fails.
pub async fn discover(client: &Client) -> OptionalApis {
    let mut apis = OptionalApis::default();
    for api in OptionalApi::ALL {
        apis = apis.with(api, is_served(client, api).await.unwrap_or_default());
    }
    apis
}

/// Results of repeated discovery.
#[derive(Debug)]
pub(super) struct Discoveries {
    /// The served optional APIs.
    pub(super) apis: watch::Sender<DiscoveredApis>,
    /// The difference between the installed CustomResourceDefinition and the operator's own.
    pub(super) definition: watch::Sender<Option<String>>,
    pub(super) health: WatchHealth,
}

/// Polls the optional APIs and the operator's CustomResourceDefinition until the task is aborted. Watches the
/// operator's objects of the served APIs.
pub(super) async fn poll_apis(
    client: Client,
    namespaces: Vec<String>,
    discoveries: Discoveries,
    is_ready: watch::Sender<bool>,
    wake: ChangeSender,
) {
    let mut watches = JoinSet::new();
    let mut followed: Vec<(&'static Kind, AbortHandle)> = Vec::new();
    loop {
        let mut is_complete = true;
        let before = discoveries.apis.borrow().apis;
        for api in OptionalApi::ALL {
            let served = is_served(&client, api).await;
            is_complete &= served.is_some();
            discoveries.apis.send_modify(|known| known.record(api, served));
        }
        let now = discoveries.apis.borrow().apis;
        if before != now {
            let served: Vec<_> = OptionalApi::ALL.into_iter().filter(|api| now.has(*api)).collect();
            info!(?served, "the optional APIs that the cluster serves changed");
        }
        followed.retain(|(kind, watch)| {
            let stays = kind.is_served(now);
            if !stays {
                watch.abort();
            }
            stays
        });
        for kind in KINDS
            .iter()
            .filter(|kind| kind.optional.is_some() && kind.is_served(now))
        {
            if followed.iter().any(|(known, _)| *known == kind) {
                continue;
            }
            // A kind without a namespace is watched once.
            for namespace in namespaces.iter().take(if kind.namespaced { usize::MAX } else { 1 }) {
                let watch = watches.spawn(watch_operands(&client, kind, namespace, &wake, &discoveries.health));
                followed.push((kind, watch));
            }
        }
        while watches.try_join_next().is_some() {}
        if crd::poll_definition(&client, &discoveries.definition).await || before != now {
            wake.send(Affected::All);
        }
        if is_complete {
            is_ready.send_replace(true);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Wakes the drivers whose objects of a kind change, until the future is dropped.
pub(crate) fn watch_operands(
    client: &Client,
    kind: &'static Kind,
    namespace: &str,
    wake: &ChangeSender,
    health: &WatchHealth,
) -> impl Future<Output = ()> + Send + use<> {
    let resource = kind.api_resource();
    let api: GuardedApi<PartialObjectMeta<DynamicObject>> = if kind.namespaced {
        GuardedApi::namespaced_with(client.clone(), namespace, &resource)
    } else {
        GuardedApi::all_with(client.clone(), &resource)
    };
    let wakes = (wake.clone(), health.clone());
    async move {
        let ours = watcher::Config::default().labels(INSTANCE_LABEL);
        hear(kind.kind, api, ours, wakes, |metadata| {
            let driver = metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get(INSTANCE_LABEL))
                .cloned();
            Affected::Drivers(driver.into_iter().collect())
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use crate::{metrics::Metrics, observe::change_channel};
    use http::{Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::it_appears(&[Some(true)], true)]
    #[case::one_look_without_it_may_be_a_mistake(&[Some(true), Some(false)], true)]
    #[case::two_looks_are_none(&[Some(true), Some(false), Some(false)], false)]
    #[case::two_looks_that_are_not_in_a_row(&[Some(true), Some(false), Some(true), Some(false)], true)]
    #[case::a_failed_look_tells_nothing(&[Some(true), Some(false), None, None], true)]
    #[case::it_comes_back(&[Some(true), Some(false), Some(false), Some(true)], true)]
    #[case::it_was_never_there(&[Some(false), None, Some(false)], false)]
    fn api_is_removed_after_two_missed_polls(#[case] looks: &[Option<bool>], #[case] expected: bool) {
        let mut known = DiscoveredApis::default();
        for look in looks {
            known.record(OptionalApi::Snapshots, *look);
        }
        assert_eq!(known.apis.has(OptionalApi::Snapshots), expected);
        assert!(!known.apis.has(OptionalApi::Monitoring));
    }

    /// A client of an API server that returns these responses by path, and 404 for all other paths.
    fn mk_client(answers: Vec<(&'static str, u16, serde_json::Value)>) -> Client {
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        tokio::spawn(async move {
            while let Some((request, answer)) = handle.next_request().await {
                let found = answers.iter().find(|(path, ..)| request.uri().path() == *path);
                let (code, body) = found.map_or_else(
                    || (404, "404 page not found".to_owned()),
                    |(_, code, body)| (*code, body.to_string()),
                );
                let response = Response::builder().status(code).body(Body::from(body.into_bytes()));
                answer.send_response(response.expect("a response"));
            }
        });
        Client::new(service, "default")
    }

    fn mk_list(group_version: &str, names: &[&str]) -> serde_json::Value {
        let resources: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "singularName": "", "namespaced": false, "kind": "X", "verbs": ["get"]}))
            .collect();
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
    }

    #[tokio::test]
    async fn api_is_served_with_all_its_resources() {
        let whole = ["volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"];
        let client = mk_client(vec![
            (
                "/apis/snapshot.storage.k8s.io/v1",
                200,
                mk_list("snapshot.storage.k8s.io/v1", &whole),
            ),
            (
                "/apis/monitoring.coreos.com/v1",
                200,
                mk_list("monitoring.coreos.com/v1", &["prometheusrules"]),
            ),
            (
                "/apis/storage.k8s.io/v1",
                503,
                json!({"kind": "Status", "status": "Failure", "message": "not ready", "reason": "ServiceUnavailable", "code": 503}),
            ),
        ]);
        let mut served = Vec::new();
        for api in OptionalApi::ALL {
            served.push(is_served(&client, api).await);
        }
        assert_eq!(served, [Some(true), Some(false), Some(false), None, Some(false)]);
    }

    #[tokio::test(start_paused = true)]
    async fn discovered_api_wakes_all_drivers_once() {
        let (path, names) = ("/apis/storage.k8s.io/v1", ["volumeattributesclasses"]);
        let client = mk_client(vec![(path, 200, mk_list("storage.k8s.io/v1", &names))]);
        let (apis, discovered) = watch::channel(DiscoveredApis::default());
        let (definition, _) = watch::channel(None);
        let (is_ready, mut ready) = watch::channel(false);
        let (wake, mut woken) = change_channel();
        let following = tokio::spawn(poll_apis(
            client,
            vec!["cinder-csi".to_owned()],
            Discoveries {
                apis,
                definition,
                health: WatchHealth::new(wake.clone(), std::sync::Arc::new(Metrics::new().expect("metrics"))),
            },
            is_ready,
            wake,
        ));

        ready.wait_for(|ready| *ready).await.expect("a first look");
        assert!(discovered.borrow().apis.volume_attributes_classes);
        assert_eq!(woken.next().await.1.whole, Affected::All);
        let next = tokio::time::timeout(POLL_INTERVAL * 4, woken.next()).await;
        assert!(next.is_err(), "nothing changed, nobody is woken: {next:?}");
        following.abort();
    }
}
