//! What somebody needs who helps: objects, events and logs, without secrets.
//!
//! Of a Secret only its name and the names of its keys are kept, and out of URLs passwords are taken, such as that of a proxy in a
//! container's environment. Logs of operator and driver hold no secrets by construction.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use cinder_csi_crds::{CinderCSIDriver, INSTANCE_LABEL};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    events::v1::Event,
    storage::v1::{CSINode, VolumeAttachment},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, LogParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::PluginError;
use crate::{operands::KINDS, resolve::namespace_of};

/// Lines of each container's log.
const LOG_LINES: i64 = 2_000;
/// Bytes of each container's log.
const LOG_BYTES: i64 = 4 << 20;
/// Objects of a kind; a cluster has more nodes than anybody reads.
const MOST_OBJECTS: u32 = 500;
/// Pods whose logs are kept: every controller and operator, and some nodes.
const MOST_PODS: usize = 20;

/// Writes everything below `directory`, which must not exist. What cannot be read is noted and does not end the work: whoever
/// asks for help seldom has all rights. Returns what is to be told.
pub(super) async fn gather(client: &Client, namespace: &str, directory: &Path) -> Result<String, PluginError> {
    fs::create_dir(directory).map_err(PluginError::write(directory.display()))?;
    let mut bundle = Bundle {
        client,
        directory,
        files: 0,
        missing: Vec::new(),
    };
    bundle
        .objects::<CinderCSIDriver>("cindercsidrivers", Api::all(client.clone()), "")
        .await?;
    let namespaces = namespaces(client, namespace).await;
    for kind in KINDS {
        if !kind.namespaced {
            bundle.operands(&kind.api_resource(), None).await?;
            continue;
        }
        for place in &namespaces {
            bundle.operands(&kind.api_resource(), Some(place)).await?;
        }
    }
    bundle.objects::<Node>("nodes", Api::all(client.clone()), "").await?;
    bundle
        .objects::<CSINode>("csinodes", Api::all(client.clone()), "")
        .await?;
    bundle
        .objects::<VolumeAttachment>("volumeattachments", Api::all(client.clone()), "")
        .await?;
    bundle
        .objects::<Event>("events-of-drivers", Api::namespaced(client.clone(), "default"), "")
        .await?;
    for place in &namespaces {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &place.name);
        bundle.objects(&format!("pods{}", place.suffix), pods, "").await?;
        let events: Api<Event> = Api::namespaced(client.clone(), &place.name);
        bundle.objects(&format!("events{}", place.suffix), events, "").await?;
        bundle.logs(&place.name).await?;
    }
    bundle.finish()
}

/// A namespace that is looked at, and what the names of its files end in.
struct Place {
    name: String,
    suffix: String,
}

/// The operator's namespace, and those of drivers that run elsewhere.
async fn namespaces(client: &Client, operators: &str) -> Vec<Place> {
    let mut places = vec![Place {
        name: operators.to_owned(),
        suffix: String::new(),
    }];
    let drivers: Api<CinderCSIDriver> = Api::all(client.clone());
    // A list that fails is noted with the drivers already.
    let drivers = drivers.list(&ListParams::default()).await.map(|list| list.items);
    for driver in drivers.unwrap_or_default() {
        let name = namespace_of(&driver, operators);
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
}

impl Bundle<'_> {
    async fn objects<K>(&mut self, name: &str, api: Api<K>, labels: &str) -> Result<(), PluginError>
    where
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        let params = ListParams::default().limit(MOST_OBJECTS).labels(labels);
        match api.list(&params).await {
            Ok(list) => {
                let items: Vec<Value> = list.items.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
                self.write(&PathBuf::from(format!("{name}.json")), items)
            }
            Err(error) => {
                self.missing.push(format!("{name}: {error}"));
                Ok(())
            }
        }
    }

    /// The objects that the operator made of one kind.
    async fn operands(&mut self, resource: &ApiResource, place: Option<&Place>) -> Result<(), PluginError> {
        let api: Api<DynamicObject> = match place {
            Some(place) => Api::namespaced_with(self.client.clone(), &place.name, resource),
            None => Api::all_with(self.client.clone(), resource),
        };
        let suffix = place.map_or("", |place| place.suffix.as_str());
        self.objects(&format!("operands-{}{suffix}", resource.plural), api, INSTANCE_LABEL)
            .await
    }

    async fn logs(&mut self, namespace: &str) -> Result<(), PluginError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        // A list that fails is noted with the pods already.
        let Ok(list) = pods.list(&ListParams::default().limit(MOST_OBJECTS)).await else {
            return Ok(());
        };
        for pod in chosen(list.items) {
            for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
                for previous in [false, true] {
                    self.log(&pods, &pod.name_any(), &container.name, previous).await?;
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
            // Most containers have never been started anew.
            Err(_) if previous => Ok(()),
            Err(error) => {
                self.missing.push(format!("log of {container} in {pod}: {error}"));
                Ok(())
            }
        }
    }

    fn write(&mut self, name: &Path, mut items: Vec<Value>) -> Result<(), PluginError> {
        items.iter_mut().for_each(redact);
        let text = format!("{:#}\n", json!({"items": items}));
        self.put(&self.directory.join(name), text.as_bytes())
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
        let mut told = format!("{} files are in {place}", self.files);
        if !self.missing.is_empty() {
            let text = self.missing.join("\n");
            let path = self.directory.join("not-read.txt");
            self.put(&path, format!("{text}\n").as_bytes())?;
            let _ = write!(
                told,
                "; {} things could not be read, see {place}/not-read.txt",
                self.missing.len()
            );
        }
        told.push_str(". Secrets are left out; look through the rest before you give it away.");
        Ok(told)
    }
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
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            // Holds a copy of the object as somebody applied it.
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    hide_passwords(object);
}

/// URLs may hold a password: that of a proxy does.
fn hide_passwords(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some((scheme, rest)) = text.split_once("://")
                && let Some((user, place)) = rest.split_once('@')
                && !user.contains('/')
            {
                *text = format!("{scheme}://(left out)@{place}");
            }
        }
        Value::Array(values) => values.iter_mut().for_each(hide_passwords),
        Value::Object(fields) => fields.values_mut().for_each(hide_passwords),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
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
        ]}]}});

        redact(&mut pod);

        let env = &pod["spec"]["containers"][0]["env"];
        assert_eq!(env[0]["value"], "http://(left out)@proxy.example.org:3128");
        assert_eq!(env[1]["value"], "169.254.169.254");
        assert_eq!(env[2]["value"], "https://example.org/a@b");
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
