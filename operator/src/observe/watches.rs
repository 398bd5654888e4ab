// SPDX-License-Identifier: Apache-2.0
//! The watches that feed the [`Index`] and wake the controller.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc, time::Duration};

use cinder_csi_crds::INSTANCE_LABEL;
use cinder_operator_core::cluster::{
    Affected, AttachmentObject, ClaimObject, ClassObject, GuardedObject, Index, Indexed, NodeObject, OptionalApis,
    PodObject, RegistrationObject, Scope, VolumeObject, key_of,
};
use futures::StreamExt;
use kube::{
    Client, Resource,
    runtime::{watcher, watcher::Event},
};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tracing::{info, warn};

use super::{
    apis::{self, DiscoveredApis, Discoveries},
    wake::ChangeSender,
    wake_watch::until_allowed,
    watch_loop::{WatchHealth, WatchLoop},
};
use crate::{kubernetes::GuardedApi, metrics::Metrics};

/// Maximum time without progress of the first lists. Their total duration depends on the cluster.
const STANDSTILL_LIMIT: Duration = Duration::from_mins(2);

/// Longest pause between two reports that the first lists make no progress.
const LONGEST_STANDSTILL: Duration = Duration::from_mins(30);

/// Minimum interval between two progress updates of a list.
const PROGRESS_PACE: Duration = Duration::from_secs(1);

/// The index with its watches, which end when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    index: Arc<RwLock<Index>>,
    ready: Vec<(&'static str, watch::Receiver<bool>)>,
    /// Time of the last progress of a list.
    progress: watch::Sender<Instant>,
    apis: watch::Receiver<DiscoveredApis>,
    /// The difference between the installed CustomResourceDefinition and the operator's own.
    definition: watch::Sender<Option<String>>,
    health: WatchHealth,
    watches: JoinSet<()>,
}

impl Cluster {
    /// Starts the watches, which wake the drivers that a change affects. `namespaces` are the namespaces of drivers;
    /// the first is the operator's own.
    pub(crate) fn watch(client: &Client, namespaces: &[String], wake: &ChangeSender, metrics: Arc<Metrics>) -> Self {
        let mut cluster = Self {
            health: WatchHealth::new(wake.clone(), metrics),
            index: Arc::default(),
            ready: Vec::new(),
            progress: watch::channel(Instant::now()).0,
            apis: watch::channel(DiscoveredApis::default()).1,
            definition: watch::channel(None).0,
            watches: JoinSet::new(),
        };
        cluster.start::<NodeObject>("nodes", client, wake);
        cluster.start::<RegistrationObject>("csinodes", client, wake);
        cluster.start::<VolumeObject>("persistentvolumes", client, wake);
        cluster.start::<AttachmentObject>("volumeattachments", client, wake);
        cluster.start::<ClaimObject>("persistentvolumeclaims", client, wake);
        cluster.start::<ClassObject>("storageclasses", client, wake);
        for (index, namespace) in namespaces.iter().enumerate() {
            // If the role is missing in a further namespace, the drivers there report it and the other drivers need not
            // wait.
            cluster.start_pods(client, namespace, index == 0, wake);
        }
        cluster.start_discovery(client, namespaces, wake.clone());
        cluster
    }

    /// A cluster with a fixed index and without watches.
    #[cfg(test)]
    pub(crate) fn fixed(index: Index) -> Self {
        Self {
            health: WatchHealth::new(super::change_channel().0, Arc::new(Metrics::new().expect("metrics"))),
            index: Arc::new(RwLock::new(index)),
            ready: Vec::new(),
            progress: watch::channel(Instant::now()).0,
            apis: watch::channel(DiscoveredApis::default()).1,
            definition: watch::channel(None).0,
            watches: JoinSet::new(),
        }
    }

    /// Sets the optional APIs of a fixed cluster.
    #[cfg(test)]
    pub(crate) fn with_apis(mut self, apis: OptionalApis) -> Self {
        self.hear_apis(apis);
        self
    }

    /// Adds discovery results to a fixed cluster.
    #[cfg(test)]
    pub(crate) fn hear_apis(&mut self, apis: OptionalApis) {
        let mut discovered = self.apis.borrow().clone();
        for api in cinder_operator_core::cluster::OptionalApi::ALL {
            discovered.record(api, Some(apis.has(api)));
        }
        self.apis = watch::channel(discovered).1;
    }

    /// Changes the index of a fixed cluster.
    #[cfg(test)]
    pub(crate) fn change(&self, change: impl FnOnce(&mut Index)) {
        change(&mut self.index.write());
    }

    fn start<K>(&mut self, kind: &'static str, client: &Client, wake: &ChangeSender)
    where
        K: Indexed + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::Scope: 'static,
    {
        let (is_ready, ready) = watch::channel(false);
        self.ready.push((kind, ready));
        let api: GuardedApi<K> = GuardedApi::all_with(client.clone(), &());
        let events = watcher(api.into_inner(), watcher::Config::default()).boxed();
        let events = WatchLoop::new(kind, kind.to_owned(), events, self.health.clone());
        self.watches.spawn(self.follow((kind, None), events, is_ready, wake));
    }

    /// Watches the driver's own pods: pods of a namespace with the instance label.
    fn start_pods(&mut self, client: &Client, namespace: &str, is_waited_for: bool, wake: &ChangeSender) {
        let (is_ready, ready) = watch::channel(false);
        if is_waited_for {
            self.ready.push(("pods", ready));
        }
        let api: GuardedApi<PodObject> = GuardedApi::namespaced(client.clone(), namespace);
        let ours = watcher::Config::default().labels(INSTANCE_LABEL);
        let events = watcher(api.clone().into_inner(), ours).boxed();
        let name = format!("pods of namespace {namespace}");
        let events = WatchLoop::new("pods", name, events, self.health.clone());
        let following = self.follow(("pods", Some(namespace.to_owned())), events, is_ready, wake);
        self.watches.spawn(async move {
            if !is_waited_for {
                until_allowed("pods", &api).await;
            }
            following.await;
        });
    }

    fn follow<K>(
        &self,
        (kind, namespace): (&'static str, Option<String>),
        events: WatchLoop<K>,
        is_ready: watch::Sender<bool>,
        wake: &ChangeSender,
    ) -> impl Future<Output = ()> + Send + use<K>
    where
        K: Indexed + Send + 'static,
    {
        let follower = Follower {
            kind,
            namespace,
            index: Arc::clone(&self.index),
            is_ready,
            progress: self.progress.clone(),
            wake: wake.clone(),
            begun: Instant::now(),
            listed: BTreeSet::new(),
            health: self.health.clone(),
        };
        follower.follow(events)
    }

    fn start_discovery(&mut self, client: &Client, namespaces: &[String], wake: ChangeSender) {
        let (is_ready, ready) = watch::channel(false);
        self.ready.push(("API groups", ready));
        let (discovered, apis) = watch::channel(DiscoveredApis::default());
        self.apis = apis;
        self.watches.spawn(apis::poll_apis(
            client.clone(),
            namespaces.to_vec(),
            Discoveries {
                apis: discovered,
                definition: self.definition.clone(),
                health: self.health.clone(),
            },
            is_ready,
            wake,
        ));
    }

    /// Waits until every first list is complete, and passes each change of the missing lists to `report`.
    pub async fn wait_until_known(&mut self, report: impl Fn(String)) {
        let mut progress = self.progress.subscribe();
        let mut failures = self.health.subscribe();
        let health = self.health.clone();
        let names: Vec<&'static str> = self.ready.iter().map(|(kind, _)| *kind).collect();
        let readiness: Vec<_> = self.ready.iter().map(|(_, ready)| ready.clone()).collect();
        let unlisted = || {
            let kinds = names.iter().zip(&readiness).filter(|(_, ready)| !*ready.borrow());
            kinds.map(|(kind, _)| *kind).collect::<Vec<_>>()
        };
        let known = async {
            for (_, ready) in &mut self.ready {
                if ready.wait_for(|ready| *ready).await.is_err() {
                    // The watch has ended, which happens only at the end of the operator.
                    futures::future::pending::<()>().await;
                }
            }
        };
        tokio::pin!(known);
        let mut limit = STANDSTILL_LIMIT;
        let mut standstill = Instant::now() + limit;
        loop {
            report(health.describe(&unlisted()));
            tokio::select! {
                () = &mut known => return,
                _ = failures.changed() => {}
                _ = progress.changed() => standstill = Instant::now() + STANDSTILL_LIMIT,
                () = tokio::time::sleep_until(standstill) => {
                    warn!("the lists of the cluster make no progress: {}", health.describe(&unlisted()));
                    limit = limit.saturating_mul(2).min(LONGEST_STANDSTILL);
                    standstill = Instant::now() + limit;
                }
            }
        }
    }

    /// The watches that have failed repeatedly, each with its cause.
    pub(crate) fn failing_watches(&self) -> Vec<String> {
        self.health.failing()
    }

    /// The state of all watches, for watches of other modules.
    pub(crate) fn health(&self) -> WatchHealth {
        self.health.clone()
    }

    /// The served optional APIs, according to the last discovery.
    pub fn apis(&self) -> OptionalApis {
        self.apis.borrow().apis
    }

    /// The confirmed optional APIs. `current` contains the APIs in use, if anything depends on them.
    pub fn confirmed_apis(&self, current: Option<OptionalApis>) -> OptionalApis {
        let now = Instant::now().into_std();
        self.apis.borrow().answers.confirmed(current, now)
    }

    /// Simulates a difference of the CustomResourceDefinition.
    #[cfg(test)]
    pub(crate) fn set_wrong_definition(&self, difference: Option<&str>) {
        self.definition.send_replace(difference.map(str::to_owned));
    }

    /// The difference between the installed CustomResourceDefinition and the operator's own, if any.
    pub fn wrong_definition(&self) -> Option<String> {
        self.definition.borrow().clone()
    }

    /// Reads the index. `look` must not block, because it runs under the lock.
    pub fn read<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&self.index.read())
    }
}

/// Feeds the index from one watch: of a kind, in one namespace or in all.
struct Follower {
    kind: &'static str,
    namespace: Option<String>,
    index: Arc<RwLock<Index>>,
    is_ready: watch::Sender<bool>,
    /// See [`Cluster::progress`].
    progress: watch::Sender<Instant>,
    wake: ChangeSender,
    /// Start of the present or last list.
    begun: Instant,
    /// The names in the present or last list.
    listed: BTreeSet<String>,
    health: WatchHealth,
}

impl Follower {
    /// Runs until the task is aborted. Never waits for the receiver of the changes, because a blocked watch would miss
    /// events.
    async fn follow<K>(mut self, mut events: WatchLoop<K>)
    where
        K: Indexed + Send + 'static,
    {
        while let Some(event) = events.next().await {
            let affected = self.apply_event(event);
            // An object that becomes decodable or undecodable affects every driver, and not only its volumes.
            let scope = if affected == Affected::All {
                Scope::Whole
            } else {
                K::SCOPE
            };
            self.wake.changed(scope, affected);
        }
    }

    /// Applies one event to the index, and returns the affected drivers.
    fn apply_event<K: Indexed>(&mut self, event: Event<GuardedObject<K>>) -> Affected {
        let index = Arc::clone(&self.index);
        let mut index = index.write();
        let affected = match event {
            Event::Init => {
                self.begun = Instant::now();
                self.listed.clear();
                Affected::default()
            }
            Event::InitApply(object) => {
                self.listed.insert(key_of(object.meta()));
                self.progress.send_if_modified(|last| {
                    let is_due = last.elapsed() >= PROGRESS_PACE;
                    if is_due {
                        *last = Instant::now();
                    }
                    is_due
                });
                put(&mut index, &object)
            }
            Event::InitDone => {
                let affected = index.retain::<K>(&self.listed, self.namespace.as_deref());
                info!(
                    kind = self.kind,
                    namespace = self.namespace,
                    objects = self.listed.len(),
                    seconds = self.begun.elapsed().as_secs_f64(),
                    "listed"
                );
                self.listed.clear();
                self.progress.send_replace(Instant::now());
                self.is_ready.send_replace(true);
                affected
            }
            Event::Apply(object) => put(&mut index, &object),
            Event::Delete(object) => index.remove::<K>(&key_of(object.meta())),
        };
        if affected == Affected::All {
            let kind = K::plural(&());
            let count = index.undecodable().filter(|(of, ..)| *of == kind).count();
            self.health.count_undecodable(&kind, count);
        }
        affected
    }
}

fn put<K: Indexed>(index: &mut Index, object: &GuardedObject<K>) -> Affected {
    match &object.0 {
        Ok(object) => index.put(object),
        Err(undecodable) => {
            let affected = index.put_undecodable::<K>(undecodable);
            if !affected.is_empty() {
                warn!(
                    kind = &*K::kind(&()),
                    "{undecodable}; the object counts as existing and in use"
                );
            }
            affected
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::super::wake::{ChangeReceiver, change_channel};
    use super::*;

    fn mk_volume(name: &str) -> GuardedObject<VolumeObject> {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"csi": {"driver": "a"}}})).expect("a volume")
    }

    type Sent = futures::channel::mpsc::UnboundedSender<Result<Event<GuardedObject<VolumeObject>>, watcher::Error>>;

    /// A cluster that follows one watch, with the sender of its events.
    fn follow() -> (Cluster, Sent, ChangeReceiver) {
        let (sender, events) = futures::channel::mpsc::unbounded();
        let (wake, woken) = change_channel();
        let mut cluster = Cluster::fixed(Index::default());
        let (is_ready, ready) = watch::channel(false);
        cluster.ready.push(("persistentvolumes", ready));
        let kind = "persistentvolumes";
        let events = WatchLoop::new(kind, kind.to_owned(), events.boxed(), cluster.health());
        let following = cluster.follow((kind, None), events, is_ready, &wake);
        cluster.watches.spawn(following);
        (cluster, sender, woken)
    }

    fn send(sender: &Sent, event: Event<GuardedObject<VolumeObject>>) {
        sender.unbounded_send(Ok(event)).expect("it is followed");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_wake_driver_and_new_list_removes_volumes() {
        let (mut cluster, sender, mut woken) = follow();
        let names = |names: &[&str]| {
            for event in [Event::Init]
                .into_iter()
                .chain(names.iter().map(|name| Event::InitApply(mk_volume(name))))
                .chain([Event::InitDone])
            {
                send(&sender, event);
            }
        };
        names(&["pv1", "pv2"]);
        cluster.wait_until_known(drop).await;
        assert_eq!(woken.next().await.1.volumes, Affected::Drivers(["a".to_owned()].into()));
        assert_eq!(cluster.read(|index| index.count_of("a").volumes), 2);

        names(&["pv2"]);
        woken.next().await;
        assert_eq!(cluster.read(|index| index.count_of("a").volumes), 1);

        send(&sender, Event::Apply(mk_volume("pv2")));
        let next = tokio::time::timeout(STANDSTILL_LIMIT, woken.next()).await;
        assert!(next.is_err(), "nothing changed: {next:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn long_list_continues_while_it_makes_progress() {
        let (mut cluster, sender, woken) = follow();
        let begun = Instant::now();
        let list = async {
            send(&sender, Event::Init);
            for page in 0..40 {
                send(&sender, Event::InitApply(mk_volume(&format!("pv{page}"))));
                tokio::time::sleep(STANDSTILL_LIMIT / 4).await;
            }
            send(&sender, Event::InitDone);
        };
        tokio::join!(cluster.wait_until_known(drop), list);
        assert_eq!(begun.elapsed(), STANDSTILL_LIMIT * 10);
        assert_eq!(cluster.read(|index| index.count_of("a").volumes), 40);
        drop(woken);
    }

    #[tokio::test(start_paused = true)]
    async fn missing_list_is_reported_with_its_cause() {
        let (mut cluster, sender, _woken) = follow();
        let reports = Mutex::new(Vec::new());
        let report = |missing| reports.lock().push(missing);
        send(&sender, Event::Init);
        send(&sender, Event::InitApply(mk_volume("pv1")));
        let known = tokio::time::timeout(STANDSTILL_LIMIT * 3, cluster.wait_until_known(report)).await;
        assert!(known.is_err(), "the list is not complete");
        let error = watcher::Error::NoResourceVersion;
        sender.unbounded_send(Err(error)).expect("it is followed");
        let known = tokio::time::timeout(STANDSTILL_LIMIT, cluster.wait_until_known(report)).await;
        assert!(known.is_err(), "the list is not complete");

        let reports = reports.into_inner();
        assert_eq!(reports[0], "persistentvolumes are not listed yet");
        let last = reports.last().expect("a report");
        assert!(
            last.starts_with("cannot list persistentvolumes: ") && !last.contains("ClusterRole"),
            "{last}"
        );
    }

    /// An API server with one valid and one undecodable object of each watched kind. Its watches send undecodable
    /// objects.
    fn mk_odd_server() -> Client {
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        tokio::spawn(async move {
            while let Some((request, answer)) = handle.next_request().await {
                let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
                let kind = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                let text = match kind.as_str() {
                    _ if is_watch => format!("{}\n", json!({"type": "ADDED", "object": {"metadata": {"name": 5}}})),
                    "nodes"
                    | "csinodes"
                    | "persistentvolumes"
                    | "volumeattachments"
                    | "persistentvolumeclaims"
                    | "storageclasses"
                    | "pods" => mk_odd_list().to_string(),
                    _ => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": []}).to_string(),
                };
                let response = Response::builder().status(200).body(Body::from(text.into_bytes()));
                answer.send_response(response.expect("a response"));
            }
        });
        Client::new(service, "cinder-csi")
    }

    fn mk_odd_list() -> Value {
        let managers = json!([{"manager": "x", "time": "9999-12-31T23:59:59Z"}]);
        json!({"metadata": {"resourceVersion": "9"}, "items": [
            {"metadata": {"name": "plain", "resourceVersion": "1"}, "provisioner": "d",
                "spec": {"attacher": "d", "csi": {"driver": "d"}}},
            {"metadata": {"name": "late", "resourceVersion": "2", "managedFields": managers}, "provisioner": "d",
                "spec": {"attacher": "d", "csi": {"driver": "d"}}},
            {"metadata": {"name": "odd", "resourceVersion": "3"}, "spec": "text", "provisioner": 5},
            {"metadata": 5}, null, "text",
        ]})
    }

    #[tokio::test]
    async fn first_lists_survive_undecodable_objects() {
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let (wake, _woken) = change_channel();
        let namespaces = ["cinder-csi".to_owned()];
        let mut cluster = Cluster::watch(&mk_odd_server(), &namespaces, &wake, Arc::clone(&metrics));
        let known = cluster.wait_until_known(drop);
        tokio::time::timeout(Duration::from_secs(30), known)
            .await
            .expect("all lists");

        let (nodes, volumes, blockers, undecodable) = cluster.read(|index| {
            let undecodable = index.undecodable().map(|(kind, name, _)| format!("{kind} {name}"));
            let nodes: BTreeSet<String> = index.nodes().iter().map(|node| node.name.clone()).collect();
            (
                nodes,
                index.count_of("d"),
                index.blockers("d", false),
                undecodable.collect::<Vec<_>>(),
            )
        });
        assert_eq!(nodes, ["plain", "late"].map(str::to_owned).into());
        assert_eq!((volumes.volumes, volumes.attachments), (4, 4));
        assert!(
            blockers.claims.contains(&"odd (it cannot be decoded)".to_owned()),
            "{blockers:?}"
        );
        for kind in [
            "nodes",
            "csinodes",
            "persistentvolumes",
            "volumeattachments",
            "persistentvolumeclaims",
        ] {
            assert!(undecodable.contains(&format!("{kind} odd")), "{kind}: {undecodable:?}");
        }
        let families = metrics.registry().gather();
        let family = families
            .iter()
            .find(|family| family.name().ends_with("undecodable_objects"));
        let values = family
            .expect("the metric")
            .get_metric()
            .iter()
            .map(|one| one.get_gauge().get_value());
        assert!(values.sum::<f64>() >= 12.0);
    }
}
