// SPDX-License-Identifier: Apache-2.0
//! Flags of the other installation's driver that the operator omits or sets to another value.

use cinder_csi_crds::{CinderCSIDriverSpec, LogLevel, TopologyMode};
use cinder_csi_driver::{args::Args, topology::REGION};
use clap::error::{ContextKind, ContextValue};
use csi_sources::UntrustedText;

use super::addresses::without_users;
use super::command_line::{Flag, OldContainer, PROGRAM};
use super::configuration::new_entry;
use super::difference::{BY_HAND, BY_OVERRIDE, Difference, Differences, ZONES_ARE_USED};
use super::{go, sidecars};
use crate::migration::finding::AdoptionFinding;

/// Maximum number of arguments in one command line.
const MOST_ARGUMENTS: usize = 500;

/// Flags of this driver with cumulative values.
const REPEATABLE: [&str; 6] = [
    "user-agent",
    "project-id",
    "search-order",
    "volume-metadata",
    "disable-capability",
    "tls-cipher-suites",
];

/// Returns the differences between the flags of the containers and the flags that the operator sets.
pub(super) fn findings(spec: &CinderCSIDriverSpec, containers: &[OldContainer]) -> Vec<AdoptionFinding> {
    let mut differences = Differences::default();
    for container in containers {
        let found = of_container(spec, container).into_iter();
        let place = container.place();
        found.for_each(|difference| differences.add(difference, &place));
    }
    differences.into_findings()
}

fn of_container(spec: &CinderCSIDriverSpec, container: &OldContainer) -> Vec<Difference> {
    if !container.is_driver() && !sidecars::is_compared(&container.program) {
        return Vec::new();
    }
    let subject = || format!("the command line of {}", container.name);
    if container.is_script {
        let why = "a shell runs a script, and the flags in it are not compared";
        return vec![Difference::unknown(subject(), why, BY_HAND)];
    }
    if container.arguments.len() > MOST_ARGUMENTS {
        let why = format!("it has more than {MOST_ARGUMENTS} words");
        return vec![Difference::unknown(subject(), &why, BY_HAND)];
    }
    let (known, unknown): (Vec<Flag>, Vec<Flag>) =
        container.flags().into_iter().partition(|flag| flag.unknown.is_empty());
    let mut found: Vec<Difference> = unknown.iter().map(|flag| unknown_value(container, flag)).collect();
    found.extend(if container.is_driver() {
        of_driver(spec, &known)
    } else {
        sidecars::differences(spec, &container.program, &known)
    });
    found
}

/// Returns the gap of a flag with unknown variables in its value.
fn unknown_value(container: &OldContainer, flag: &Flag) -> Difference {
    let reasons = flag.unknown.iter().map(|(name, why)| format!("variable {name}: {why}"));
    let why = format!("its value depends on {}", reasons.collect::<Vec<_>>().join("; "));
    let subject = if container.is_driver() {
        flag.shown()
    } else {
        format!("{} of {}", flag.shown(), container.program)
    };
    Difference::unknown(subject, &why, BY_HAND)
}

fn quoted(text: &str) -> String {
    UntrustedText::with_limit(&without_users(text), 200).quoted()
}

/// Compares the flags of the driver. Lists are parsed as in pflag. The driver's own parser parses the others, because
/// it knows every flag of cinder-csi-plugin.
fn of_driver(spec: &CinderCSIDriverSpec, flags: &[Flag]) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut words = Vec::new();
    for flag in flags {
        match flag.name.as_str() {
            "cloud-config" | "cloud-name" | "additional-topology" => {
                let differences = of_list(spec, flag);
                if differences.is_empty() || flag.secrets.is_empty() || flag.name == "cloud-config" {
                    found.extend(differences);
                } else {
                    found.push(Difference::without_value(flag.shown(), &flag.secrets));
                }
            }
            name => {
                if !REPEATABLE.contains(&name) {
                    // The last value applies.
                    words.retain(|earlier: &&Flag| earlier.name != name);
                }
                words.push(flag);
            }
        }
    }
    let Some(args) = parse(words, &mut found) else {
        return found;
    };
    let without_effect = args.without_effect();
    let is_given = |name: &str| {
        flags
            .iter()
            .rev()
            .find(|flag| name.strip_prefix("--") == Some(flag.name.as_str()))
    };
    for word in args.to_argv() {
        let (name, value) = word.split_once('=').unwrap_or((word.as_str(), ""));
        // The parser also reads values from the environment of this process.
        let Some(flag) = is_given(name) else { continue };
        let no_effect = without_effect.iter().find(|(known, _)| *known == name);
        let difference = match no_effect {
            Some((_, why)) => Some(Difference::of_flag(name, format!("the flag has no effect: {why}"), "")),
            None => of_flag(spec, name, value),
        };
        found.extend(difference.map(|difference| {
            if flag.secrets.is_empty() {
                difference
            } else {
                Difference::without_value(name.to_owned(), &flag.secrets)
            }
        }));
    }
    found
}

/// Removes invalid flags one by one, so that an invalid flag does not hide others.
fn parse(mut flags: Vec<&Flag>, found: &mut Vec<Difference>) -> Option<Args> {
    loop {
        // A driver without this flag is compared anyway.
        let endpoint = (!flags.iter().any(|flag| flag.name == "endpoint")).then(|| "--endpoint=".to_owned());
        let argv = std::iter::once(PROGRAM.to_owned())
            .chain(endpoint)
            .chain(flags.iter().map(|flag| flag.word()));
        let error = match Args::from_argv(argv) {
            Ok(parsed) => return Some(parsed),
            Err(error) => error,
        };
        let Some(at) = find_rejected_flag(&error, &flags) else {
            let why = "this driver does not understand it, so that its flags are not compared";
            let remedy = "Look at the flags yourself; docs/clouds.md and docs/overrides.md have this driver's";
            found.push(Difference::unknown("the driver's command line", why, remedy));
            return None;
        };
        let flag = flags.remove(at);
        let subject = flag.shown();
        found.push(match (&flag.value, flag.secrets.is_empty()) {
            _ if error.kind() == clap::error::ErrorKind::UnknownArgument => Difference::of_flag(
                subject,
                "this driver does not know the flag",
                "`cinder-csi-driver --help` has this driver's flags",
            ),
            (Some(value), true) => {
                let message = format!("this driver does not understand the value {}", quoted(value));
                Difference::of_flag(subject, message, BY_HAND)
            }
            _ => Difference::of_flag(subject, "this driver does not understand the value", BY_HAND),
        });
    }
}

/// Returns the flag that an error of the parser is about.
fn find_rejected_flag(error: &clap::Error, flags: &[&Flag]) -> Option<usize> {
    let ContextValue::String(argument) = error.get(ContextKind::InvalidArg)? else {
        return None;
    };
    // As in `--with-topology[=<BOOL>]` and `-v <LEVEL>`.
    let name = argument.trim_start_matches('-');
    if let Some(at) = flags.iter().position(|flag| flag.name == name) {
        return Some(at);
    }
    let end = name.find(|character: char| !character.is_ascii_alphanumeric() && character != '-');
    let name = name.get(..end.unwrap_or(name.len()))?;
    flags.iter().position(|flag| flag.name == name)
}

/// Returns the differences of a flag with a list. Each value of the list is compared separately.
fn of_list(spec: &CinderCSIDriverSpec, flag: &Flag) -> Vec<Difference> {
    let subject = flag.shown();
    let text = flag.value.as_deref().unwrap_or_default();
    let unreadable = || {
        let why = "pflag does not accept the value";
        vec![Difference::unknown(subject.as_str(), why, BY_HAND)]
    };
    match flag.name.as_str() {
        "cloud-name" => {
            let Some(names) = go::parse_slice(text) else {
                return unreadable();
            };
            let missing = names.into_iter().filter(|name| {
                // The operator omits the name of a single cloud.
                let is_only = name.is_empty() && spec.clouds.len() == 1;
                !is_only && !spec.clouds.iter().any(|cloud| cloud.section_name() == *name)
            });
            let missing = missing.map(|name| {
                let message = format!(
                    "the cloud {} is not in spec.clouds, so that this driver does not serve it",
                    quoted(&name)
                );
                let remedy = format!(
                    "Add an entry with {} and its own Secret to spec.clouds",
                    new_entry(&name)
                );
                Difference::of_flag(subject.as_str(), message, remedy)
            });
            missing.collect()
        }
        "additional-topology" => {
            let Some(pairs) = go::parse_pairs(text) else {
                return unreadable();
            };
            let lost = pairs.into_iter().filter(|(key, segment)| {
                let is_region =
                    key == REGION && spec.clouds.iter().any(|one| one.node_region.as_ref() == Some(segment));
                !is_region && spec.topology.additional.get(key) != Some(segment)
            });
            let lost = lost.map(|(key, segment)| {
                let pair = format!("{key}={segment}");
                let message = format!(
                    "nodes lose the topology segment {}, which volumes may be bound to",
                    UntrustedText::new(&pair)
                );
                let field = if key == REGION {
                    "spec.topology.additional, or set nodeRegion in spec.clouds"
                } else {
                    "spec.topology.additional"
                };
                let remedy = format!(
                    "Add {}: {} to {field}",
                    UntrustedText::new(&key),
                    UntrustedText::new(&segment)
                );
                Difference::of_flag(subject.as_str(), message, remedy)
            });
            lost.collect()
        }
        // The files are read and compared.
        _ if go::parse_slice(text).is_none() => unreadable(),
        _ if flag.secrets.is_empty() => Vec::new(),
        _ => vec![Difference::unknown(subject, "the path comes from a Secret", BY_HAND)],
    }
}

/// Returns the difference of a flag of the driver, if it exists.
fn of_flag(spec: &CinderCSIDriverSpec, flag: &str, value: &str) -> Option<Difference> {
    let judged = |message: String, remedy: &str| Some(Difference::of_flag(flag, message, remedy));
    match flag {
        // The operator sets its own value, or the same.
        "--endpoint" | "--provide-controller-service" | "--provide-node-service" | "--driver-name" => None,
        "--cluster" if spec.cluster_id.as_deref() == Some(value) => None,
        "--cluster" => judged(
            format!(
                "volumes in Cinder bear the cluster's id {}, and this driver writes {}",
                quoted(value),
                spec.cluster_id
                    .as_deref()
                    .map_or_else(|| "the uid of the namespace kube-system".to_owned(), quoted)
            ),
            &format!(
                "Set spec.clusterID to {} before the switch: it cannot be changed later",
                quoted(value)
            ),
        ),
        "--with-topology" if spec.topology.mode == TopologyMode::Disabled => None,
        "--with-topology" => judged(ZONES_ARE_USED.to_owned(), "Set spec.topology.mode to Disabled"),
        "--pvc-annotations" => judged(
            "the annotations for affinity and anti-affinity of claims have no effect: the operator gives the driver no access to claims"
                .to_owned(),
            "Where they are needed, let this driver run in manifests of your own (docs/clouds.md)",
        ),
        "--http-endpoint" => judged(
            format!(
                "metrics are not served at {} any more, and over TLS",
                UntrustedText::new(value)
            ),
            "spec.controller.httpPort and spec.node.httpPort choose the port, spec.monitoring.secure false plain HTTP",
        ),
        "--v" if value.parse().is_ok_and(|level: u8| level <= 3) || spec.log_level != LogLevel::Normal => None,
        "--v" => judged("less is logged".to_owned(), "Set spec.logLevel to Debug or Trace"),
        "--max-volumes-per-node" => {
            let limit = spec.block_storage.node_volume_attach_limit.map(|limit| limit.to_string());
            if limit.as_deref() == Some(value) {
                return None;
            }
            let new = limit.unwrap_or_else(|| "what the bus of the node has room for".to_owned());
            judged(
                format!("a node has at most {} volumes, and with this driver {new}", UntrustedText::new(value)),
                "Set spec.blockStorage.nodeVolumeAttachLimit",
            )
        }
        _ => judged(
            format!(
                "the value is {}, and the operator does not give the flag to the driver",
                quoted(value)
            ),
            BY_OVERRIDE,
        ),
    }
}
