// SPDX-License-Identifier: Apache-2.0
//! Reads the pods of the Go driver. A migration reads them every second.
//!
//! The namespace often contains all agents of a cluster. The operator therefore lists all its pods only once a minute.
//! Between these lists it lists pods with the labels of the known ones. If such a list lacks a known pod, the operator
//! lists that pod by name, because its labels may have changed. The role of a migration permits no `get` of pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    time::Duration,
};

use kube::{Client, ResourceExt, api::ListParams};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::workloads::{AnyPod, Workload, other_pods, pod_resource};
use crate::{
    kubernetes::GuardedApi,
    observe::{ObserveError, for_each_page, list_matching},
};

/// Interval between two lists of all pods.
const WHOLE_LIST_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum number of pods to list by name. More such lists cost more than a list of all pods.
const MOST_READS: usize = 20;

/// Labels that differ between pods of the same workload.
const REVISION_LABELS: [&str; 5] = [
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
    "pod-template-generation",
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];

type Labels = BTreeMap<String, String>;

/// The pods that earlier lists returned.
#[derive(Debug, Default)]
pub(super) struct OldPods(Mutex<Option<PodRecord>>);

#[derive(Debug, Clone)]
struct PodRecord {
    namespace: String,
    listed: Instant,
    /// The pods by uid.
    pods: BTreeMap<String, AnyPod>,
}

impl OldPods {
    /// Reads the pods of the existing installation in a namespace. `workloads` are the workloads that create such pods,
    /// and `harmless` contains the names of unrelated workloads.
    pub(super) async fn read(
        &self,
        client: &Client,
        namespace: &str,
        workloads: &[&Workload],
        harmless: &BTreeSet<String>,
    ) -> Result<Vec<AnyPod>, ObserveError> {
        let api: GuardedApi<AnyPod> = GuardedApi::namespaced_with(client.clone(), namespace, &pod_resource());
        let known = self.0.lock().clone();
        let recent = known.filter(|known| known.namespace == namespace && known.listed.elapsed() < WHOLE_LIST_INTERVAL);
        let narrowed = match &recent {
            Some(known) => read_known(&api, known, workloads, harmless).await?,
            None => None,
        };
        let listed = recent.filter(|_| narrowed.is_some()).map(|known| known.listed);
        let pods = match narrowed {
            Some(pods) => pods,
            None => read_all(&api, harmless).await?,
        };
        *self.0.lock() = Some(PodRecord {
            namespace: namespace.to_owned(),
            listed: listed.unwrap_or_else(Instant::now),
            pods: pods.iter().map(|pod| (uid_of(pod), pod.clone())).collect(),
        });
        Ok(pods)
    }
}

async fn read_all(api: &GuardedApi<AnyPod>, harmless: &BTreeSet<String>) -> Result<Vec<AnyPod>, ObserveError> {
    let (mut pods, mut failed) = (Vec::new(), None);
    for_each_page(api, "pods", |page| match other_pods(page, harmless) {
        Ok(page) => {
            pods.extend(page);
            ControlFlow::Continue(())
        }
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })
    .await?;
    failed.map_or(Ok(pods), Err)
}

/// Reads the known pods, and new pods with the same labels; `None` if a list of all pods costs less.
async fn read_known(
    api: &GuardedApi<AnyPod>,
    known: &PodRecord,
    workloads: &[&Workload],
    harmless: &BTreeSet<String>,
) -> Result<Option<Vec<AnyPod>>, ObserveError> {
    let Some(selectors) = selectors(known.pods.values(), workloads) else {
        return Ok(None);
    };
    let mut pods = BTreeMap::new();
    for selector in selectors {
        let page = list_matching(api, "pods", ListParams::default().labels(&selector)).await?;
        pods.extend(other_pods(page, harmless)?.into_iter().map(|pod| (uid_of(&pod), pod)));
    }
    let missing: Vec<&AnyPod> = known
        .pods
        .iter()
        .filter(|(uid, _)| !pods.contains_key(*uid))
        .map(|(_, pod)| pod)
        .collect();
    if missing.len() > MOST_READS {
        return Ok(None);
    }
    for earlier in missing {
        let named = ListParams::default().fields(&format!("metadata.name={}", earlier.name_any()));
        let page = other_pods(list_matching(api, "pods", named).await?, harmless)?;
        let same = page.into_iter().filter(|pod| uid_of(pod) == uid_of(earlier));
        pods.extend(same.map(|pod| (uid_of(&pod), pod)));
    }
    Ok(Some(pods.into_values().collect()))
}

/// The label selectors of all pods and workloads; `None` if there are no objects, or if one of them has no labels.
fn selectors<'a>(pods: impl Iterator<Item = &'a AnyPod>, workloads: &[&Workload]) -> Option<BTreeSet<String>> {
    let of_workloads = workloads.iter().map(|workload| {
        workload
            .spec
            .selector
            .as_ref()
            .and_then(|selector| selector.labels.clone())
    });
    let mut all: BTreeSet<Labels> = of_workloads.map(Option::unwrap_or_default).collect();
    for pod in pods {
        let labels = pod.labels();
        let is_selected = |selector: &Labels| selector.iter().all(|(name, value)| labels.get(name) == Some(value));
        if !all.iter().any(is_selected) {
            let stable = labels
                .iter()
                .filter(|(name, _)| !REVISION_LABELS.contains(&name.as_str()));
            all.insert(stable.map(|(name, value)| (name.clone(), value.clone())).collect());
        }
    }
    let text = |labels: Labels| {
        let parts: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!parts.is_empty()).then(|| parts.join(","))
    };
    let selectors: BTreeSet<String> = all.into_iter().map(text).collect::<Option<_>>()?;
    (!selectors.is_empty()).then_some(selectors)
}

fn uid_of(pod: &AnyPod) -> String {
    pod.uid().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn mk_pod(labels: &Value) -> AnyPod {
        serde_json::from_value(json!({"metadata": {"name": "p", "labels": labels}, "spec": {"containers": []}}))
            .expect("a pod")
    }

    #[rstest]
    #[case::of_workload(json!({"app": "csi", "x": "1"}), json!({"app": "csi"}), Some(vec!["app=csi"]))]
    #[case::of_deleted_workload(
        json!({"app": "old", "controller-revision-hash": "5f"}), json!({"app": "csi"}), Some(vec!["app=csi", "app=old"]))]
    #[case::pod_without_labels(json!({}), json!({"app": "csi"}), None)]
    #[case::workload_without_labels(json!({"app": "csi"}), json!({}), None)]
    fn pods_are_selected_by_labels(#[case] pod: Value, #[case] selector: Value, #[case] expected: Option<Vec<&str>>) {
        let workload: Workload = serde_json::from_value(json!({"metadata": {"name": "w"},
            "spec": {"selector": {"matchLabels": selector}, "template": {"spec": {"containers": []}}}}))
        .expect("a workload");
        let found = selectors([mk_pod(&pod)].iter(), &[&workload]);
        let found = found.map(|found| found.into_iter().collect::<Vec<_>>());
        assert_eq!(found, expected.map(|all| all.into_iter().map(str::to_owned).collect()));
    }
}
