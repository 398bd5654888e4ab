//! The watches that feed the [`Index`] and wake the controller.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use cinder_csi_crds::INSTANCE_LABEL;
use futures::{StreamExt, stream::BoxStream};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tracing::{debug, warn};

use super::{
    OptionalApis, apis,
    classes::ClassObject,
    index::{Concerns, Fact, Index, NodeObject, RegistrationObject, key_of},
    pods::PodObject,
    volumes::{AttachmentObject, ClaimObject, VolumeObject},
};

/// How long changes are gathered before the controller hears of them: a hundred volumes that come at once are one wake-up.
const GATHER: Duration = Duration::from_secs(1);

/// Pause before another look at whether a namespace may be watched.
const ROLE_PAUSE: Duration = Duration::from_secs(10);

/// How long the first lists may take.
const FIRST_LIST_LIMIT: Duration = Duration::from_mins(2);

/// Why the operator cannot know the cluster.
#[derive(Debug, Error)]
pub enum WatchError {
    /// A first list did not come.
    #[error(
        "could not list {kinds} within {limit:?}; check that the operator's ClusterRole allows get, list and watch on them \
         and that the API server is healthy"
    )]
    FirstList {
        /// The kinds that are missing.
        kinds: String,
        /// How long was waited.
        limit: Duration,
    },
}

/// The index with its watches; they end when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    index: Arc<RwLock<Index>>,
    ready: Vec<(&'static str, watch::Receiver<bool>)>,
    apis: watch::Receiver<OptionalApis>,
    watches: JoinSet<()>,
}

impl Cluster {
    /// Starts the watches; in `namespaces` drivers run, in the first of them the operator itself. What comes out of the channel is whom
    /// changes concern.
    pub(crate) fn watch(client: &Client, namespaces: &[String]) -> (Self, mpsc::Receiver<Concerns>) {
        let (wake, woken) = mpsc::channel(16);
        let mut cluster = Self {
            index: Arc::default(),
            ready: Vec::new(),
            apis: watch::channel(OptionalApis::default()).1,
            watches: JoinSet::new(),
        };
        cluster.start::<NodeObject>("nodes", client, &wake);
        cluster.start::<RegistrationObject>("csinodes", client, &wake);
        cluster.start::<VolumeObject>("persistentvolumes", client, &wake);
        cluster.start::<AttachmentObject>("volumeattachments", client, &wake);
        cluster.start::<ClaimObject>("persistentvolumeclaims", client, &wake);
        cluster.start::<ClassObject>("storageclasses", client, &wake);
        for (index, namespace) in namespaces.iter().enumerate() {
            // Where the role is missing in another namespace, the drivers there say so and no other has to wait.
            cluster.start_pods(client, namespace, index == 0, &wake);
        }
        cluster.start_looking_for_apis(client, namespaces, wake);
        (cluster, woken)
    }

    /// A cluster that is known from the start and watches nothing.
    #[cfg(test)]
    pub(crate) fn fixed(index: Index) -> Self {
        Self {
            index: Arc::new(RwLock::new(index)),
            ready: Vec::new(),
            apis: watch::channel(OptionalApis::default()).1,
            watches: JoinSet::new(),
        }
    }

    fn start<K>(&mut self, kind: &'static str, client: &Client, wake: &mpsc::Sender<Concerns>)
    where
        K: Fact + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::Scope: 'static,
    {
        let (is_ready, ready) = watch::channel(false);
        self.ready.push((kind, ready));
        let api: Api<DeserializeGuard<K>> = Api::all_with(client.clone(), &());
        let events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        self.watches.spawn(follow(
            (kind, None),
            events,
            Arc::clone(&self.index),
            is_ready,
            wake.clone(),
        ));
    }

    /// The driver's own pods: those of a namespace with the instance label, and no others.
    fn start_pods(&mut self, client: &Client, namespace: &str, is_waited_for: bool, wake: &mpsc::Sender<Concerns>) {
        let (is_ready, ready) = watch::channel(false);
        if is_waited_for {
            self.ready.push(("pods", ready));
        }
        let api: Api<DeserializeGuard<PodObject>> = Api::namespaced(client.clone(), namespace);
        let ours = watcher::Config::default().labels(INSTANCE_LABEL);
        let events = watcher(api.clone(), ours).default_backoff().boxed();
        let following = follow(
            ("pods", Some(namespace.to_owned())),
            events,
            Arc::clone(&self.index),
            is_ready,
            wake.clone(),
        );
        self.watches.spawn(async move {
            if !is_waited_for {
                until_allowed(&api).await;
            }
            following.await;
        });
    }

    fn start_looking_for_apis(&mut self, client: &Client, namespaces: &[String], wake: mpsc::Sender<Concerns>) {
        let (is_ready, ready) = watch::channel(false);
        self.ready.push(("API groups", ready));
        let (told, apis) = watch::channel(OptionalApis::default());
        self.apis = apis;
        self.watches
            .spawn(apis::follow(client.clone(), namespaces.to_vec(), told, is_ready, wake));
    }

    /// Waits until every first list has come.
    pub async fn wait_until_known(&mut self) -> Result<(), WatchError> {
        let mut missing = Vec::new();
        let deadline = tokio::time::Instant::now() + FIRST_LIST_LIMIT;
        for (kind, ready) in &mut self.ready {
            if !matches!(
                tokio::time::timeout_at(deadline, ready.wait_for(|ready| *ready)).await,
                Ok(Ok(_))
            ) {
                missing.push(*kind);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(WatchError::FirstList {
            kinds: missing.join(", "),
            limit: FIRST_LIST_LIMIT,
        })
    }

    /// The optional APIs that are served, as they were seen last.
    pub fn apis(&self) -> OptionalApis {
        *self.apis.borrow()
    }

    /// Reads the index. Nothing may wait inside.
    pub fn read<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }
}

type Events<'a, K> = BoxStream<'a, Result<Event<DeserializeGuard<K>>, watcher::Error>>;

/// Waits until a kind may be listed, for a namespace where the operator may lack its role: a watch would try again every second,
/// because its pause begins anew with every try.
pub(crate) async fn until_allowed<K>(api: &Api<K>)
where
    K: Clone + Debug + DeserializeOwned,
{
    while let Err(error) = api.list_metadata(&ListParams::default().limit(1)).await {
        debug!(%error, "a kind may not be watched yet");
        tokio::time::sleep(ROLE_PAUSE).await;
    }
}

/// Follows one watch for ever: of a kind, in one namespace or everywhere.
async fn follow<K>(
    (kind, namespace): (&'static str, Option<String>),
    mut events: Events<'static, K>,
    index: Arc<RwLock<Index>>,
    is_ready: watch::Sender<bool>,
    wake: mpsc::Sender<Concerns>,
) where
    K: Fact + Send + 'static,
{
    let mut listed = BTreeSet::new();
    let mut gathered = Concerns::default();
    let mut wake_at = None;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = until(wake_at) => {
                wake_at = None;
                // The receiver is gone when the operator ends.
                if wake.send(std::mem::take(&mut gathered)).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let event = match event {
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                warn!(kind, %error, "watch failed; it is tried again");
                continue;
            }
            None => return,
        };
        let concerned = {
            let mut index = index.write().unwrap_or_else(PoisonError::into_inner);
            take_in(&mut index, event, namespace.as_deref(), &mut listed, &is_ready)
        };
        gathered = gathered.and(concerned);
        if !gathered.is_empty() && wake_at.is_none() {
            wake_at = Some(tokio::time::Instant::now() + GATHER);
        }
    }
}

async fn until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => futures::future::pending().await,
    }
}

/// Takes one event in and says whom it concerns.
fn take_in<K: Fact>(
    index: &mut Index,
    event: Event<DeserializeGuard<K>>,
    namespace: Option<&str>,
    listed: &mut BTreeSet<String>,
    is_ready: &watch::Sender<bool>,
) -> Concerns {
    match event {
        Event::Init => {
            listed.clear();
            Concerns::default()
        }
        Event::InitApply(object) => {
            listed.insert(key_of(&metadata_of(&object)));
            put(index, &object)
        }
        Event::InitDone => {
            let concerned = index.retain::<K>(listed, namespace);
            listed.clear();
            is_ready.send_replace(true);
            concerned
        }
        Event::Apply(object) => put(index, &object),
        Event::Delete(object) => index.remove::<K>(&key_of(&metadata_of(&object))),
    }
}

/// The metadata of an object, also of one that cannot be read.
fn metadata_of<K: Fact>(object: &DeserializeGuard<K>) -> ObjectMeta {
    match &object.0 {
        Ok(object) => object.meta().clone(),
        Err(invalid) => invalid.metadata.clone(),
    }
}

fn put<K: Fact>(index: &mut Index, object: &DeserializeGuard<K>) -> Concerns {
    match &object.0 {
        Ok(object) => index.put(object),
        Err(invalid) => {
            warn!(name = invalid.metadata.name, %invalid, "an object of the cluster cannot be read; it is left out");
            Concerns::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mk_volume(name: &str) -> DeserializeGuard<VolumeObject> {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"csi": {"driver": "a"}}})).expect("a volume")
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_wake_once_and_a_list_that_lacks_a_volume_removes_it() {
        let (sender, receiver) = futures::channel::mpsc::unbounded();
        let (wake, mut woken) = mpsc::channel(4);
        let (is_ready, mut ready) = watch::channel(false);
        let index = Arc::<RwLock<Index>>::default();
        let following = tokio::spawn(follow::<VolumeObject>(
            ("pv", None),
            receiver.boxed(),
            Arc::clone(&index),
            is_ready,
            wake,
        ));
        let volumes = || index.read().expect("no poison").volumes_of("a");

        for event in [
            Event::Init,
            Event::InitApply(mk_volume("pv1")),
            Event::InitApply(mk_volume("pv2")),
            Event::InitDone,
        ] {
            sender.unbounded_send(Ok(event)).expect("sent");
        }
        let first = woken.recv().await.expect("a wake-up");
        assert_eq!(first, Concerns::Drivers(["a".to_owned()].into()));
        assert!(*ready.borrow_and_update());
        assert_eq!(volumes(), ["pv1", "pv2"]);

        for event in [Event::Init, Event::InitApply(mk_volume("pv2")), Event::InitDone] {
            sender.unbounded_send(Ok(event)).expect("sent");
        }
        woken.recv().await.expect("a wake-up");
        assert_eq!(volumes(), ["pv2"]);

        sender.unbounded_send(Ok(Event::Apply(mk_volume("pv2")))).expect("sent");
        drop(sender);
        following.await.expect("no panic");
        assert!(woken.recv().await.is_none(), "nothing changed, nobody is woken");
    }
}
