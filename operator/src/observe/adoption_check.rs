// SPDX-License-Identifier: Apache-2.0
//! What a check before a migration is made of: asked of the API server page by page. What may not be read is noted and not an error.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use cinder_cloud::config::keys_of;
use cinder_operator_core::{
    class_parameters::{ClassKind, ClassParameters},
    cluster::{ClaimObject, GuardedObject, Indexed as _, OptionalApis, Owned as _, VolumeObject, key_of},
    migration::check::{CheckFacts, CheckGap, OldContainer, PROGRAM, is_proxy},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource, api::ObjectMeta};
use serde::Deserialize;

use super::{
    ObserveError,
    class_parameters::class_parameters,
    elsewhere::{installations_elsewhere, is_elsewhere},
    pages,
    references::{add_volume, node_labels, secret_references},
    workloads::{ContainerParts, PodParts, Workload, is_other, is_ours, workload_kinds, workloads},
};
use crate::kubernetes::{GuardedApi, SecretError, answer, get_secret, is_forbidden};

/// Who may do what a check needs.
const RIGHTS: &str = "`kubectl apply -k config/rbac/adoption` lets the operator read this; `kubectl cinder-csi adopt --check` reads with the \
                      rights of its user";
/// Where a `cloud.conf` is that no Secret holds.
const ON_NODES: &str = "Compare the file with the table of docs/migrate-from-cinder-csi-plugin.md";

/// The remedy of a request that failed.
const REPEAT: &str = "Fix the cause, and repeat the check";
/// The remedy of a file that cannot be read.
const CORRECT: &str = "Correct the file";
/// The most gaps of a report that are about single objects.
const MOST_GAPS: usize = 50;
/// The remedy of an object of unknown content.
const BY_HAND: &str = "Look at the object: it may be one of those that a migration affects";

/// A pod, as far as its in-line volumes go.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = Pod)]
pub(super) struct InlinePod {
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

/// Reads all that a switch from the installation in `namespace` affected. `with_workloads` adds the workloads of other namespaces, which
/// the operator has no right to list.
pub(crate) async fn adoption_check(
    client: &Client,
    driver: &str,
    namespace: &str,
    apis: OptionalApis,
    with_workloads: bool,
) -> CheckFacts {
    let mut facts = CheckFacts::default();
    let classes = class_parameters(client, driver, apis).await;
    facts.classes = noted(&mut facts.gaps, "the classes of the driver", classes).unwrap_or_default();
    let listed = volumes(client, driver, &mut facts).await;
    noted(&mut facts.gaps, "PersistentVolumes", listed);
    let (secrets, zones, gaps) = (&mut facts.secrets, &mut facts.zone_labels, &mut facts.gaps);
    let referred = secret_references(client, driver, apis, secrets, gaps).await;
    noted(gaps, "Secrets of classes and snapshots", referred);
    let labels = node_labels(client, zones, gaps).await;
    noted(gaps, "zone labels of nodes", labels);
    let claims = shared_claims(client, &mut facts).await;
    noted(&mut facts.gaps, "PersistentVolumeClaims", claims);
    let pods = inline_pods(client, driver, &mut facts).await;
    noted(&mut facts.gaps, "pods with in-line volumes", pods);
    let others = installations_elsewhere(client, namespace).await;
    let others = noted(&mut facts.gaps, "installations in other namespaces", others);
    let mut others: BTreeSet<String> = others.unwrap_or_default().into_iter().collect();
    if with_workloads {
        others.extend(workloads_elsewhere(client, namespace, &mut facts.gaps).await);
    }
    facts.elsewhere = others.into_iter().collect();
    let found = old_workloads(client, namespace).await;
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

/// The objects of a page that decode. The others are noted, as far as a report of this length has a place for them.
pub(super) fn readable<K>(kind: &str, page: Vec<GuardedObject<K>>, gaps: &mut Vec<CheckGap>) -> Vec<K> {
    let decoded = page.into_iter().filter_map(|object| match object.0 {
        Ok(object) => Some(object),
        Err(undecodable) if gaps.len() < MOST_GAPS => {
            gaps.push(CheckGap {
                what: format!("{kind} {}", undecodable.key()),
                why: undecodable.to_string(),
                remedy: BY_HAND,
            });
            None
        }
        Err(_) => None,
    });
    decoded.collect()
}

fn gap(what: &str, error: &ObserveError) -> CheckGap {
    CheckGap {
        what: what.to_owned(),
        why: match error {
            ObserveError::List { source, .. } | ObserveError::Get { source, .. } => answer(source),
            other => other.to_string(),
        },
        remedy: match error {
            ObserveError::List { source, .. } | ObserveError::Get { source, .. } if is_forbidden(source) => RIGHTS,
            _ => REPEAT,
        },
    }
}

async fn volumes(client: &Client, driver: &str, facts: &mut CheckFacts) -> Result<(), ObserveError> {
    let volumes: GuardedApi<VolumeObject> = GuardedApi::all(client.clone());
    pages(&volumes, "persistentvolumes", |page| {
        let page = readable("PersistentVolume", page, &mut facts.gaps);
        let is_ours = |volume: &&VolumeObject| volume.keep().is_some_and(|kept| kept.driver() == driver);
        for volume in page.iter().filter(is_ours) {
            if volume.is_shared_file_system() {
                facts.shared_volumes.add(volume.claim_or_name());
            }
            add_volume(volume, &mut facts.secrets, &mut facts.zone_labels);
        }
        ControlFlow::Continue(())
    })
    .await
}

async fn shared_claims(client: &Client, facts: &mut CheckFacts) -> Result<(), ObserveError> {
    let is_for_claims = |class: &&ClassParameters| class.kind == ClassKind::StorageClass;
    let classes = facts.classes.iter().filter(is_for_claims);
    let classes: BTreeSet<&str> = classes.map(|class| class.name.as_str()).collect();
    let claims: GuardedApi<ClaimObject> = GuardedApi::all(client.clone());
    let (shared, gaps) = (&mut facts.shared_claims, &mut facts.gaps);
    pages(&claims, "persistentvolumeclaims", |page| {
        let page = readable("PersistentVolumeClaim", page, gaps);
        for claim in page.iter().filter(|claim| claim.waits_for_shared_file_system(&classes)) {
            shared.add(key_of(claim.meta()));
        }
        ControlFlow::Continue(())
    })
    .await
}

async fn inline_pods(client: &Client, driver: &str, facts: &mut CheckFacts) -> Result<(), ObserveError> {
    let pods: GuardedApi<InlinePod> = GuardedApi::all(client.clone());
    pages(&pods, "pods", |page| {
        let page = readable("Pod", page, &mut facts.gaps);
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

/// Lists the workloads of other installations outside `namespace` that have or want pods.
async fn workloads_elsewhere(client: &Client, namespace: &str, gaps: &mut Vec<CheckGap>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (kind, resource) in workload_kinds() {
        let all: GuardedApi<Workload> = GuardedApi::all_with(client.clone(), &resource);
        let listed = pages(&all, &resource.plural, |page| {
            let page = page.into_iter();
            let page = page.filter(|one| is_elsewhere(one.meta(), namespace) && !is_ours(one.meta()));
            let others = readable(kind, page.collect(), gaps).into_iter();
            let others = others.filter(|one| one.spec.replicas != Some(0));
            let others = others.filter(|one| is_other(&one.metadata, &one.spec.template.spec));
            found.extend(others.map(|one| format!("{kind} {}", key_of(&one.metadata))));
            ControlFlow::Continue(())
        });
        let listed = listed.await;
        noted(gaps, &format!("the {} of other namespaces", resource.plural), listed);
    }
    found
}

/// What makes the pods of the other installation: kind, namespace and name of each, and the pods that it makes.
async fn old_workloads(client: &Client, namespace: &str) -> Result<Vec<(String, PodParts)>, ObserveError> {
    let all = workloads(client, namespace).await?.into_iter();
    let others = all.filter(|(_, one)| is_other(&one.metadata, &one.spec.template.spec));
    Ok(others
        .map(|(kind, one)| (format!("{kind} {}", key_of(&one.metadata)), one.spec.template.spec))
        .collect())
}

fn containers(workload: &str, spec: &PodParts) -> Vec<OldContainer> {
    let of = |container: &ContainerParts| {
        let values = container.variables();
        let words: Vec<String> = container.words().map(|word| expanded(word, &values)).collect();
        // The name of the program is among them where the image has no entry point.
        let named = words.iter().position(|word| word.rsplit('/').next() == Some(PROGRAM));
        OldContainer {
            workload: workload.to_owned(),
            name: container.name.clone(),
            program: if named.is_some() { PROGRAM } else { container.program() }.to_owned(),
            arguments: words.into_iter().skip(named.map_or(0, |at| at + 1)).collect(),
            proxies: values
                .keys()
                .filter(|name| is_proxy(name))
                .map(|&name| name.to_owned())
                .collect(),
        }
    };
    spec.containers().map(of).collect()
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
async fn configuration(client: &Client, namespace: &str, workloads: &[(String, PodParts)], facts: &mut CheckFacts) {
    let names: BTreeSet<&str> = workloads.iter().flat_map(|(_, spec)| spec.secrets()).collect();
    if names.is_empty() && !workloads.is_empty() {
        facts.gaps.push(CheckGap {
            what: "cloud.conf".to_owned(),
            why: "no Secret holds it: it is a file of the nodes".to_owned(),
            remedy: ON_NODES,
        });
    }
    for name in names {
        let place = format!("Secret {namespace}/{name}");
        let data = match get_secret(client, namespace, name).await {
            Ok(data) => data.unwrap_or_default(),
            Err(error) => {
                facts.gaps.push(CheckGap {
                    what: format!("cloud.conf in {place}"),
                    why: error.to_string(),
                    remedy: match error {
                        SecretError::Refused(_) => RIGHTS,
                        SecretError::NoAnswer => REPEAT,
                        SecretError::Undecodable(_) => CORRECT,
                    },
                });
                continue;
            }
        };
        for key in data.keys().filter(|key| is_cloud_conf(key)) {
            let keys = data.get(key).map_err(|error| error.to_string()).and_then(|bytes| {
                keys_of(&String::from_utf8_lossy(&bytes.unwrap_or_default())).map_err(|error| error.to_string())
            });
            match keys {
                Ok(keys) => facts
                    .configuration
                    .extend(keys.into_iter().map(|key| (place.clone(), key))),
                Err(why) => facts.gaps.push(CheckGap {
                    what: format!("{key} in {place}"),
                    why,
                    remedy: CORRECT,
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
