// SPDX-License-Identifier: Apache-2.0
//! Reads the workloads of the existing installation in its namespace.

use std::ops::ControlFlow;

use cinder_operator_core::{
    cluster::key_of,
    migration::check::{
        CheckGap, OldContainer, OldPods, PROGRAM, VariableValue, Variables, runs_driver, sidecar_program,
    },
};
use csi_sources::UntrustedText;
use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};
use kube::{
    Client,
    core::{NotUsed, Object},
};
use serde_json::Value;

use super::super::{
    gaps::{BY_HAND, add_gap, readable, record_gap},
    workloads::{PodParts, is_other, workload_kinds},
};
use crate::{kubernetes::GuardedApi, observe::for_each_page};

/// Maximum number of workloads of one installation.
const MOST_WORKLOADS: usize = 64;
/// Maximum number of mounts, names and settings of pods in a report.
const MOST_WORDS: usize = 32;

/// Directories with the certificates of trusted authorities.
const AUTHORITIES: [&str; 6] = [
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/var/lib/ca-certificates",
];
/// Environment variables that name further authorities.
const AUTHORITY_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
/// Shells. The check does not interpret their scripts.
const SHELLS: [&str; 5] = ["sh", "bash", "ash", "dash", "busybox"];

/// A workload with a spec that is decoded in parts.
type RawWorkload = Object<Value, NotUsed>;

/// A workload of the existing installation.
#[derive(Debug)]
pub(super) struct OldWorkload {
    /// Kind, namespace and name.
    pub(super) name: String,
    pub(super) pod: PodSpec,
}

/// Lists the workloads of the existing installation in a namespace.
pub(super) async fn old_workloads(client: &Client, namespace: &str, gaps: &mut Vec<CheckGap>) -> Vec<OldWorkload> {
    let mut workloads = Vec::new();
    for (kind, resource) in workload_kinds() {
        let api: GuardedApi<RawWorkload> = GuardedApi::namespaced_with(client.clone(), namespace, &resource);
        let listed = for_each_page(&api, &resource.plural, |page| {
            for workload in readable(kind, page, gaps) {
                let name = format!("{kind} {}", key_of(&workload.metadata));
                match decode(&workload) {
                    Ok(None) => {}
                    Ok(Some(_)) if workloads.len() == MOST_WORKLOADS => {
                        let why = format!("the installation has more than {MOST_WORKLOADS} workloads");
                        add_gap(gaps, name, why, BY_HAND);
                        return ControlFlow::Break(());
                    }
                    Ok(Some(pod)) => workloads.push(OldWorkload { name, pod }),
                    Err(error) => {
                        let why = UntrustedText::new(&error.to_string()).to_string();
                        add_gap(gaps, name, why, BY_HAND);
                    }
                }
            }
            ControlFlow::Continue(())
        });
        let listed = listed.await;
        record_gap(
            gaps,
            &format!("the {} of namespace {namespace}", resource.plural),
            listed,
        );
    }
    workloads
}

/// The pods of a workload, if it belongs to the existing installation.
fn decode(workload: &RawWorkload) -> Result<Option<PodSpec>, serde_json::Error> {
    let pod = &workload.spec["template"]["spec"];
    let parts: PodParts = serde_json::from_value(pod.clone())?;
    if !is_other(&workload.metadata, &parts) {
        return Ok(None);
    }
    serde_json::from_value(pod.clone()).map(Some)
}

/// A container with its arguments.
pub(super) fn old_container(workload: &str, container: &Container, variables: &Variables) -> OldContainer {
    let words = container.command.iter().chain(&container.args).flatten();
    let words: Vec<_> = words.map(|word| variables.expand(word)).collect();
    // The command contains the name of the program if the image has no entry point.
    let named = words.iter().position(|word| word.is_program(PROGRAM));
    let is_script = named.is_none() && words.iter().any(|word| word.plain().is_some_and(runs_driver));
    let image = image_name(container);
    let program = if named.is_some() || is_script {
        PROGRAM
    } else {
        image.as_str()
    };
    let sidecar = sidecar_program(program, &container.name).filter(|_| program != PROGRAM);
    OldContainer {
        workload: workload.to_owned(),
        name: container.name.clone(),
        program: sidecar.unwrap_or(program).to_owned(),
        is_script: is_script
            || words
                .first()
                .is_some_and(|word| SHELLS.iter().any(|shell| word.is_program(shell))),
        arguments: words.into_iter().skip(named.map_or(0, |at| at + 1)).collect(),
        proxies: variables.proxies(),
    }
}

/// The last part of the name of the image, without its tag.
fn image_name(container: &Container) -> String {
    let image = container.image.as_deref().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split(['@', ':']).next().unwrap_or_default().to_owned()
}

/// The environment of the containers of a workload's pods.
pub(super) fn old_pods(workload: &OldWorkload, driver: &str, containers: &[(OldContainer, Variables)]) -> OldPods {
    let pod = &workload.pod;
    let kubelet_dir = kubelet_dir(pod, driver);
    let drivers = pod.containers.iter().filter_map(|container| {
        let known = containers.iter().find(|(one, _)| one.name == container.name);
        known
            .filter(|(one, _)| one.is_driver())
            .map(|(_, variables)| (container, variables))
    });
    let authorities = drivers.flat_map(|(container, variables)| authorities(pod, container, variables));
    let aliases = pod.host_aliases.iter().flatten();
    let aliases = aliases.map(|alias| {
        let names = alias.hostnames.iter().flatten().map(String::as_str);
        let words: Vec<&str> = std::iter::once(alias.ip.as_str())
            .chain(names.take(MOST_WORDS))
            .collect();
        words.join(" ")
    });
    OldPods {
        workload: workload.name.clone(),
        serves_controller: containers.iter().any(|(one, _)| one.serves_controller()),
        is_of_nodes: kubelet_dir.is_some(),
        kubelet_dir,
        node_selector: pod.node_selector.clone().unwrap_or_default(),
        host_network: pod.host_network.unwrap_or_default(),
        dns_policy: pod.dns_policy.clone(),
        dns_settings: dns_settings(pod),
        host_aliases: aliases.take(MOST_WORDS).collect(),
        authorities: authorities.take(MOST_WORDS).collect(),
    }
}

/// The root directory of the kubelet, derived from the directory of the driver's socket below it.
fn kubelet_dir(pod: &PodSpec, driver: &str) -> Option<String> {
    let ending = format!("/plugins/{driver}");
    let mut paths = pod
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| volume.host_path.as_ref());
    paths.find_map(|host| {
        let directory = host.path.trim_end_matches('/').strip_suffix(&ending)?;
        Some(directory.to_owned())
    })
}

fn dns_settings(pod: &PodSpec) -> Vec<String> {
    let Some(config) = &pod.dns_config else {
        return Vec::new();
    };
    let servers = config
        .nameservers
        .iter()
        .flatten()
        .map(|server| format!("nameserver {server}"));
    let searches = config
        .searches
        .iter()
        .flatten()
        .map(|domain| format!("search {domain}"));
    let options = config.options.iter().flatten().map(|option| {
        let name = option.name.as_deref().unwrap_or_default();
        match &option.value {
            Some(value) => format!("option {name}:{value}"),
            None => format!("option {name}"),
        }
    });
    servers.chain(searches).chain(options).take(MOST_WORDS).collect()
}

/// The variables and mounts with which a container trusts further authorities.
fn authorities(pod: &PodSpec, container: &Container, variables: &Variables) -> Vec<String> {
    let named = AUTHORITY_VARIABLES
        .iter()
        .filter_map(|name| match variables.get(name)? {
            VariableValue::Plain(path) => Some(format!("variable {name}={path}")),
            VariableValue::Secret(_) | VariableValue::Unknown(_) => Some(format!("variable {name}")),
        });
    let mounts = container.volume_mounts.iter().flatten().filter(|mount| {
        let path = std::path::Path::new(&mount.mount_path);
        AUTHORITIES.iter().any(|directory| path.starts_with(directory))
    });
    let mounts = mounts.map(|mount| {
        let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name);
        let source = volume.map_or_else(|| "no volume".to_owned(), source_of);
        format!("{source} at {}", mount.mount_path)
    });
    named.chain(mounts).collect()
}

fn source_of(volume: &Volume) -> String {
    if let Some(map) = &volume.config_map {
        format!("ConfigMap {}", map.name)
    } else if let Some(secret) = &volume.secret {
        format!("Secret {}", secret.secret_name.as_deref().unwrap_or_default())
    } else if let Some(host) = &volume.host_path {
        format!("{} of the nodes", host.path)
    } else {
        format!("volume {}", volume.name)
    }
}
