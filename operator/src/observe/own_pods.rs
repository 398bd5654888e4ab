// SPDX-License-Identifier: Apache-2.0
//! Lists the pods of the operator's own drivers with requests, where the result must be exact.

use std::collections::BTreeSet;

use cinder_csi_crds::INSTANCE_LABEL;
use cinder_operator_core::{
    cluster::{COMPONENT_LABEL, NODE_COMPONENT, NodePod, Owner, PodObject},
    releases::DRIVER_CONTAINER,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, Resource, api::ListParams};

use super::error::ObserveError;
use crate::kubernetes::GuardedApi;

/// Lists the operator's own pods of some components that have not terminated.
pub async fn pods_of(
    client: &Client,
    owner: &Owner,
    namespace: &str,
    components: &[&str],
) -> Result<Vec<NodePod>, ObserveError> {
    let api: GuardedApi<PodObject> = GuardedApi::namespaced(client.clone(), namespace);
    let labels = format!(
        "{INSTANCE_LABEL}={},{COMPONENT_LABEL} in ({})",
        owner.name,
        components.join(",")
    );
    let failed = |source| list_failed::<Pod>(source);
    let pods = api.list(&ListParams::default().labels(&labels)).await.map_err(failed)?;
    Ok(pods.iter().filter_map(PodObject::unended).collect())
}

/// Lists the nodes where the container of the driver's node pod runs, ready or not.
pub async fn running_node_pods(
    client: &Client,
    owner: &Owner,
    namespace: &str,
) -> Result<BTreeSet<String>, ObserveError> {
    let api: GuardedApi<Pod> = GuardedApi::namespaced(client.clone(), namespace);
    let labels = format!("{INSTANCE_LABEL}={},{COMPONENT_LABEL}={NODE_COMPONENT}", owner.name);
    let failed = |source| list_failed::<Pod>(source);
    let pods = api.list(&ListParams::default().labels(&labels)).await.map_err(failed)?;
    let runs = |pod: &&Pod| {
        let statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        let mut drivers = statuses.filter(|status| status.name == DRIVER_CONTAINER);
        pod.metadata.deletion_timestamp.is_none()
            && drivers.any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
    };
    let nodes = pods.iter().filter(runs);
    Ok(nodes.filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect())
}

fn list_failed<K: Resource<DynamicType = ()>>(source: kube::Error) -> ObserveError {
    ObserveError::List {
        plural: K::plural(&()).into_owned(),
        source: Box::new(source),
    }
}
