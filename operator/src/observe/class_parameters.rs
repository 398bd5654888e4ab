// SPDX-License-Identifier: Apache-2.0
//! The classes of the driver with their parameters, whoever made them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::{Arc, PoisonError, RwLock},
};

use cinder_csi_crds::INSTANCE_LABEL;
use cinder_operator_core::{
    class_parameters::{ClassKind, ClassParameters},
    cluster::{Affected, KINDS, Kind, OptionalApis},
};
use futures::StreamExt;
use kube::{
    Client, ResourceExt,
    api::DynamicObject,
    runtime::{watcher, watcher::Event},
};
use serde_json::Value;

use super::{
    ObserveError, pages,
    wake::Wake,
    watch_loop::{WatchHealth, WatchLoop},
    watches::until_allowed,
};
use crate::kubernetes::GuardedApi;

/// The classes of a driver, asked of the API server.
pub(super) async fn class_parameters(
    client: &Client,
    driver: &str,
    apis: OptionalApis,
) -> Result<Vec<ClassParameters>, ObserveError> {
    let mut found = Vec::new();
    for (kind, class) in served_classes(apis) {
        found.extend(list_classes(client, kind, class, driver).await?);
    }
    Ok(found)
}

/// The kinds of classes that the cluster serves.
pub(super) fn served_classes(apis: OptionalApis) -> impl Iterator<Item = (&'static Kind, ClassKind)> {
    let served = KINDS.iter().filter(move |kind| kind.is_served(apis));
    served.filter_map(|kind| Some((kind, class_kind(kind)?)))
}

/// The classes of one kind of a driver, asked of the API server.
pub(super) async fn list_classes(
    client: &Client,
    kind: &Kind,
    class: ClassKind,
    driver: &str,
) -> Result<Vec<ClassParameters>, ObserveError> {
    let mut found = Vec::new();
    let api: GuardedApi<DynamicObject> = GuardedApi::all_with(client.clone(), &kind.api_resource());
    pages(&api, kind.plural, |page| {
        let ours = page
            .iter()
            .filter_map(|object| object.0.as_ref().ok())
            .filter(|object| driver_in(class, &object.data) == Some(driver));
        found.extend(ours.map(|object| parameters_of(class, object)));
        ControlFlow::Continue(())
    })
    .await?;
    Ok(found)
}

/// A class as its watch has shown it.
#[derive(Debug)]
struct WatchedClass {
    /// The driver that it is for, and the one that made it.
    drivers: BTreeSet<String>,
    driver: Option<String>,
    parameters: ClassParameters,
}

impl WatchedClass {
    fn of(kind: ClassKind, object: &DynamicObject) -> Self {
        let driver = driver_in(kind, &object.data);
        let instance = object.labels().get(INSTANCE_LABEL).map(String::as_str);
        Self {
            drivers: instance.into_iter().chain(driver).map(str::to_owned).collect(),
            driver: driver.map(str::to_owned),
            parameters: parameters_of(kind, object),
        }
    }

    fn affected(&self) -> Affected {
        Affected::Drivers(self.drivers.clone())
    }
}

type ClassTable = BTreeMap<String, WatchedClass>;

/// The classes of the optional APIs by kind and name, of all drivers. A kind that is missing was not listed yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Classes(Arc<RwLock<BTreeMap<ClassKind, ClassTable>>>);

impl Classes {
    /// Those of a driver; `None` while they are not known.
    pub(super) fn of(&self, kind: ClassKind, driver: &str) -> Option<Vec<ClassParameters>> {
        let tables = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let of_driver = tables
            .get(&kind)?
            .values()
            .filter(|class| class.driver.as_deref() == Some(driver));
        Some(of_driver.map(|class| class.parameters.clone()).collect())
    }

    /// Forgets a kind: its API is not served any more.
    pub(super) fn forget(&self, kind: ClassKind) {
        self.change(|tables| tables.remove(&kind));
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<ClassKind, ClassTable>) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Keeps the classes of a kind known, and wakes the drivers that a change affected, until the task is aborted.
pub(super) async fn follow(
    client: Client,
    kind: &'static Kind,
    class: ClassKind,
    classes: Classes,
    (wake, health): (Wake, WatchHealth),
) {
    let api: GuardedApi<DynamicObject> = GuardedApi::all_with(client, &kind.api_resource());
    until_allowed(kind.kind, &api).await;
    let events = watcher(api.into_inner(), watcher::Config::default()).boxed();
    let events = WatchLoop::new(kind.kind, kind.kind.to_owned(), events, health);
    take_in(events, class, classes, wake).await;
}

async fn take_in(mut events: WatchLoop<DynamicObject>, kind: ClassKind, classes: Classes, wake: Wake) {
    let mut listed = ClassTable::new();
    while let Some(event) = events.next().await {
        let affected = match event {
            Event::Init => {
                listed.clear();
                Affected::default()
            }
            // A list wakes the drivers once it is complete, because it cannot be read before.
            Event::InitApply(object) => {
                listed.extend(
                    object
                        .0
                        .ok()
                        .map(|object| (object.name_any(), WatchedClass::of(kind, &object))),
                );
                Affected::default()
            }
            Event::InitDone => {
                let all = |table: &ClassTable| {
                    let classes = table.values().map(WatchedClass::affected);
                    classes.fold(Affected::default(), Affected::and)
                };
                let now = all(&listed);
                let before = classes.change(|tables| tables.insert(kind, std::mem::take(&mut listed)));
                now.and(before.as_ref().map(all).unwrap_or_default())
            }
            // Also where the parameters are the same: the operator repairs what it made.
            Event::Apply(object) => {
                // The parameters of a class that does not decode are those of before.
                let Ok(object) = object.0 else { continue };
                let class = WatchedClass::of(kind, &object);
                let now = class.affected();
                let before = classes.change(|tables| tables.entry(kind).or_default().insert(object.name_any(), class));
                now.and(before.map(|class| class.affected()).unwrap_or_default())
            }
            Event::Delete(object) => {
                let before = classes.change(|tables| tables.entry(kind).or_default().remove(&object.name_any()));
                let before = before.map(|class| class.affected()).unwrap_or_default();
                object
                    .0
                    .map_or(before, |object| WatchedClass::of(kind, &object).affected())
            }
        };
        wake.send(affected);
    }
}

/// Whether objects of a kind are classes with parameters of a driver.
pub(super) fn class_kind(kind: &Kind) -> Option<ClassKind> {
    ClassKind::ALL.into_iter().find(|class| class.as_str() == kind.kind)
}

/// The driver that a class is for.
fn driver_in(kind: ClassKind, class: &Value) -> Option<&str> {
    let field = match kind {
        ClassKind::StorageClass => "provisioner",
        ClassKind::VolumeSnapshotClass | ClassKind::VolumeGroupSnapshotClass => "driver",
        ClassKind::VolumeAttributesClass => "driverName",
    };
    class[field].as_str()
}

fn parameters_of(kind: ClassKind, class: &DynamicObject) -> ClassParameters {
    let parameters = class.data["parameters"].as_object().into_iter().flatten();
    ClassParameters {
        kind,
        name: class.name_any(),
        uid: class.uid().unwrap_or_default(),
        keys: parameters.map(|(key, _)| key.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use cinder_operator_core::cluster::GuardedObject;
    use futures::channel::mpsc;
    use serde_json::json;

    use super::*;
    use crate::{metrics::Metrics, observe::wake_ups};

    const KIND: ClassKind = ClassKind::VolumeSnapshotClass;

    fn mk_class(name: &str, driver: &str, instance: Option<&str>) -> GuardedObject<DynamicObject> {
        let labels: BTreeMap<&str, &str> = instance
            .map(|instance| (INSTANCE_LABEL, instance))
            .into_iter()
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "labels": labels},
            "driver": driver,
            "parameters": {"force-create": "true"},
        }))
        .expect("a class")
    }

    fn drivers(names: &[&str]) -> Affected {
        Affected::Drivers(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn names(classes: &Classes, driver: &str) -> Option<Vec<String>> {
        let of_driver = classes.of(KIND, driver)?.into_iter();
        Some(of_driver.map(|class| class.name).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn classes_are_known_once_listed_and_each_change_wakes_their_drivers() {
        let (sender, events) = mpsc::unbounded();
        let (wake, mut woken) = wake_ups();
        let classes = Classes::default();
        let health = WatchHealth::new(wake.clone(), std::sync::Arc::new(Metrics::new().expect("metrics")));
        let events = WatchLoop::new("VolumeSnapshotClass", "classes".to_owned(), events.boxed(), health);
        let following = tokio::spawn(take_in(events, KIND, classes.clone(), wake));
        let send = |event| sender.unbounded_send(Ok(event)).expect("it is followed");

        send(Event::Init);
        send(Event::InitApply(mk_class("a", "one", None)));
        tokio::task::yield_now().await;
        assert_eq!(names(&classes, "one"), None, "a list that goes on tells nothing");
        send(Event::InitApply(mk_class("b", "two", Some("three"))));
        send(Event::InitDone);
        assert_eq!(woken.next().await.1.whole, drivers(&["one", "two", "three"]));
        assert_eq!(names(&classes, "one"), Some(vec!["a".to_owned()]));
        let known = classes.of(KIND, "two").expect("they are known");
        assert_eq!(
            (known[0].uid.as_str(), known[0].keys.as_slice()),
            ("b", &["force-create".to_owned()][..])
        );

        // An update without another parameter: a label may have changed, which the operator repairs.
        send(Event::Apply(mk_class("a", "one", None)));
        assert_eq!(woken.next().await.1.whole, drivers(&["one"]));
        send(Event::Delete(mk_class("b", "two", None)));
        assert_eq!(woken.next().await.1.whole, drivers(&["two"]));
        assert_eq!(names(&classes, "two"), Some(Vec::new()));

        // After a break of the watch: what the new list lacks is gone, and its driver hears of it.
        for event in [Event::Init, Event::InitDone] {
            send(event);
        }
        assert_eq!(woken.next().await.1.whole, drivers(&["one"]));
        assert_eq!(names(&classes, "one"), Some(Vec::new()));
        classes.forget(KIND);
        assert_eq!(names(&classes, "one"), None);
        following.abort();
    }
}
