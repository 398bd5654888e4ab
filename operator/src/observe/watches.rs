// SPDX-License-Identifier: Apache-2.0
//! The watches that feed the [`Index`] and wake the controller.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use cinder_csi_crds::INSTANCE_LABEL;
use cinder_operator_core::{
    class_parameters::{ClassKind, ClassParameters},
    cluster::{
        Affected, AttachmentObject, ClaimObject, ClassObject, Index, Indexed, NodeObject, OptionalApis, PodObject,
        RegistrationObject, VolumeObject, key_of,
    },
};
use futures::{StreamExt, stream::BoxStream};
use kube::{
    Api, Client, Resource,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tracing::{info, warn};

use super::{
    ObserveError,
    apis::{self, Discoveries},
    class_parameters::{Classes, list_classes, served_classes},
    wake::Wake,
};

/// Pause before another look at whether a namespace may be watched.
const ROLE_PAUSE: Duration = Duration::from_secs(10);

/// How long the first lists may stand still. How long they take in all depends on the cluster.
const STANDSTILL_LIMIT: Duration = Duration::from_mins(2);

/// How often a list that goes on says so.
const PROGRESS_PACE: Duration = Duration::from_secs(1);

/// Why the operator cannot know the cluster.
#[derive(Debug, Error)]
pub enum WatchError {
    /// A first list did not come.
    #[error(
        "could not list {kinds}: nothing more came for {limit:?}; check that the operator's ClusterRole allows get, list and watch \
         on them and that the API server is healthy"
    )]
    FirstList {
        /// The kinds that are missing.
        kinds: String,
        /// How long nothing came.
        limit: Duration,
    },
}

/// The index with its watches; they end when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    index: Arc<RwLock<Index>>,
    ready: Vec<(&'static str, watch::Receiver<bool>)>,
    /// When a list brought something last.
    progress: watch::Sender<Instant>,
    apis: watch::Receiver<OptionalApis>,
    /// What is wrong with the CustomResourceDefinition.
    definition: watch::Sender<Option<String>>,
    classes: Classes,
    watches: JoinSet<()>,
}

impl Cluster {
    /// Starts the watches, which wake the drivers that a change affected; in `namespaces` drivers run, in the first of them the operator
    /// itself.
    pub(crate) fn watch(client: &Client, namespaces: &[String], wake: &Wake) -> Self {
        let mut cluster = Self {
            index: Arc::default(),
            ready: Vec::new(),
            progress: watch::channel(Instant::now()).0,
            apis: watch::channel(OptionalApis::default()).1,
            definition: watch::channel(None).0,
            classes: Classes::default(),
            watches: JoinSet::new(),
        };
        cluster.start::<NodeObject>("nodes", client, wake);
        cluster.start::<RegistrationObject>("csinodes", client, wake);
        cluster.start::<VolumeObject>("persistentvolumes", client, wake);
        cluster.start::<AttachmentObject>("volumeattachments", client, wake);
        cluster.start::<ClaimObject>("persistentvolumeclaims", client, wake);
        cluster.start::<ClassObject>("storageclasses", client, wake);
        for (index, namespace) in namespaces.iter().enumerate() {
            // Where the role is missing in another namespace, the drivers there say so and no other has to wait.
            cluster.start_pods(client, namespace, index == 0, wake);
        }
        cluster.start_looking_for_apis(client, namespaces, wake.clone());
        cluster
    }

    /// A cluster that is known from the start and watches nothing.
    #[cfg(test)]
    pub(crate) fn fixed(index: Index) -> Self {
        Self {
            index: Arc::new(RwLock::new(index)),
            ready: Vec::new(),
            progress: watch::channel(Instant::now()).0,
            apis: watch::channel(OptionalApis::default()).1,
            definition: watch::channel(None).0,
            classes: Classes::default(),
            watches: JoinSet::new(),
        }
    }

    /// Changes the index of such a cluster.
    #[cfg(test)]
    pub(crate) fn change(&self, change: impl FnOnce(&mut Index)) {
        change(&mut self.index.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn start<K>(&mut self, kind: &'static str, client: &Client, wake: &Wake)
    where
        K: Indexed + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::Scope: 'static,
    {
        let (is_ready, ready) = watch::channel(false);
        self.ready.push((kind, ready));
        let api: Api<DeserializeGuard<K>> = Api::all_with(client.clone(), &());
        let events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        self.watches.spawn(self.follow((kind, None), events, is_ready, wake));
    }

    /// The driver's own pods: those of a namespace with the instance label, and no others.
    fn start_pods(&mut self, client: &Client, namespace: &str, is_waited_for: bool, wake: &Wake) {
        let (is_ready, ready) = watch::channel(false);
        if is_waited_for {
            self.ready.push(("pods", ready));
        }
        let api: Api<DeserializeGuard<PodObject>> = Api::namespaced(client.clone(), namespace);
        let ours = watcher::Config::default().labels(INSTANCE_LABEL);
        let events = watcher(api.clone(), ours).default_backoff().boxed();
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
        events: WatchEvents<'static, K>,
        is_ready: watch::Sender<bool>,
        wake: &Wake,
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
        };
        follower.follow(events)
    }

    fn start_looking_for_apis(&mut self, client: &Client, namespaces: &[String], wake: Wake) {
        let (is_ready, ready) = watch::channel(false);
        self.ready.push(("API groups", ready));
        let (told, apis) = watch::channel(OptionalApis::default());
        self.apis = apis;
        self.watches.spawn(apis::follow(
            client.clone(),
            namespaces.to_vec(),
            Discoveries {
                apis: told,
                definition: self.definition.clone(),
                classes: self.classes.clone(),
            },
            is_ready,
            wake,
        ));
    }

    /// Waits until every first list has come, for as long as they go on.
    pub async fn wait_until_known(&mut self) -> Result<(), WatchError> {
        let mut progress = self.progress.subscribe();
        let ready = &mut self.ready;
        let known = async {
            for (_, ready) in &mut *ready {
                if ready.wait_for(|ready| *ready).await.is_err() {
                    // Its watch has ended, which only the end of the operator brings.
                    futures::future::pending::<()>().await;
                }
            }
        };
        let standstill =
            async { while let Ok(Ok(())) = tokio::time::timeout(STANDSTILL_LIMIT, progress.changed()).await {} };
        tokio::select! {
            () = known => return Ok(()),
            () = standstill => {}
        }
        let missing = self.ready.iter().filter(|(_, ready)| !*ready.borrow());
        Err(WatchError::FirstList {
            kinds: missing.map(|(kind, _)| *kind).collect::<Vec<_>>().join(", "),
            limit: STANDSTILL_LIMIT,
        })
    }

    /// The optional APIs that are served, as they were seen last.
    pub fn apis(&self) -> OptionalApis {
        *self.apis.borrow()
    }

    /// The classes of a driver with their parameters. Asks for those of a kind whose watch has not listed them yet.
    pub(crate) async fn class_parameters(
        &self,
        client: &Client,
        driver: &str,
    ) -> Result<Vec<ClassParameters>, ObserveError> {
        let mut found = self.read(|index| {
            let of_driver = index.storage_classes_of(driver).into_iter();
            let classes = of_driver.map(|(name, class)| ClassParameters {
                kind: ClassKind::StorageClass,
                name: name.to_owned(),
                uid: class.uid().to_owned(),
                keys: class.keys().to_vec(),
            });
            classes.collect::<Vec<_>>()
        });
        for (kind, class) in served_classes(self.apis()).filter(|(kind, _)| kind.optional.is_some()) {
            match self.classes.of(class, driver) {
                Some(known) => found.extend(known),
                None => found.extend(list_classes(client, kind, class, driver).await?),
            }
        }
        Ok(found)
    }

    /// Pretends that something is wrong with the CustomResourceDefinition.
    #[cfg(test)]
    pub(crate) fn set_wrong_definition(&self, difference: &str) {
        self.definition.send_replace(Some(difference.to_owned()));
    }

    /// What is wrong with the CustomResourceDefinition that the cluster has, if anything.
    pub fn wrong_definition(&self) -> Option<String> {
        self.definition.borrow().clone()
    }

    /// Reads the index. Nothing may wait inside.
    pub fn read<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }
}

type WatchEvents<'a, K> = BoxStream<'a, Result<Event<DeserializeGuard<K>>, watcher::Error>>;

/// Wakes the drivers that the changes of a kind concern, until the task is aborted.
///
/// Each kind has a watch of its own: those of a [`kube::runtime::Controller`] pause all together when one of them fails, and the
/// operator may lack its role for one.
pub(crate) async fn hear<K>(
    what: &str,
    api: Api<K>,
    config: watcher::Config,
    wake: Wake,
    find: impl Fn(&K) -> Affected + Send,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    until_allowed(what, &api).await;
    let mut events = watcher(api, config).default_backoff().touched_objects().boxed();
    while let Some(object) = events.next().await {
        match object {
            Ok(object) => wake.send(find(&object)),
            Err(error) => warn!(kind = what, %error, "watch failed; it is tried again"),
        }
    }
}

/// Waits until a kind may be listed, where the operator may lack its role: a watch would try again every second, because its pause
/// begins anew with every try.
pub(super) async fn until_allowed<K>(what: &str, api: &Api<K>)
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut is_first = true;
    while let Err(error) = api.list_metadata(&ListParams::default().limit(1)).await {
        if std::mem::take(&mut is_first) {
            warn!(kind = what, %error, "a kind may not be watched yet; it is tried again");
        }
        tokio::time::sleep(ROLE_PAUSE).await;
    }
}

/// Follows one watch: of a kind, in one namespace or everywhere.
struct Follower {
    kind: &'static str,
    namespace: Option<String>,
    index: Arc<RwLock<Index>>,
    is_ready: watch::Sender<bool>,
    /// See [`Cluster::progress`].
    progress: watch::Sender<Instant>,
    wake: Wake,
    /// When the list that goes on began, or the last one.
    begun: Instant,
    /// The names that it brought.
    listed: BTreeSet<String>,
}

impl Follower {
    /// Goes on until the task is aborted. Never waits for whoever is woken: a watch that stands still knows nothing.
    async fn follow<K>(mut self, mut events: WatchEvents<'static, K>)
    where
        K: Indexed + Send + 'static,
    {
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let affected = self.take_in(event);
                    self.wake.changed(K::SCOPE, affected);
                }
                Err(error) => warn!(
                    kind = self.kind,
                    namespace = self.namespace,
                    listed = self.listed.len(),
                    %error,
                    "watch failed; it is tried again, and a list that was not complete begins again"
                ),
            }
        }
    }

    /// Takes one event in and says whom it affected.
    fn take_in<K: Indexed>(&mut self, event: Event<DeserializeGuard<K>>) -> Affected {
        let index = Arc::clone(&self.index);
        let mut index = index.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => {
                self.begun = Instant::now();
                self.listed.clear();
                Affected::default()
            }
            Event::InitApply(object) => {
                self.listed.insert(key_of(&metadata_of(&object)));
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
            Event::Delete(object) => index.remove::<K>(&key_of(&metadata_of(&object))),
        }
    }
}

/// The metadata of an object, also of one that cannot be read.
fn metadata_of<K: Indexed>(object: &DeserializeGuard<K>) -> ObjectMeta {
    match &object.0 {
        Ok(object) => object.meta().clone(),
        Err(invalid) => invalid.metadata.clone(),
    }
}

fn put<K: Indexed>(index: &mut Index, object: &DeserializeGuard<K>) -> Affected {
    match &object.0 {
        Ok(object) => index.put(object),
        Err(invalid) => {
            warn!(name = invalid.metadata.name, %invalid, "an object of the cluster cannot be read; it is left out");
            Affected::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::wake::{Woken, wake_ups};
    use super::*;

    fn mk_volume(name: &str) -> DeserializeGuard<VolumeObject> {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"csi": {"driver": "a"}}})).expect("a volume")
    }

    type Sent = futures::channel::mpsc::UnboundedSender<Result<Event<DeserializeGuard<VolumeObject>>, watcher::Error>>;

    /// A cluster that follows one watch, whose events come from here.
    fn follow() -> (Cluster, Sent, Woken) {
        let (sender, events) = futures::channel::mpsc::unbounded();
        let (wake, woken) = wake_ups();
        let mut cluster = Cluster::fixed(Index::default());
        let (is_ready, ready) = watch::channel(false);
        cluster.ready.push(("persistentvolumes", ready));
        let following = cluster.follow(("persistentvolumes", None), events.boxed(), is_ready, &wake);
        cluster.watches.spawn(following);
        (cluster, sender, woken)
    }

    fn send(sender: &Sent, event: Event<DeserializeGuard<VolumeObject>>) {
        sender.unbounded_send(Ok(event)).expect("it is followed");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_wake_their_driver_and_a_list_that_lacks_a_volume_removes_it() {
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
        cluster.wait_until_known().await.expect("a list");
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
    async fn a_long_list_goes_on_while_no_one_takes_the_wake_ups_and_may_last_as_long_as_it_moves() {
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
        let (known, ()) = tokio::join!(cluster.wait_until_known(), list);
        known.expect("it is complete");
        assert_eq!(begun.elapsed(), STANDSTILL_LIMIT * 10);
        assert_eq!(cluster.read(|index| index.count_of("a").volumes), 40);
        drop(woken);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_stands_still_is_named() {
        let (mut cluster, sender, _woken) = follow();
        let begun = Instant::now();
        send(&sender, Event::Init);
        send(&sender, Event::InitApply(mk_volume("pv1")));
        let error = cluster.wait_until_known().await.expect_err("it is not complete");
        assert!(error.to_string().contains("persistentvolumes"), "{error}");
        assert!(begun.elapsed() < STANDSTILL_LIMIT * 2, "{:?}", begun.elapsed());
    }
}
