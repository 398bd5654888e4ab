// SPDX-License-Identifier: Apache-2.0
//! An API server in memory with the features that a reconcile needs. It stores applied objects, lists by label, and
//! records every write. In the namespace kube-system, only the rights of the role of a migration are valid. Tests against
//! a real API server cover ownership of fields, defaults and admission.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use cinder_operator_core::cluster::FIELD_MANAGER;
use http::{Method, Request, Response};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use kube::{Client, client::Body};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

type Handle = tower_test::mock::Handle<Request<Body>, Response<Body>>;

/// Path of the only `CinderCSIDriver`.
pub(super) const DRIVER: &str = "/apis/csi.openstack.org/v1beta1/cindercsidrivers/cinder.csi.openstack.org";

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Value>,
    writes: Vec<String>,
    reads: Vec<String>,
    /// The requested lists, with their parameters.
    lists: Vec<String>,
    /// The field managers of the writes.
    managers: BTreeSet<String>,
    /// Writes to paths that contain this text fail. With a space at its end, writes to paths that end with it fail.
    broken: Option<String>,
    /// Writes to paths that contain this text fail after this number of writes.
    cut: Option<(String, usize)>,
    /// Reads of paths that contain this text are forbidden.
    hidden: Option<String>,
    /// A namespace that is being deleted, where no object can be created.
    terminating: Option<String>,
    /// Objects with pods that never terminate. They disappear only after a deletion in the background.
    waiting: Vec<String>,
    made: u32,
}

/// The API server.
pub(super) struct Api {
    pub(super) client: Client,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Api {
    pub(super) fn start() -> Self {
        let (service, handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let state = Arc::<Mutex<State>>::default();
        let serving = tokio::spawn(serve(handle, Arc::clone(&state)));
        let api = Self {
            client: Client::new(service, "cinder-csi"),
            state,
            serving,
        };
        api.put(
            "/api/v1/namespaces/kube-system",
            json!({"metadata": {"name": "kube-system", "uid": "cluster-uid"}}),
        );
        api
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn put(&self, path: &str, object: Value) {
        self.state().objects.insert(path.to_owned(), object);
    }

    /// The paths of a driver's objects.
    pub(super) fn paths_of(&self, driver: &str) -> Vec<String> {
        let is_of = |object: &Value| object["metadata"]["labels"]["csi.openstack.org/instance"] == driver;
        let state = self.state();
        let all = state.objects.iter().filter(|(_, object)| is_of(object));
        all.map(|(path, _)| path.clone()).collect()
    }

    /// The paths of all objects except events.
    pub(super) fn paths(&self) -> Vec<String> {
        let state = self.state();
        let paths = state.objects.keys().filter(|path| !path.contains("/events/"));
        paths.cloned().collect()
    }

    pub(super) fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    pub(super) fn change(&self, path: &str, pointer: &str, value: Value) {
        let mut state = self.state();
        let field = state
            .objects
            .get_mut(path)
            .and_then(|object| object.pointer_mut(pointer));
        *field.unwrap_or_else(|| panic!("{path} has no {pointer}")) = value;
    }

    pub(super) fn remove(&self, path: &str) {
        self.state().objects.remove(path);
    }

    pub(super) fn break_writes_to(&self, part: Option<&str>) {
        self.state().broken = part.map(str::to_owned);
    }

    pub(super) fn cut_writes_to(&self, part: &str, after: usize) {
        self.state().cut = Some((part.to_owned(), after));
    }

    pub(super) fn keep_pods_of(&self, path: &str) {
        self.state().waiting.push(path.to_owned());
    }

    pub(super) fn hide(&self, part: &str) {
        self.state().hidden = Some(part.to_owned());
    }

    pub(super) fn terminate(&self, namespace: &str) {
        self.state().terminating = Some(format!("/namespaces/{namespace}/"));
    }

    /// The writes since the last call, as `METHOD path`, without events and Leases.
    pub(super) fn take_writes(&self) -> Vec<String> {
        let mut writes = self.take_all_writes();
        writes.retain(|write| !write.contains("/leases"));
        writes
    }

    /// The writes since the last call, as `METHOD path`, without events.
    pub(super) fn take_all_writes(&self) -> Vec<String> {
        let writes = std::mem::take(&mut self.state().writes);
        writes.into_iter().filter(|write| !write.contains("/events")).collect()
    }

    /// The lists since the last call, with their parameters.
    pub(super) fn take_lists(&self) -> Vec<String> {
        std::mem::take(&mut self.state().lists)
    }

    /// The paths of the reads since the last call.
    pub(super) fn take_reads(&self) -> Vec<String> {
        std::mem::take(&mut self.state().reads)
    }

    /// The field managers of the writes since the last call.
    pub(super) fn take_managers(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.state().managers)
    }

    /// All events, as `Normal Reason`.
    pub(super) fn kinds_of_events(&self) -> Vec<String> {
        let state = self.state();
        let events = state.objects.iter().filter(|(path, _)| path.contains("/events/"));
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .map(|(_, event)| format!("{} {}", word(&event["type"]), word(&event["reason"])))
            .collect()
    }

    /// The reasons and notes of all events.
    pub(super) fn events(&self) -> Vec<String> {
        let state = self.state();
        let events = state.objects.iter().filter(|(path, _)| path.contains("/events/"));
        events
            .map(|(_, event)| format!("{}: {}", event["reason"], event["note"]))
            .collect()
    }
}

async fn serve(mut handle: Handle, state: Arc<Mutex<State>>) {
    while let Some((request, send)) = handle.next_request().await {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.expect("a body");
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let (code, answer) = state.lock().answer(&head.method, head.uri.path(), &query, &body);
        let response = Response::builder()
            .status(code)
            .body(Body::from(answer.to_string().into_bytes()));
        send.send_response(response.expect("a response"));
    }
}

/// The managed fields that the API server records for a write of the operator, limited to annotations and labels.
fn record(operation: &str, body: &Value) -> Value {
    let names = |map: &str| -> Value {
        let names = body["metadata"][map].as_object().into_iter().flatten();
        names
            .filter(|(_, value)| !value.is_null())
            .map(|(name, _)| (format!("f:{name}"), json!({})))
            .collect()
    };
    let fields = json!({"f:metadata": {"f:annotations": names("annotations"), "f:labels": names("labels")}});
    json!({"manager": FIELD_MANAGER, "operation": operation, "fieldsV1": fields})
}

/// Copies the recorded annotations and labels from one object to another.
fn migrate(object: &mut Value, other: &Value, record: &Value) {
    for map in ["annotations", "labels"] {
        let names = record["fieldsV1"]["f:metadata"][format!("f:{map}")].as_object();
        for name in names.into_iter().flatten().map(|(name, _)| &name[2..]) {
            object["metadata"][map][name] = other["metadata"][map][name].clone();
        }
    }
}

/// The name of a namespaced object in the list of all namespaces at `path`.
fn below_namespace<'a>(key: &'a str, path: &str) -> Option<&'a str> {
    let (group, plural) = path.rsplit_once('/')?;
    let (_, rest) = key.strip_prefix(group)?.strip_prefix("/namespaces/")?.split_once('/')?;
    rest.strip_prefix(plural)?.strip_prefix('/')
}

/// The label selector of a list.
fn selector_of(query: &str) -> String {
    let mut parameters = query.split('&').filter_map(|one| one.strip_prefix("labelSelector="));
    let codes = [
        ("%2F", "/"),
        ("%3D", "="),
        ("%2C", ","),
        ("%28", "("),
        ("%29", ")"),
        ("+", " "),
        ("%20", " "),
    ];
    let text = parameters.next().unwrap_or_default().to_owned();
    codes
        .iter()
        .fold(text, |text, (code, character)| text.replace(code, character))
}

/// Whether labels match a selector with names, equalities and sets of values.
fn is_selected(labels: &Value, selector: &str) -> bool {
    let mut terms = vec![String::new()];
    let mut is_in_set = false;
    for character in selector.chars() {
        is_in_set = (is_in_set || character == '(') && character != ')';
        if character == ',' && !is_in_set {
            terms.push(String::new());
        } else if let Some(term) = terms.last_mut() {
            term.push(character);
        }
    }
    let is_met = |term: &str| match (term.split_once(" in ("), term.split_once('=')) {
        (Some((name, values)), _) => {
            let mut values = values.trim_end_matches(')').split(',');
            values.any(|value| labels[name] == value)
        }
        (None, Some((name, value))) => labels[name] == value,
        (None, None) => term.is_empty() || labels[term].is_string(),
    };
    terms.iter().all(|term| is_met(term))
}

/// The rights of the operator in the namespace of another installation.
static ADOPTION_RULES: LazyLock<Vec<PolicyRule>> = LazyLock::new(|| {
    let file = include_str!("../../../../config/rbac/adoption/role.yaml");
    let (role, _) = file.split_once("\n---\n").expect("a Role and its binding");
    let role: Role = serde_yaml::from_str(role).expect("a Role");
    role.rules.expect("rules")
});

/// Whether the shipped role permits a request in the namespace kube-system. Other requests are permitted.
fn is_permitted(method: &Method, path: &str) -> bool {
    let Some((group, rest)) = path.split_once("/namespaces/kube-system/") else {
        return true;
    };
    let group = group.strip_prefix("/apis/").and_then(|group| group.split('/').next());
    let (resource, name) = rest
        .split_once('/')
        .map_or((rest, None), |(resource, name)| (resource, Some(name)));
    let verb = match (method.as_str(), name) {
        ("GET", None) => "list",
        ("GET", Some(_)) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        _ => "delete",
    };
    let has = |list: &Option<Vec<String>>, item: &str| list.iter().flatten().any(|listed| listed == item);
    ADOPTION_RULES.iter().any(|rule| {
        has(&rule.api_groups, group.unwrap_or_default())
            && has(&rule.resources, resource)
            && rule.verbs.iter().any(|permitted| permitted == verb)
            && (rule.resource_names.is_none() || name.is_some_and(|name| has(&rule.resource_names, name)))
    })
}

fn refusal(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": format!("{reason} by the test")});
    (code, status)
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, query: &str, body: &Value) -> (u16, Value) {
        if *method == Method::GET {
            self.reads.push(path.to_owned());
        }
        if path == "/version" {
            let minor = self.objects.get(path).cloned().unwrap_or_else(|| json!("36"));
            let version = json!({"major": "1", "minor": minor, "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
            return (200, version);
        }
        // The object at that path is the status of every review.
        if path.ends_with("/subjectaccessreviews") {
            let mut review = body.clone();
            review["status"] = self.objects.get(path).cloned().unwrap_or_default();
            return (201, review);
        }
        if *method != Method::GET {
            self.writes.push(format!("{method} {path}"));
            let parameters = query.split('&').filter_map(|one| one.strip_prefix("fieldManager="));
            self.managers.extend(parameters.map(str::to_owned));
            if self
                .broken
                .as_ref()
                .is_some_and(|broken| format!("{path} ").contains(broken.as_str()))
            {
                return refusal(500, "InternalError");
            }
        }
        if let Some((_, left)) = self
            .cut
            .as_mut()
            .filter(|(part, _)| *method != Method::GET && path.contains(part.as_str()))
        {
            if *left == 0 {
                return refusal(500, "InternalError");
            }
            *left -= 1;
        }
        let is_hidden = |hidden: &String| path.contains(hidden.as_str());
        if *method == Method::GET && self.hidden.as_ref().is_some_and(is_hidden) || !is_permitted(method, path) {
            return refusal(403, "Forbidden");
        }
        if body["reclaimPolicy"] == "Bogus" {
            return refusal(422, "Invalid");
        }
        // A dry run changes no object.
        if query.contains("dryRun") {
            self.writes.pop();
            return (200, body.clone());
        }
        match *method {
            Method::GET => self.read(path, query),
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{path}/{name}");
                if self
                    .terminating
                    .as_ref()
                    .is_some_and(|part| path.contains(part.as_str()))
                {
                    let (code, mut status) = refusal(403, "Forbidden");
                    status["details"] = json!({"causes": [{"reason": "NamespaceTerminating"}]});
                    return (code, status);
                }
                if self.objects.contains_key(&path) {
                    return refusal(409, "AlreadyExists");
                }
                (201, self.store(&path, body))
            }
            Method::PUT => match self.objects.get(path) {
                None => refusal(404, "NotFound"),
                Some(there) if there["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] => {
                    refusal(409, "Conflict")
                }
                Some(_) => (200, self.store(path, body)),
            },
            Method::PATCH => self.patch(path, body),
            Method::DELETE => self.delete(path, body),
            _ => refusal(405, "MethodNotAllowed"),
        }
    }

    /// Stores an object under a new version.
    fn store(&mut self, path: &str, body: &Value) -> Value {
        self.made += 1;
        let mut object = body.clone();
        object["metadata"]["resourceVersion"] = json!(self.made.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn read(&mut self, path: &str, query: &str) -> (u16, Value) {
        if let Some(object) = self.objects.get(path) {
            return (200, object.clone());
        }
        let is_whole = path.ends_with("/nodes") || path.ends_with("/storageclasses");
        let is_list = is_whole || query.contains("labelSelector") || query.contains("limit");
        if !is_list {
            return refusal(404, "NotFound");
        }
        self.lists.push(format!("{path}?{query}"));
        let is_listed = |(key, object): &(&String, &Value)| {
            let below = key.strip_prefix(path).and_then(|rest| rest.strip_prefix('/'));
            let below = below.or_else(|| below_namespace(key, path));
            below.is_some_and(|rest| !rest.contains('/'))
                && is_selected(&object["metadata"]["labels"], &selector_of(query))
        };
        // As in real lists, items have no kind.
        let bare = |(_, object): (&String, &Value)| {
            let mut object = object.clone();
            object.as_object_mut().into_iter().for_each(|fields| {
                fields.remove("kind");
                fields.remove("apiVersion");
            });
            object
        };
        let items: Vec<Value> = self.objects.iter().filter(is_listed).map(bare).collect();
        // A cluster without snapshots does not serve their kinds.
        let has_snapshots = self.objects.contains_key("/apis/snapshot.storage.k8s.io/v1");
        if items.is_empty() && path.contains("snapshot.storage.k8s.io") && !has_snapshots {
            return refusal(404, "NotFound");
        }
        (
            200,
            json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}),
        )
    }

    fn delete(&mut self, path: &str, body: &Value) -> (u16, Value) {
        if body["propagationPolicy"] == "Foreground"
            && self.waiting.iter().any(|waiting| waiting == path)
            && let Some(object) = self.objects.get_mut(path)
        {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
            return (200, object.clone());
        }
        match self.objects.remove(path) {
            Some(object) => (200, object),
            None => refusal(404, "NotFound"),
        }
    }

    fn patch(&mut self, path: &str, body: &Value) -> (u16, Value) {
        if let Some(path) = path.strip_suffix("/status") {
            let Some(object) = self.objects.get_mut(path) else {
                return refusal(404, "NotFound");
            };
            object["status"] = body["status"].clone();
            return (200, object.clone());
        }
        if path == DRIVER {
            let Some(object) = self.objects.get_mut(path) else {
                return refusal(404, "NotFound");
            };
            for part in ["finalizers", "annotations"] {
                if let Some(wanted) = body["metadata"].get(part) {
                    json_patch::merge(&mut object["metadata"][part], wanted);
                }
            }
            return (200, object.clone());
        }
        if let Some(object) = self.objects.get_mut(path).filter(|_| body.get("kind").is_none()) {
            // A merge patch of replicas, annotations and labels; other fields are not implemented.
            if let Some(replicas) = body.pointer("/spec/replicas") {
                object["spec"]["replicas"] = replicas.clone();
            }
            for map in ["annotations", "labels"] {
                for (key, value) in body["metadata"][map].as_object().into_iter().flatten() {
                    object["metadata"][map][key] = value.clone();
                }
                if let Some(there) = object["metadata"][map].as_object_mut() {
                    there.retain(|_, value| !value.is_null());
                }
            }
            if let Some(managers) = object["metadata"]["managedFields"].as_array_mut() {
                managers.push(record("Update", body));
            }
            return (200, object.clone());
        }
        self.made += 1;
        let (uid, status) = match self.objects.get(path) {
            Some(there) => (there["metadata"]["uid"].clone(), there["status"].clone()),
            None => (json!(format!("uid-{}", self.made)), Value::Null),
        };
        let mut object = body.clone();
        object["metadata"]["uid"] = uid;
        let mut managers = vec![record("Apply", body)];
        // Annotations and labels of other field managers remain.
        if let Some(there) = self.objects.get(path) {
            let kept = there["metadata"]["managedFields"].as_array().into_iter().flatten();
            let is_other = |entry: &&Value| entry["manager"] != FIELD_MANAGER || entry["operation"] != "Apply";
            managers.extend(kept.filter(is_other).cloned());
            for entry in &managers[1..] {
                migrate(&mut object, there, entry);
            }
        }
        object["metadata"]["managedFields"] = json!(managers);
        object["status"] = status;
        self.objects.insert(path.to_owned(), object.clone());
        (200, object)
    }
}
