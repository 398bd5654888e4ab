// SPDX-License-Identifier: Apache-2.0
//! Collects data for support: the objects of the drivers with their events, and the logs of their pods, without
//! secrets.
//!
//! Objects, events and logs of other programs in the same namespace are not included. The objects have the labels of
//! the operator. The events concern these objects. The logs come from containers that the operator and its Deployment
//! create.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use cinder_csi_crds::{CinderCSIDriver, INSTANCE_LABEL};
use cinder_csi_operator::kubernetes::{GuardedApi, answer, check_name, get_secret};
use cinder_operator_core::{
    cluster::{KINDS, Kind},
    resolve::namespace_of,
};
use csi_sources::{UntrustedText, escape_json};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::Pod,
    events::v1::Event,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, LogParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::error::PluginError;
use redaction::{is_own_container, redact, redact_event};
use secret_values::SecretValues;

mod redaction;
mod secret_values;

pub(crate) use redaction::without_bookkeeping;

/// The labels of the operator's own objects.
const OPERATOR_LABELS: &str = "app.kubernetes.io/name=cinder-csi-operator";

/// Maximum number of lines of each container's log.
const LOG_LINES: i64 = 2_000;
/// Maximum size of each container's log in bytes.
const LOG_BYTES: i64 = 4 << 20;
/// Maximum number of objects per kind and request.
const MOST_OBJECTS: u32 = 500;
/// Maximum number of pages of [`MOST_OBJECTS`] events. The pages contain events of all objects, and are searched for
/// events of the operator's objects.
const MOST_EVENT_PAGES: u32 = 20;
/// Maximum number of pods with logs in the bundle: every controller and operator, and some nodes.
const MOST_PODS: usize = 20;

/// Writes the bundle below `directory`, which must not exist. A failed read is recorded and does not end the
/// collection, because users often lack some rights. Returns a summary.
pub(crate) async fn gather(client: &Client, namespace: &str, directory: &Path) -> Result<String, PluginError> {
    fs::create_dir(directory).map_err(PluginError::write(directory.display()))?;
    let mut bundle = Bundle {
        client,
        directory,
        files: 0,
        missing: Vec::new(),
        not_installed: Vec::new(),
        subjects: BTreeSet::new(),
        secrets: SecretValues::default(),
    };
    let drivers: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
    let drivers = bundle.list("cindercsidrivers", &drivers, "").await;
    let namespaces = namespaces(&drivers, namespace);
    // The secret values must be known before the first write, because every write is searched for them.
    for place in &namespaces {
        for driver in &drivers {
            bundle.read_credentials(driver, place).await;
        }
    }
    bundle.write("cindercsidrivers", &drivers, redact)?;
    for kind in KINDS {
        if !kind.namespaced {
            bundle.operands(kind, None).await?;
            continue;
        }
        for place in &namespaces {
            bundle.operands(kind, Some(place)).await?;
        }
    }
    for place in &namespaces {
        let pods = bundle.pods(place).await?;
        bundle.read_subjects(place).await;
        // Logs are text and need no guarded decoding.
        let logs: Api<Pod> = Api::namespaced(client.clone(), &place.name);
        bundle.logs(&logs, pods).await?;
    }
    // Events about objects without a namespace.
    bundle.events("events-of-drivers", "default").await?;
    for place in &namespaces {
        bundle.events(&format!("events{}", place.suffix), &place.name).await?;
    }
    bundle.finish()
}

/// A namespace to read, with the suffix for the names of its files.
struct BundleNamespace {
    name: String,
    suffix: String,
}

/// The operator's namespace, and the namespaces of drivers that run elsewhere.
fn namespaces(drivers: &[CinderCSIDriver], operators: &str) -> Vec<BundleNamespace> {
    let mut namespaces = vec![BundleNamespace {
        name: operators.to_owned(),
        suffix: String::new(),
    }];
    for driver in drivers {
        let name = namespace_of(driver, operators);
        if namespaces.iter().all(|place| place.name != name) {
            namespaces.push(BundleNamespace {
                name: name.to_owned(),
                suffix: format!("-{name}"),
            });
        }
    }
    namespaces
}

struct Bundle<'a> {
    client: &'a Client,
    directory: &'a Path,
    files: usize,
    missing: Vec<String>,
    /// Kinds that this cluster does not have.
    not_installed: Vec<&'static str>,
    /// The uids of the operator's objects.
    subjects: BTreeSet<String>,
    /// Values that no log and no message may contain.
    secrets: SecretValues,
}

impl Bundle<'_> {
    /// Lists objects of the operator. Records a failure and returns an empty list.
    async fn list<K>(&mut self, name: &str, api: &GuardedApi<K>, labels: &str) -> Vec<K>
    where
        K: Clone + DeserializeOwned + ResourceExt + std::fmt::Debug,
    {
        let listed = list(api, labels, name, &mut self.missing).await;
        let items = listed.unwrap_or_else(|error| {
            self.missing.push(format!("{name}: {}", answer(&error)));
            Vec::new()
        });
        self.subjects.extend(items.iter().filter_map(ResourceExt::uid));
        items
    }

    /// Lists the pods of the operator and of its drivers.
    async fn pods(&mut self, place: &BundleNamespace) -> Result<Vec<Pod>, PluginError> {
        let name = format!("pods{}", place.suffix);
        let api: GuardedApi<Pod> = GuardedApi::namespaced(self.client.clone(), &place.name);
        let mut pods = Vec::new();
        for labels in [INSTANCE_LABEL, OPERATOR_LABELS] {
            pods.extend(self.list(&name, &api, labels).await);
        }
        self.missing.dedup();
        self.write(&name, &pods, redact)?;
        Ok(pods)
    }

    /// Adds the ReplicaSets and Deployments whose events belong in the bundle.
    async fn read_subjects(&mut self, place: &BundleNamespace) {
        for labels in [INSTANCE_LABEL, OPERATOR_LABELS] {
            let sets: GuardedApi<ReplicaSet> = GuardedApi::namespaced(self.client.clone(), &place.name);
            self.list("replicasets", &sets, labels).await;
        }
        let deployments: GuardedApi<Deployment> = GuardedApi::namespaced(self.client.clone(), &place.name);
        self.list("deployments", &deployments, OPERATOR_LABELS).await;
    }

    /// Writes the events about the operator's objects.
    async fn events(&mut self, name: &str, namespace: &str) -> Result<(), PluginError> {
        let api: GuardedApi<Event> = GuardedApi::namespaced(self.client.clone(), namespace);
        let (mut params, mut events) = (ListParams::default().limit(MOST_OBJECTS), Vec::new());
        for page in 1..=MOST_EVENT_PAGES {
            let mut notes = Vec::new();
            let listed = api.list_page(&params, &mut notes).await;
            self.missing
                .extend(notes.into_iter().map(|note| format!("{name}: {note}")));
            let (objects, next) = match listed {
                Ok(page) => page,
                Err(error) => {
                    self.missing.push(format!("{name}: {}", answer(&error)));
                    break;
                }
            };
            events.extend(objects.into_iter().filter(|event| self.is_about_subject(event)));
            let Some(next) = next else { break };
            if page == MOST_EVENT_PAGES {
                let most = MOST_OBJECTS * MOST_EVENT_PAGES;
                self.missing
                    .push(format!("{name}: only the first {most} events were searched"));
            }
            params = params.continue_token(&next);
        }
        self.write(name, &events, redact_event)
    }

    fn is_about_subject(&self, event: &Event) -> bool {
        let subject = event.regarding.as_ref().and_then(|regarding| regarding.uid.as_ref());
        subject.is_some_and(|uid| self.subjects.contains(uid))
    }

    /// Reads the Secrets, for the search of logs and messages.
    async fn read_credentials(&mut self, driver: &CinderCSIDriver, place: &BundleNamespace) {
        for name in secret_names(driver) {
            match get_secret(self.client, &place.name, name).await {
                Ok(secret) => self.secrets.add(&secret.unwrap_or_default()),
                Err(error) => self.missing.push(format!(
                    "Secret {}/{name}: {error}; logs and messages were not searched for its values",
                    place.name
                )),
            }
        }
    }

    /// Writes the objects of one kind that the operator created.
    async fn operands(&mut self, kind: &'static Kind, place: Option<&BundleNamespace>) -> Result<(), PluginError> {
        let resource = kind.api_resource();
        let api: GuardedApi<DynamicObject> = match place {
            Some(place) => GuardedApi::namespaced_with(self.client.clone(), &place.name, &resource),
            None => GuardedApi::all_with(self.client.clone(), &resource),
        };
        let name = format!(
            "operands-{}{}",
            kind.plural,
            place.map_or("", |place| place.suffix.as_str())
        );
        match list(&api, INSTANCE_LABEL, &name, &mut self.missing).await {
            Ok(items) => {
                self.subjects.extend(items.iter().filter_map(ResourceExt::uid));
                self.write(&name, &items, redact)?;
            }
            Err(kube::Error::Api(status)) if status.code == 404 && kind.optional.is_some() => {
                if !self.not_installed.contains(&kind.plural) {
                    self.not_installed.push(kind.plural);
                }
            }
            Err(error) => self.missing.push(format!("{name}: {}", answer(&error))),
        }
        Ok(())
    }

    async fn logs(&mut self, api: &Api<Pod>, pods: Vec<Pod>) -> Result<(), PluginError> {
        for pod in select_pods(pods) {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            for container in containers.filter(|container| is_own_container(&container.name)) {
                for previous in [false, true] {
                    self.log(api, &pod.name_any(), &container.name, previous).await?;
                }
            }
        }
        Ok(())
    }

    async fn log(&mut self, pods: &Api<Pod>, pod: &str, container: &str, previous: bool) -> Result<(), PluginError> {
        let params = LogParams {
            container: Some(container.to_owned()),
            previous,
            tail_lines: Some(LOG_LINES),
            limit_bytes: Some(LOG_BYTES),
            timestamps: true,
            ..LogParams::default()
        };
        let log = match check_name(pod) {
            Ok(()) => pods.logs(pod, &params).await,
            Err(error) => Err(error),
        };
        match log {
            Ok(text) => {
                let text = self.secrets.remove_lines(&text);
                let name = if previous { "previous" } else { "current" };
                let path = self.directory.join(format!("logs/{pod}/{container}.{name}.log"));
                self.write_file(&path, text.as_bytes())
            }
            // Most containers have never been restarted, and have no previous log.
            Err(_) if previous => Ok(()),
            Err(error) => {
                self.missing
                    .push(format!("log of {container} in {pod}: {}", answer(&error)));
                Ok(())
            }
        }
    }

    fn write(&mut self, name: &str, items: &[impl Serialize], redact: fn(&mut Value)) -> Result<(), PluginError> {
        let mut items: Vec<Value> = items.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        for item in &mut items {
            redact(item);
            self.secrets.remove_from_messages(item);
        }
        let text = escape_json(&format!("{:#}\n", json!({"items": items})));
        self.write_file(&self.directory.join(format!("{name}.json")), text.as_bytes())
    }

    fn write_file(&mut self, path: &Path, content: &[u8]) -> Result<(), PluginError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(PluginError::write(parent.display()))?;
        }
        self.files += 1;
        fs::write(path, content).map_err(PluginError::write(path.display()))
    }

    fn finish(mut self) -> Result<String, PluginError> {
        let place = self.directory.display().to_string();
        let mut summary = format!("{} files are in {place}", self.files);
        if !self.not_installed.is_empty() {
            let kinds = self.not_installed.join(", ");
            let _ = write!(summary, "; not installed in this cluster: {kinds}");
        }
        if !self.missing.is_empty() {
            let lines = self
                .missing
                .iter()
                .map(|line| format!("{}\n", UntrustedText::new(line)));
            let text: String = lines.collect();
            let path = self.directory.join("not-read.txt");
            self.write_file(&path, text.as_bytes())?;
            let _ = write!(summary, "; what could not be read is named in {place}/not-read.txt");
        }
        summary.push_str(
            ". Secrets, environments, commands and overrides are left out; check the rest before you publish it.",
        );
        Ok(summary)
    }
}

/// The Secrets with credentials and keys of a driver.
fn secret_names(driver: &CinderCSIDriver) -> BTreeSet<&str> {
    let clouds = driver.spec.clouds.iter().flat_map(|cloud| {
        let certificate = cloud.client_cert_secret_ref.as_ref();
        let certificate = certificate.map(|reference| reference.name.as_str());
        certificate
            .into_iter()
            .chain([cloud.credentials_secret_ref.name.as_str()])
    });
    let classes = driver.spec.storage_classes.items.iter().flatten();
    clouds
        .chain(classes.filter_map(|class| class.secret_name.as_deref()))
        .collect()
}

async fn list<K>(
    api: &GuardedApi<K>,
    labels: &str,
    name: &str,
    missing: &mut Vec<String>,
) -> Result<Vec<K>, kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = ListParams::default().limit(MOST_OBJECTS).labels(labels);
    let mut notes = Vec::new();
    let items = api.list_readable(&params, &mut notes).await;
    missing.extend(notes.into_iter().map(|note| format!("{name}: {note}")));
    items
}

/// Selects the pods with the most useful logs: pods that are not ready come first, pods on nodes come last.
fn select_pods(mut pods: Vec<Pod>) -> Vec<Pod> {
    let rank = |pod: &Pod| {
        let is_ready = pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let is_node = pod
            .labels()
            .get("app.kubernetes.io/component")
            .is_some_and(|component| component == "node");
        (is_node, is_ready, pod.name_any())
    };
    pods.sort_by_key(rank);
    pods.truncate(MOST_PODS);
    pods
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    const CANARY: &str = "canary-geheim";
    const CLASS_CANARY: &str = "geheim-of-class";

    /// A namespace with objects of the operator and of other programs. Data that must not be in the archive contains
    /// the canary.
    fn mk_answer(path: &str, query: &str) -> (u16, String) {
        let encoded = json!(k8s_openapi::ByteString(
            format!("[Global]\npassword = {CANARY}\n").into_bytes()
        ));
        let cut = &encoded.as_str().expect("text")[..40];
        let status = |name: &str, message: &str| {
            json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 1,
                "lastState": {"terminated": {"exitCode": 1, "message": message}}})
        };
        let pod = |name: &str, uid: &str, labels: Value| {
            let env = json!([{"name": "A", "value": CANARY}]);
            json!({"metadata": {"namespace": "n", "name": name, "uid": uid, "labels": labels, "annotations": {"a": CANARY}},
                "spec": {"containers": [
                    {"name": "cinder-csi-driver", "image": "i", "env": env, "command": [CANARY], "args": [format!("--x={CANARY}")]},
                    {"name": "injected", "image": "j", "env": env}]},
                "status": {"containerStatuses": [
                    status("cinder-csi-driver", &format!("ended\nthe password is {CANARY}\n")),
                    status("injected", CANARY)]}})
        };
        let own = pod("cinder-csi-node-1", "own", json!({(INSTANCE_LABEL): "d"}));
        let foreign = pod(CANARY, "foreign", json!({}));
        let secret = json!({"metadata": {"name": "cinder-csi-cloud-config", "uid": "s"}, "type": "Opaque", "data": {"cloud.conf": encoded}});
        let event = |uid: &str, note: &str| {
            json!({"metadata": {"name": "e"}, "regarding": {"uid": uid, "kind": "Pod"}, "note": note, "eventTime": null,
                "deprecatedSource": {"host": CANARY}})
        };
        let driver = json!({"metadata": {"name": "d", "uid": "driver"}, "spec": {
            "clouds": [{"name": "one", "credentialsSecretRef": {"name": "credentials"}}],
            "storageClasses": {"items": [{"name": "own", "secretName": "credentials-of-class"}]},
            "overrides": [{"target": {"kind": "DaemonSet", "name": "x"}, "patch": CANARY}]}});
        let is_selected = query.contains("labelSelector");
        let items = match path {
            "/api/v1/namespaces/n/pods" if is_selected => vec![own],
            "/api/v1/namespaces/n/pods" => vec![own, foreign],
            "/api/v1/namespaces/n/secrets" => vec![secret],
            "/apis/csi.openstack.org/v1beta1/cindercsidrivers" => vec![driver],
            // Events of other objects fill the first page.
            "/apis/events.k8s.io/v1/namespaces/n/events" if !query.contains("continue=") => {
                let page = json!({"metadata": {"continue": "next"}, "items": [event("foreign", CANARY)]});
                return (200, page.to_string());
            }
            "/apis/events.k8s.io/v1/namespaces/n/events" => vec![event("own", "of the pod"), event("foreign", CANARY)],
            "/apis/events.k8s.io/v1/namespaces/default/events" => {
                vec![event("driver", "of the driver"), event("node", CANARY)]
            }
            "/api/v1/namespaces/n/secrets/credentials" => return (200, secret.to_string()),
            "/api/v1/namespaces/n/secrets/credentials-of-class" => {
                let data = json!(k8s_openapi::ByteString(CLASS_CANARY.into()));
                return (200, json!({"metadata": {}, "data": {"password": data}}).to_string());
            }
            "/api/v1/namespaces/n/pods/cinder-csi-node-1/log" if query.contains("container=cinder-csi-driver") => {
                let log = format!("started\nthe password is {CANARY}\nof a class {CLASS_CANARY}\nbody {cut}\nwell\n");
                return (200, log);
            }
            path if path.ends_with("/log") => return (200, CANARY.to_owned()),
            _ => vec![],
        };
        (200, json!({"metadata": {}, "items": items}).to_string())
    }

    fn collect(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, found);
            } else {
                found.push((path.display().to_string(), fs::read_to_string(&path).expect("text")));
            }
        }
    }

    #[tokio::test]
    async fn archive_has_no_canary() {
        let service = tower::service_fn(|request: Request<Body>| {
            let (code, answer) = mk_answer(request.uri().path(), request.uri().query().unwrap_or_default());
            let response = Response::builder().status(code).body(Body::from(answer.into_bytes()));
            async move { Ok::<_, std::convert::Infallible>(response.expect("a response")) }
        });
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("bundle");

        gather(&Client::new(service, "n"), "n", &directory)
            .await
            .expect("a bundle");

        let mut files = Vec::new();
        collect(&directory, &mut files);
        let encoded = json!(k8s_openapi::ByteString(
            format!("[Global]\npassword = {CANARY}\n").into_bytes()
        ));
        let encoded = encoded.as_str().expect("text");
        for (name, content) in &files {
            assert!(!name.contains(CANARY) && !content.contains(CANARY), "{name}: {content}");
            assert!(!content.contains(&encoded[..32]), "{name}: {content}");
            assert!(!content.contains(CLASS_CANARY), "{name}: {content}");
        }
        let all: String = files.iter().map(|(_, content)| content.as_str()).collect();
        for part in [
            "of the pod",
            "of the driver",
            "cinder-csi-node-1",
            "cinder-csi-cloud-config",
            "started",
            "well",
            "ended",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
        assert_eq!(all.matches("a line with a value of a Secret").count(), 8, "{all}");
    }

    #[tokio::test]
    async fn summary_distinguishes_missing_kinds_from_forbidden_kinds() {
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let serving = tokio::spawn(async move {
            while let Some((request, send)) = handle.next_request().await {
                let status = |code: u16, reason: &str| {
                    let refusal = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                        "reason": reason, "message": "no such words"});
                    (code, refusal)
                };
                let (code, answer) = match request.uri().path() {
                    path if path.starts_with("/apis/monitoring.coreos.com/") => status(404, "NotFound"),
                    path if path.ends_with("/secrets") => status(403, "Forbidden"),
                    _ => (200, json!({"metadata": {}, "items": []})),
                };
                let response = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                send.send_response(response.expect("a response"));
            }
        });
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("bundle");

        let summary = gather(&Client::new(service, "n"), "n", &directory)
            .await
            .expect("a bundle");

        serving.abort();
        assert!(
            summary.contains("not installed in this cluster: servicemonitors, prometheusrules; what could not be read"),
            "{summary}"
        );
        let missing = fs::read_to_string(directory.join("not-read.txt")).expect("a list");
        assert_eq!(missing, "operands-secrets: Forbidden: no such words\n");
    }

    #[test]
    fn unready_pods_come_first_and_node_pods_last() {
        let pod = |name: &str, component: &str, ready: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"app.kubernetes.io/component": component}},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };

        let order = select_pods(vec![
            pod("n-well", "node", "True"),
            pod("c-well", "controller", "True"),
            pod("n-ill", "node", "False"),
            pod("c-ill", "controller", "False"),
        ]);

        let names: Vec<String> = order.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["c-ill", "c-well", "n-ill", "n-well"]);
    }
}
