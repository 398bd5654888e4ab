// SPDX-License-Identifier: Apache-2.0
//! What a check before a migration is made of: asked of the API server page by page. What may not be read is noted and not an error.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use cinder_cloud::config::keys_of;
use cinder_operator_core::{
    class_parameters::{ClassKind, ClassParameters},
    cluster::{ClaimObject, Indexed as _, OptionalApis, Owned as _, VolumeObject, key_of},
    migration::check::{CheckFacts, CheckGap, OldContainer, PROGRAM, is_proxy},
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    core::v1::{Container, Pod, PodSpec, Secret},
};
use kube::{Api, Client, Resource, api::ObjectMeta};
use serde::Deserialize;

use super::{
    ObserveError,
    class_parameters::class_parameters,
    installation::{all, is_other, program_of},
    pages,
};
use crate::kubernetes::answer;

/// Who may do what a check needs.
const RIGHTS: &str = "`kubectl apply -k config/rbac/adoption` lets the operator read this; `kubectl cinder-csi adopt --check` reads with the \
                      rights of its user";
/// Where a `cloud.conf` is that no Secret holds.
const ON_NODES: &str = "Compare the file with the table of docs/migrate-from-cinder-csi-plugin.md";

/// A pod, as far as its in-line volumes go.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = Pod)]
struct InlinePod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: InlineSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct InlineSpec {
    #[serde(default)]
    volumes: Vec<PodVolume>,
}

#[derive(Debug, Clone, Deserialize)]
struct PodVolume {
    csi: Option<InlineSource>,
}

#[derive(Debug, Clone, Deserialize)]
struct InlineSource {
    driver: String,
}

/// Looks at all that a switch from the installation in `namespace` affected.
pub(crate) async fn adoption_check(client: &Client, driver: &str, namespace: &str, apis: OptionalApis) -> CheckFacts {
    let mut facts = CheckFacts::default();
    let classes = class_parameters(client, driver, apis).await;
    facts.classes = noted(&mut facts.gaps, "the classes of the driver", classes).unwrap_or_default();
    let shared = shared_volumes(client, driver, &mut facts).await;
    noted(&mut facts.gaps, "PersistentVolumes", shared);
    let claims = shared_claims(client, &mut facts).await;
    noted(&mut facts.gaps, "PersistentVolumeClaims", claims);
    let pods = inline_pods(client, driver, &mut facts).await;
    noted(&mut facts.gaps, "pods with in-line volumes", pods);
    let found = workloads(client, namespace).await;
    let what = format!("the workloads of namespace {namespace}");
    let workloads = noted(&mut facts.gaps, &what, found).unwrap_or_default();
    facts.containers = workloads
        .iter()
        .flat_map(|(name, spec)| containers(name, spec))
        .collect();
    configuration(client, namespace, &workloads, &mut facts).await;
    facts
}

/// What was found, or a note of why nothing was.
fn noted<T>(gaps: &mut Vec<CheckGap>, what: &str, found: Result<T, ObserveError>) -> Option<T> {
    found.map_err(|error| gaps.push(gap(what, &error))).ok()
}

fn gap(what: &str, error: &ObserveError) -> CheckGap {
    CheckGap {
        what: what.to_owned(),
        why: match error {
            ObserveError::List { source, .. } | ObserveError::Get { source, .. } => answer(source),
            other => other.to_string(),
        },
        remedy: RIGHTS,
    }
}

async fn shared_volumes(client: &Client, driver: &str, facts: &mut CheckFacts) -> Result<(), ObserveError> {
    let volumes: Api<VolumeObject> = Api::all(client.clone());
    pages(&volumes, "persistentvolumes", |page| {
        let is_ours = |volume: &&VolumeObject| volume.keep().is_some_and(|kept| kept.driver() == driver);
        for volume in page.iter().filter(|one| one.is_shared_file_system()).filter(is_ours) {
            facts.shared_volumes.add(volume.claim_or_name());
        }
        ControlFlow::Continue(())
    })
    .await
}

async fn shared_claims(client: &Client, facts: &mut CheckFacts) -> Result<(), ObserveError> {
    let is_for_claims = |class: &&ClassParameters| class.kind == ClassKind::StorageClass;
    let classes = facts.classes.iter().filter(is_for_claims);
    let classes: BTreeSet<&str> = classes.map(|class| class.name.as_str()).collect();
    let claims: Api<ClaimObject> = Api::all(client.clone());
    let shared = &mut facts.shared_claims;
    pages(&claims, "persistentvolumeclaims", |page| {
        for claim in page.iter().filter(|claim| claim.waits_for_shared_file_system(&classes)) {
            shared.add(key_of(claim.meta()));
        }
        ControlFlow::Continue(())
    })
    .await
}

async fn inline_pods(client: &Client, driver: &str, facts: &mut CheckFacts) -> Result<(), ObserveError> {
    let pods: Api<InlinePod> = Api::all(client.clone());
    pages(&pods, "pods", |page| {
        for pod in &page {
            let mut sources = pod.spec.volumes.iter().filter_map(|volume| volume.csi.as_ref());
            if sources.any(|source| source.driver == driver) {
                facts.inline_pods.add(key_of(&pod.metadata));
            }
        }
        ControlFlow::Continue(())
    })
    .await
}

/// What makes the pods of the other installation: kind, namespace and name of each, and the pods that it makes.
async fn workloads(client: &Client, namespace: &str) -> Result<Vec<(String, PodSpec)>, ObserveError> {
    let deployments: Vec<Deployment> = all(&Api::namespaced(client.clone(), namespace)).await?;
    let stateful_sets: Vec<StatefulSet> = all(&Api::namespaced(client.clone(), namespace)).await?;
    let daemon_sets: Vec<DaemonSet> = all(&Api::namespaced(client.clone(), namespace)).await?;
    let deployments = deployments.into_iter().filter_map(|one| {
        let spec = one.spec?.template.spec?;
        Some(("Deployment", one.metadata, spec))
    });
    let stateful_sets = stateful_sets.into_iter().filter_map(|one| {
        let spec = one.spec?.template.spec?;
        Some(("StatefulSet", one.metadata, spec))
    });
    let daemon_sets = daemon_sets.into_iter().filter_map(|one| {
        let spec = one.spec?.template.spec?;
        Some(("DaemonSet", one.metadata, spec))
    });
    let every = deployments.chain(stateful_sets).chain(daemon_sets);
    let others = every.filter(|(_, metadata, spec)| is_other(metadata, spec));
    Ok(others
        .map(|(kind, metadata, spec)| (format!("{kind} {}", key_of(&metadata)), spec))
        .collect())
}

fn containers(workload: &str, spec: &PodSpec) -> Vec<OldContainer> {
    let of = |container: &Container| {
        let variables = container.env.iter().flatten();
        let values: BTreeMap<&str, &str> = variables
            .filter_map(|variable| Some((variable.name.as_str(), variable.value.as_deref()?)))
            .collect();
        let words = container.command.iter().chain(&container.args).flatten();
        let words: Vec<String> = words.map(|word| expanded(word, &values)).collect();
        // The name of the program is among them where the image has no entry point.
        let named = words.iter().position(|word| word.rsplit('/').next() == Some(PROGRAM));
        OldContainer {
            workload: workload.to_owned(),
            name: container.name.clone(),
            program: if named.is_some() {
                PROGRAM
            } else {
                program_of(container)
            }
            .to_owned(),
            arguments: words.into_iter().skip(named.map_or(0, |at| at + 1)).collect(),
            proxies: values
                .keys()
                .filter(|name| is_proxy(name))
                .map(|&name| name.to_owned())
                .collect(),
        }
    };
    spec.containers.iter().map(of).collect()
}

/// As the kubelet writes the values of the environment into arguments.
fn expanded(word: &str, values: &BTreeMap<&str, &str>) -> String {
    values.iter().fold(word.to_owned(), |word, (name, value)| {
        word.replace(&format!("$({name})"), value)
    })
}

/// Whether an entry of the Secret is a file of the driver's format. Kubernetes keeps the names as they are written.
fn is_cloud_conf(key: &str) -> bool {
    std::path::Path::new(key)
        .extension()
        .is_some_and(|extension| extension == "conf")
}

/// The keys of every `cloud.conf` in the Secrets of the workloads.
async fn configuration(client: &Client, namespace: &str, workloads: &[(String, PodSpec)], facts: &mut CheckFacts) {
    let volumes = workloads.iter().flat_map(|(_, spec)| spec.volumes.iter().flatten());
    let names: BTreeSet<&str> = volumes
        .filter_map(|volume| volume.secret.as_ref()?.secret_name.as_deref())
        .collect();
    if names.is_empty() && !workloads.is_empty() {
        facts.gaps.push(CheckGap {
            what: "cloud.conf".to_owned(),
            why: "no Secret holds it: it is a file of the nodes".to_owned(),
            remedy: ON_NODES,
        });
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    for name in names {
        let place = format!("Secret {namespace}/{name}");
        let secret = match secrets.get_opt(name).await {
            Ok(secret) => secret.unwrap_or_default(),
            Err(source) => {
                facts.gaps.push(CheckGap {
                    what: format!("cloud.conf in {place}"),
                    why: answer(&source),
                    remedy: RIGHTS,
                });
                continue;
            }
        };
        for (key, value) in secret.data.iter().flatten().filter(|(key, _)| is_cloud_conf(key)) {
            match keys_of(&String::from_utf8_lossy(&value.0)) {
                Ok(keys) => facts
                    .configuration
                    .extend(keys.into_iter().map(|key| (place.clone(), key))),
                Err(error) => facts.gaps.push(CheckGap {
                    what: format!("{key} in {place}"),
                    why: error.to_string(),
                    remedy: "Correct the file",
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_arguments_of_a_container_have_the_values_of_its_environment_and_begin_after_the_program() {
        let spec = serde_json::from_value(json!({"containers": [
            {"name": "driver", "image": "mirror/other:1", "args": ["/bin/cinder-csi-plugin", "--cluster=$(CLUSTER_NAME)", "--v=$(LEVEL)"],
                "env": [{"name": "CLUSTER_NAME", "value": "kubernetes"}, {"name": "HTTPS_PROXY", "value": "http://user:secret@x"},
                    {"name": "LEVEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
            {"name": "csi-resizer", "image": "registry.k8s.io/sig-storage/csi-resizer:v1.14.0", "args": ["--timeout=3m"]},
        ]}))
        .expect("a spec");
        let found = containers("Deployment n/x", &spec);
        let mk_container = |name: &str, program: &str, arguments: &[&str], proxies: &[&str]| OldContainer {
            workload: "Deployment n/x".to_owned(),
            name: name.to_owned(),
            program: program.to_owned(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            proxies: proxies.iter().map(|&name| name.to_owned()).collect(),
        };
        assert_eq!(
            found,
            [
                mk_container(
                    "driver",
                    PROGRAM,
                    &["--cluster=kubernetes", "--v=$(LEVEL)"],
                    &["HTTPS_PROXY"]
                ),
                mk_container("csi-resizer", "csi-resizer", &["--timeout=3m"], &[]),
            ]
        );
    }
}
