// SPDX-License-Identifier: Apache-2.0
//! Finds installations of the Go driver outside the namespace of a migration.
//!
//! The operator finds them by their pods: the role for the check before a migration includes the list of all pods. A
//! right to list workloads in all namespaces would only add workloads without pods, and these have no leader. The
//! kubectl plugin also lists workloads, with the rights of its user.

use std::{collections::BTreeSet, ops::ControlFlow};

use cinder_operator_core::cluster::unknown_object;
use kube::{Client, Resource as _, api::ObjectMeta};

use super::workloads::{AnyPod, has_ended, is_other, is_ours, pod_resource, workload_of};
use crate::{
    kubernetes::GuardedApi,
    observe::{ObserveError, for_each_page},
};

/// Lists the workloads of foreign installations that have pods outside `namespace`, each with its kind and namespace.
/// An undecodable pod counts as one.
pub(super) async fn installations_elsewhere(client: &Client, namespace: &str) -> Result<Vec<String>, ObserveError> {
    let pods: GuardedApi<AnyPod> = GuardedApi::all_with(client.clone(), &pod_resource());
    let mut workloads = BTreeSet::new();
    for_each_page(&pods, "pods", |page| {
        for pod in page.into_iter().filter(|pod| is_elsewhere(pod.meta(), namespace)) {
            match pod.0 {
                Ok(pod) if !has_ended(&pod) && is_other(&pod.metadata, &pod.spec) => {
                    workloads.insert(workload_of(&pod.metadata));
                }
                Err(pod) if !is_ours(&pod.metadata) => {
                    workloads.insert(format!("Pod {}", unknown_object(&pod.key())));
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    })
    .await?;
    Ok(workloads.into_iter().collect())
}

pub(super) fn is_elsewhere(metadata: &ObjectMeta, namespace: &str) -> bool {
    metadata.namespace.as_deref() != Some(namespace)
}
