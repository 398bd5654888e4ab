// SPDX-License-Identifier: Apache-2.0
//! Flags of the other installation's containers that the operator does not give to its own, or gives another value.

use cinder_csi_crds::{CinderCSIDriverSpec, LogLevel, SidecarSettings, TopologyMode};
use cinder_csi_driver::args::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{AdoptionFinding, AdoptionFindingReason, OldContainer, Sample, finding};
use crate::releases::COMPONENTS;

/// The program of the Go driver, and the last part of its image's name.
pub const PROGRAM: &str = "cinder-csi-plugin";

/// Proxies, which a process takes from its environment.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];

/// What is to be said of one flag.
#[derive(Debug, PartialEq, Eq)]
struct Judged {
    flag: String,
    message: String,
    remedy: String,
}

impl Judged {
    fn new(flag: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            flag: flag.into(),
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

const ZONES_ARE_USED: &str =
    "zones were not used, and this driver uses them where those of Nova and Cinder are the same";
const BY_OVERRIDE: &str = "Add it by spec.overrides where it is needed (docs/overrides.md)";

/// What of the flags changes. The same flag of several containers is one finding.
pub(super) fn findings(spec: &CinderCSIDriverSpec, containers: &[OldContainer]) -> Vec<AdoptionFinding> {
    let mut all: Vec<(Judged, Sample)> = Vec::new();
    for container in containers {
        let of_program = match container.program.as_str() {
            PROGRAM => of_driver(spec, &container.arguments),
            sidecar => of_sidecar(spec, sidecar, &container.arguments),
        };
        let proxies = container
            .proxies
            .iter()
            .filter(|_| spec.proxy.is_none())
            .map(|variable| {
                let message = "the operator gives the driver no proxy by the environment of the other pods";
                Judged::new(variable, message, "Set spec.proxy")
            });
        let place = format!("{}, container {}", container.workload, container.name);
        for judged in of_program.into_iter().chain(proxies) {
            match all.iter_mut().find(|(known, _)| *known == judged) {
                Some((_, places)) => places.add(&place),
                None => all.push((judged, [&place].into_iter().collect())),
            }
        }
    }
    let told = all.iter().map(|(judged, places)| {
        let Judged { flag, message, remedy } = judged;
        finding(AdoptionFindingReason::Flag, flag, places, message, remedy)
    });
    told.collect()
}

/// What a driver's pod has of proxies.
pub fn is_proxy(variable: &str) -> bool {
    PROXIES.contains(&variable)
}

/// By the driver's own parser, which knows every flag of the Go driver.
fn of_driver(spec: &CinderCSIDriverSpec, arguments: &[String]) -> Vec<Judged> {
    let mut arguments = arguments.to_vec();
    let mut judged = Vec::new();
    let args = loop {
        let argv = std::iter::once(PROGRAM).chain(arguments.iter().map(String::as_str));
        let error = match Args::from_argv(argv) {
            Ok(parsed) => break parsed,
            Err(error) => error,
        };
        let Some(flag) = unknown_flag(&error) else {
            let what = error.to_string();
            let what = what.lines().next().unwrap_or_default().trim_start_matches("error: ");
            judged.push(Judged::new(
                "the driver's command line",
                format!("this driver does not understand it, so that its flags are not compared: {what}"),
                "Look at the flags yourself; docs/clouds.md and docs/overrides.md have this driver's",
            ));
            return judged;
        };
        let count = arguments.len();
        // As the parser reads it, with dashes.
        let name = |word: &str| word.split('=').next().unwrap_or_default().replace('_', "-");
        arguments.retain(|word| name(word) != flag);
        // What does not begin with a dash is the value of the flag before.
        if flag.starts_with('-') {
            let message = "this driver does not know the flag";
            judged.push(Judged::new(
                flag,
                message,
                "`cinder-csi-driver --help` has this driver's flags",
            ));
        }
        if arguments.len() == count {
            return judged;
        }
    };
    let without_effect = args.without_effect();
    for word in args.to_argv() {
        let (flag, value) = word.split_once('=').unwrap_or((word.as_str(), ""));
        // The parser also takes it from the environment of this process.
        if flag == "--kubeconfig" && !arguments.iter().any(|word| word.starts_with(flag)) {
            continue;
        }
        let no_effect = without_effect.iter().find(|(known, _)| *known == flag);
        judged.extend(match no_effect {
            Some((_, why)) => Some(Judged::new(flag, format!("the flag has no effect: {why}"), "")),
            None => of_flag(spec, flag, value),
        });
    }
    judged
}

fn unknown_flag(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => Some(flag.clone()),
        _ => None,
    }
}

/// What of a flag of the driver changes, if anything.
fn of_flag(spec: &CinderCSIDriverSpec, flag: &str, value: &str) -> Option<Judged> {
    let judged = |message: String, remedy: &str| Some(Judged::new(flag, message, remedy));
    match flag {
        // The operator gives its own, or the same.
        "--endpoint" | "--cloud-config" | "--provide-controller-service" | "--provide-node-service" | "--driver-name" => None,
        "--cluster" if spec.cluster_id.as_deref() == Some(value) => None,
        "--cluster" => judged(
            format!("volumes in Cinder bear the cluster's id {value:?}, and this driver writes another one"),
            &format!("Set spec.clusterID to {value:?} before the switch: it cannot be changed later"),
        ),
        "--with-topology" if spec.topology.mode == TopologyMode::Disabled => None,
        "--with-topology" => judged(ZONES_ARE_USED.to_owned(), "Set spec.topology.mode to Disabled"),
        "--additional-topology" => {
            let (key, segment) = value.split_once('=')?;
            let is_said = spec.topology.additional.get(key).is_some_and(|said| said == segment);
            let remedy = format!("Add {key}: {segment} to spec.topology.additional");
            let message = format!("nodes lose the topology segment {value}, which volumes may be bound to");
            (!is_said).then(|| Judged::new(flag, message, remedy))
        }
        "--cloud-name" if spec.clouds.iter().any(|cloud| cloud.section_name() == value) => None,
        "--cloud-name" => judged(
            format!("the cloud {value:?} is not in spec.clouds, so that this driver does not serve it"),
            "Add an entry with its own Secret to spec.clouds, with this name or, if it is no DNS label, with this section",
        ),
        "--pvc-annotations" => judged(
            "the annotations for affinity and anti-affinity of claims have no effect: the operator gives the driver no access to claims"
                .to_owned(),
            "Where they are needed, let this driver run in manifests of your own (docs/clouds.md)",
        ),
        "--http-endpoint" => judged(
            format!("metrics are not served at {value} any more, and over TLS"),
            "spec.controller.httpPort and spec.node.httpPort choose the port, spec.monitoring.secure false plain HTTP",
        ),
        "--v" if value.parse().is_ok_and(|level: u8| level <= 3) || spec.log_level != LogLevel::Normal => None,
        "--v" => judged("less is logged".to_owned(), "Set spec.logLevel to Debug or Trace"),
        "--max-volumes-per-node" if spec.block_storage.node_volume_attach_limit.map(|limit| limit.to_string()).as_deref() == Some(value) => {
            None
        }
        "--max-volumes-per-node" => judged(
            "the flag is not given to this driver: a node counts what its bus has room for".to_owned(),
            "Set spec.blockStorage.nodeVolumeAttachLimit",
        ),
        _ => judged("the operator does not give the flag to the driver".to_owned(), BY_OVERRIDE),
    }
}

/// What differs between a sidecar as it runs and the operator's.
fn of_sidecar(spec: &CinderCSIDriverSpec, program: &str, arguments: &[String]) -> Vec<Judged> {
    let row = COMPONENTS.iter().find(|row| row.container == program);
    let Some(name) = row.and_then(|row| row.sidecar) else {
        return Vec::new();
    };
    let settings = spec.controller.sidecars.iter().find(|one| one.name == name);
    let flags = arguments.iter().filter_map(|word| {
        let flag = word.trim_start_matches('-');
        let (flag, value) = flag.split_once('=').unwrap_or((flag, "true"));
        of_sidecar_flag(spec, settings, program, flag, value)
    });
    flags.collect()
}

/// What of a flag of a sidecar changes, if anything.
fn of_sidecar_flag(
    spec: &CinderCSIDriverSpec,
    settings: Option<&SidecarSettings>,
    program: &str,
    flag: &str,
    value: &str,
) -> Option<Judged> {
    let judged = |message: String, remedy: String| {
        let flag = format!("--{flag}={value} of {program}");
        Some(Judged::new(flag, message, remedy))
    };
    // The time of the Go driver's manifests; the operator's is not shorter.
    let timeout = settings.and_then(|one| one.timeout.as_deref()).unwrap_or("3m");
    let workers = settings.and_then(|one| one.worker_threads).unwrap_or(100);
    let is_topology_off = || value.split(',').any(|gate| gate == "Topology=false");
    match flag {
        "csi-address"
        | "v"
        | "http-endpoint"
        | "metrics-address"
        | "extra-create-metadata"
        | "handle-volume-inuse-error" => None,
        leader if leader.starts_with("leader-election") => None,
        "timeout" if value == timeout => None,
        "timeout" => judged(
            "the operator's sidecar waits for another time".to_owned(),
            format!("Set timeout of {program} in spec.controller.sidecars"),
        ),
        "worker-threads" | "workers" if value == workers.to_string() => None,
        "worker-threads" | "workers" => judged(
            format!("the operator's sidecar works on {workers} volumes at once"),
            format!("Set workerThreads of {program} in spec.controller.sidecars"),
        ),
        "default-fstype" if value == "ext4" => None,
        "default-fstype" => judged(
            "volumes of classes that name no file system get ext4".to_owned(),
            format!("Name the file system in the classes: csi.storage.k8s.io/fstype: {value}"),
        ),
        // The operator chooses the other gates by the versions of sidecar and cluster.
        "feature-gates" if spec.topology.mode == TopologyMode::Disabled || !is_topology_off() => None,
        "feature-gates" => judged(
            ZONES_ARE_USED.to_owned(),
            "Set spec.topology.mode to Disabled".to_owned(),
        ),
        _ => judged(
            "the operator does not give the flag to its sidecar, or gives it another value".to_owned(),
            BY_OVERRIDE.to_owned(),
        ),
    }
}
