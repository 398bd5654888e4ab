// SPDX-License-Identifier: Apache-2.0
//! Reads the facts for the check before a migration from the API server, page by page. A failed read is recorded as a
//! gap.

mod configuration;
mod environment;
mod mounts;
mod objects;
mod workloads;

use std::{collections::BTreeSet, ops::ControlFlow};

use cinder_csi_crds::CinderCSIDriverSpec;
use cinder_operator_core::{
    class_parameters::{ClassKind, ClassParameters},
    cluster::{ClaimObject, Indexed as _, OptionalApis, Owned as _, VolumeObject, key_of},
    migration::check::{CheckFacts, CheckGap},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource, api::ObjectMeta};
use serde::Deserialize;

use self::{
    configuration::{Reader, new_authorities, new_credentials},
    environment::variables,
    objects::Objects,
    workloads::{OldWorkload, old_container, old_pods, old_workloads},
};
use super::{
    class_parameters::read_classes,
    elsewhere::{installations_elsewhere, is_elsewhere},
    gaps::{readable, record_gap},
    references::{add_volume, node_labels, read_contents},
    workloads::{Workload, is_other, is_ours, workload_kinds},
};
use crate::{
    kubernetes::GuardedApi,
    observe::{ObserveError, for_each_page},
};

/// The driver that replaces the existing installation.
#[derive(Debug, Clone, Copy)]
pub struct Successor<'a> {
    /// The spec of the CinderCSIDriver.
    pub spec: &'a CinderCSIDriverSpec,
    /// The namespace of the objects that the spec names.
    pub namespace: &'a str,
}

/// A pod with its in-line volumes only.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = Pod)]
pub(crate) struct InlinePod {
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

/// Reads all objects that a migration from the installation in `namespace` affects. `with_workloads` adds the workloads
/// of all namespaces, which the operator has no right to list.
pub async fn adoption_check(
    client: &Client,
    driver: &str,
    namespace: &str,
    apis: OptionalApis,
    successor: Successor<'_>,
    with_workloads: bool,
) -> CheckFacts {
    let mut facts = CheckFacts::default();
    let classes = read_classes(client, driver, apis, &mut facts).await;
    record_gap(&mut facts.gaps, "the classes of the driver", classes);
    let listed = volumes(client, driver, &mut facts).await;
    record_gap(&mut facts.gaps, "PersistentVolumes", listed);
    let (secrets, zones, gaps) = (&mut facts.secrets, &mut facts.zone_labels, &mut facts.gaps);
    let referred = read_contents(client, driver, apis, secrets, gaps).await;
    record_gap(gaps, "Secrets of snapshots", referred);
    let labels = node_labels(client, zones, gaps).await;
    record_gap(gaps, "zone labels of nodes", labels);
    let claims = shared_claims(client, &mut facts).await;
    record_gap(&mut facts.gaps, "PersistentVolumeClaims", claims);
    let pods = inline_pods(client, driver, &mut facts).await;
    record_gap(&mut facts.gaps, "pods with in-line volumes", pods);
    let others = installations_elsewhere(client, namespace).await;
    let others = record_gap(&mut facts.gaps, "installations in other namespaces", others);
    let mut others: BTreeSet<String> = others.unwrap_or_default().into_iter().collect();
    if with_workloads {
        others.extend(workloads_elsewhere(client, namespace, &mut facts.gaps).await);
    }
    facts.elsewhere = others.into_iter().collect();
    let workloads = old_workloads(client, namespace, &mut facts.gaps).await;
    let mut objects = Objects::new(client, namespace);
    for workload in &workloads {
        read_workload(&mut objects, workload, driver, &mut facts).await;
    }
    if !workloads.is_empty() {
        let Successor { spec, namespace } = successor;
        facts.credentials = new_credentials(client, namespace, spec, &mut facts.gaps).await;
        facts.authorities = new_authorities(client, namespace, spec, &mut facts.gaps).await;
    }
    let mut known: Vec<CheckGap> = Vec::new();
    for gap in facts.gaps.drain(..) {
        if !known.contains(&gap) {
            known.push(gap);
        }
    }
    facts.gaps = known;
    facts
}

/// Reads the containers of a workload, and the configurations of the driver's containers.
async fn read_workload(objects: &mut Objects<'_>, workload: &OldWorkload, driver: &str, facts: &mut CheckFacts) {
    let mut containers = Vec::new();
    for container in &workload.pod.containers {
        let variables = variables(objects, container).await;
        let known = old_container(&workload.name, container, &variables);
        if known.is_driver() {
            let reader = Reader {
                pod: &workload.pod,
                container,
                variables: &variables,
                known: &known,
            };
            let configuration = reader.configuration(objects, &mut facts.gaps).await;
            facts.configurations.extend(configuration);
        }
        containers.push((known, variables));
    }
    facts.pods.push(old_pods(workload, driver, &containers));
    facts.containers.extend(containers.into_iter().map(|(known, _)| known));
}

async fn volumes(client: &Client, driver: &str, facts: &mut CheckFacts) -> Result<(), ObserveError> {
    let volumes: GuardedApi<VolumeObject> = GuardedApi::all(client.clone());
    for_each_page(&volumes, "persistentvolumes", |page| {
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
    for_each_page(&claims, "persistentvolumeclaims", |page| {
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
    for_each_page(&pods, "pods", |page| {
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

/// Lists the workloads of foreign installations outside `namespace` that have or request pods.
async fn workloads_elsewhere(client: &Client, namespace: &str, gaps: &mut Vec<CheckGap>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (kind, resource) in workload_kinds() {
        let all: GuardedApi<Workload> = GuardedApi::all_with(client.clone(), &resource);
        let listed = for_each_page(&all, &resource.plural, |page| {
            let page = page.into_iter();
            let page = page.filter(|one| is_elsewhere(one.meta(), namespace) && !is_ours(one.meta()));
            let others = readable(kind, page.collect(), gaps).into_iter();
            let others = others.filter(|one| one.spec.replicas != Some(0));
            let others = others.filter(|one| is_other(&one.metadata, &one.spec.template.spec));
            names.extend(others.map(|one| format!("{kind} {}", key_of(&one.metadata))));
            ControlFlow::Continue(())
        });
        let listed = listed.await;
        record_gap(gaps, &format!("the {} of other namespaces", resource.plural), listed);
    }
    names
}

#[cfg(test)]
mod tests;
