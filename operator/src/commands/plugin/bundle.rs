// SPDX-License-Identifier: Apache-2.0
//! What a helper needs: the objects of the drivers with their events, and the logs of their pods, without secrets.
//!
//! Of a Secret only its name and the names of its keys are kept, and out of URLs passwords are taken, such as that of a proxy in a
//! container's environment. Logs of operator and driver hold no secrets by construction.

use std::{fmt::Write as _, fs, path::Path};

use cinder_csi_crds::{CinderCSIDriver, INSTANCE_LABEL};
use cinder_operator_core::{
    cluster::{KINDS, Kind},
    resolve::namespace_of,
};
use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, LogParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::PluginError;
use crate::kubernetes::{GuardedApi, answer};

/// Lines of each container's log.
const LOG_LINES: i64 = 2_000;
/// Bytes of each container's log.
const LOG_BYTES: i64 = 4 << 20;
/// Objects of a kind; a cluster has more pods than a reader looks at.
const MOST_OBJECTS: u32 = 500;
/// Pods whose logs are kept: every controller and operator, and some nodes.
const MOST_PODS: usize = 20;

/// Writes everything below `directory`, which must not exist. What cannot be read is noted and does not end the work: a user who
/// asks for help seldom has all rights. Returns what is reported.
pub(super) async fn gather(client: &Client, namespace: &str, directory: &Path) -> Result<String, PluginError> {
    fs::create_dir(directory).map_err(PluginError::write(directory.display()))?;
    let mut bundle = Bundle {
        client,
        directory,
        files: 0,
        missing: Vec::new(),
        not_installed: Vec::new(),
    };
    let drivers: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
    let drivers = bundle.objects("cindercsidrivers", drivers, "").await?;
    let places = places(&drivers, namespace);
    for kind in KINDS {
        if !kind.namespaced {
            bundle.operands(kind, None).await?;
            continue;
        }
        for place in &places {
            bundle.operands(kind, Some(place)).await?;
        }
    }
    // Events about objects without a namespace.
    let events: GuardedApi<Event> = GuardedApi::namespaced(client.clone(), "default");
    bundle.objects("events-of-drivers", events, "").await?;
    for place in &places {
        let events: GuardedApi<Event> = GuardedApi::namespaced(client.clone(), &place.name);
        bundle.objects(&format!("events{}", place.suffix), events, "").await?;
        let pods: GuardedApi<Pod> = GuardedApi::namespaced(client.clone(), &place.name);
        let all = bundle.objects(&format!("pods{}", place.suffix), pods, "").await?;
        // A log is text.
        let logs: Api<Pod> = Api::namespaced(client.clone(), &place.name);
        bundle.logs(&logs, all).await?;
    }
    bundle.finish()
}

/// A namespace that is read, and what the names of its files end in.
struct Place {
    name: String,
    suffix: String,
}

/// The operator's namespace, and those of drivers that run elsewhere.
fn places(drivers: &[CinderCSIDriver], operators: &str) -> Vec<Place> {
    let mut places = vec![Place {
        name: operators.to_owned(),
        suffix: String::new(),
    }];
    for driver in drivers {
        let name = namespace_of(driver, operators);
        if places.iter().all(|place| place.name != name) {
            places.push(Place {
                name: name.to_owned(),
                suffix: format!("-{name}"),
            });
        }
    }
    places
}

struct Bundle<'a> {
    client: &'a Client,
    directory: &'a Path,
    files: usize,
    missing: Vec<String>,
    /// Kinds that this cluster does not have.
    not_installed: Vec<&'static str>,
}

impl Bundle<'_> {
    async fn objects<K>(&mut self, name: &str, api: GuardedApi<K>, labels: &str) -> Result<Vec<K>, PluginError>
    where
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        match list(&api, labels, name, &mut self.missing).await {
            Ok(items) => {
                self.write(name, &items)?;
                Ok(items)
            }
            Err(error) => {
                self.missing.push(format!("{name}: {}", answer(&error)));
                Ok(Vec::new())
            }
        }
    }

    /// The objects that the operator made of one kind.
    async fn operands(&mut self, kind: &'static Kind, place: Option<&Place>) -> Result<(), PluginError> {
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
            Ok(items) => self.write(&name, &items)?,
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
        for pod in chosen(pods) {
            for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
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
        match pods.logs(pod, &params).await {
            Ok(text) => {
                let name = if previous { "previous" } else { "current" };
                let path = self.directory.join(format!("logs/{pod}/{container}.{name}.log"));
                self.put(&path, text.as_bytes())
            }
            // Most containers have never been restarted.
            Err(_) if previous => Ok(()),
            Err(error) => {
                self.missing
                    .push(format!("log of {container} in {pod}: {}", answer(&error)));
                Ok(())
            }
        }
    }

    fn write(&mut self, name: &str, items: &[impl Serialize]) -> Result<(), PluginError> {
        let mut items: Vec<Value> = items.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        items.iter_mut().for_each(redact);
        let text = format!("{:#}\n", json!({"items": items}));
        self.put(&self.directory.join(format!("{name}.json")), text.as_bytes())
    }

    fn put(&mut self, path: &Path, content: &[u8]) -> Result<(), PluginError> {
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
            let text = self.missing.join("\n");
            let path = self.directory.join("not-read.txt");
            self.put(&path, format!("{text}\n").as_bytes())?;
            let _ = write!(summary, "; what could not be read is named in {place}/not-read.txt");
        }
        summary.push_str(". Secrets are left out; look through the rest before you give it away.");
        Ok(summary)
    }
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

/// The pods whose logs tell most: those in trouble first, those on nodes last.
fn chosen(mut pods: Vec<Pod>) -> Vec<Pod> {
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

/// Takes out what the API server and kubectl note about an object for themselves.
pub(super) fn without_bookkeeping(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            // Holds a copy of the object as it was applied.
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
}

/// Takes out what must not leave the cluster.
fn redact(object: &mut Value) {
    const GONE: &str = "(left out)";
    if object["kind"] == "Secret" || object.get("data").is_some() && object.get("type").is_some() {
        for field in ["data", "stringData"] {
            if let Some(data) = object.get_mut(field).and_then(Value::as_object_mut) {
                data.values_mut().for_each(|value| *value = json!(GONE));
            }
        }
    }
    without_bookkeeping(object);
    hide_passwords(object);
}

/// Removes users and passwords from all URLs of all texts: those of proxies have them.
fn hide_passwords(value: &mut Value) {
    match value {
        Value::String(text) if text.contains("://") => *text = without_users(text),
        Value::Array(values) => values.iter_mut().for_each(hide_passwords),
        Value::Object(fields) => fields.values_mut().for_each(hide_passwords),
        _ => {}
    }
}

fn without_users(text: &str) -> String {
    let mut parts = text.split("://");
    let mut hidden = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let shown = user_end(part).map_or_else(|| part.to_owned(), |end| format!("(left out){}", &part[end..]));
        hidden.push_str("://");
        hidden.push_str(&shown);
    }
    hidden
}

/// The position of the `@` after the user and password of a URL, which begins after its scheme.
fn user_end(rest: &str) -> Option<usize> {
    let end_of = |text: &str, ends: &[char]| text.find(ends).unwrap_or(text.len());
    let url = &rest[..end_of(rest, &[' ', '\t', '\r', '\n', '"', '\'', ','])];
    let authority = &url[..end_of(url, &['/'])];
    // A slash in a password is not escaped in many configurations. Behind a colon, only a port is no password.
    let has_port = |(_, port): (&str, &str)| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_host = authority.rsplit_once(':').is_none_or(has_port) || authority.starts_with('[');
    authority.rfind('@').or_else(|| url.rfind('@').filter(|_| !is_host))
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[test]
    fn a_secret_keeps_the_names_of_its_keys_alone() {
        let mut secret = json!({
            "kind": "Secret",
            "metadata": {"name": "s", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"stringData\":{\"clouds.yaml\":\"geheim\"}}",
                "note": "kept",
            }},
            "data": {"clouds.yaml": "Z2VoZWlt"},
        });

        redact(&mut secret);

        assert_eq!(secret["data"], json!({"clouds.yaml": "(left out)"}));
        assert_eq!(secret["metadata"]["annotations"], json!({"note": "kept"}));
        assert!(!secret.to_string().contains("geheim"));
    }

    #[test]
    fn a_secret_in_a_list_without_kinds_is_known_by_its_fields() {
        let mut secret = json!({"metadata": {"name": "s"}, "type": "Opaque", "data": {"key": "Z2VoZWlt"}});

        redact(&mut secret);

        assert_eq!(secret["data"]["key"], "(left out)");
    }

    #[test]
    fn the_password_of_a_proxy_is_left_out_wherever_it_stands() {
        let mut pod = json!({"spec": {"containers": [{"env": [
            {"name": "HTTPS_PROXY", "value": "http://user:geheim@proxy.example.org:3128"},
            {"name": "NO_PROXY", "value": "169.254.169.254"},
            {"name": "URL", "value": "https://example.org/a@b"},
            {"name": "SLASH", "value": "http://user:ge/heim@proxy"},
            {"name": "PORT", "value": "http://proxy:3128/a@b"},
            {"name": "BOTH", "value": "{HTTP: \"http://a:geheim@p\", HTTPS: \"http://b:ge@heim@p:1/x\"}\nhttp://c:geheim@q"},
        ]}]}});

        redact(&mut pod);

        let env = &pod["spec"]["containers"][0]["env"];
        assert_eq!(env[0]["value"], "http://(left out)@proxy.example.org:3128");
        assert_eq!(env[1]["value"], "169.254.169.254");
        assert_eq!(env[2]["value"], "https://example.org/a@b");
        assert_eq!(env[3]["value"], "http://(left out)@proxy");
        assert_eq!(env[4]["value"], "http://proxy:3128/a@b");
        assert_eq!(
            env[5]["value"],
            "{HTTP: \"http://(left out)@p\", HTTPS: \"http://(left out)@p:1/x\"}\nhttp://(left out)@q"
        );
    }

    #[tokio::test]
    async fn kinds_that_are_not_installed_are_distinguished_from_those_that_may_not_be_read() {
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
    fn pods_in_trouble_come_first_and_those_on_nodes_last() {
        let pod = |name: &str, component: &str, ready: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"app.kubernetes.io/component": component}},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };

        let order = chosen(vec![
            pod("n-well", "node", "True"),
            pod("c-well", "controller", "True"),
            pod("n-ill", "node", "False"),
            pod("c-ill", "controller", "False"),
        ]);

        let names: Vec<String> = order.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["c-ill", "c-well", "n-ill", "n-well"]);
    }
}
