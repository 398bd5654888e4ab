// SPDX-License-Identifier: Apache-2.0
//! Flags of the other installation's sidecars.

use cinder_csi_crds::{CinderCSIDriverSpec, SidecarSettings, TopologyMode};
use csi_sources::UntrustedText;

use super::addresses::without_users;
use super::command_line::Flag;
use super::difference::{BY_OVERRIDE, Difference, ZONES_ARE_USED};
use super::go;
use crate::migration::finding::AdoptionFindingReason;
use crate::releases::{COMPONENTS, ComponentRow};

/// The feature gate of csi-provisioner that determines whether zones are used. The operator selects the other gates
/// by the releases.
const TOPOLOGY: &str = "Topology";
const FEATURE_GATES: &str = "feature-gates";

/// How the values of a flag are compared.
#[derive(Debug, Clone, Copy)]
enum ValueKind {
    Duration,
    Bool,
    /// A higher number in the operator's sidecar is harmless.
    Limit,
    Text,
}

/// A flag that many sidecars have: its name, its kind, and the value of the operator's sidecars, or of sidecars
/// without the flag.
struct KnownFlag(&'static str, ValueKind, &'static str);

const KNOWN: [KnownFlag; 15] = [
    KnownFlag("kube-api-qps", ValueKind::Limit, "20"),
    KnownFlag("kube-api-burst", ValueKind::Limit, "100"),
    KnownFlag("kube-api-capacity-qps", ValueKind::Limit, "1"),
    KnownFlag("kube-api-capacity-burst", ValueKind::Limit, "5"),
    KnownFlag("retry-interval-start", ValueKind::Duration, "1s"),
    KnownFlag("strict-topology", ValueKind::Bool, "false"),
    KnownFlag("immediate-topology", ValueKind::Bool, "true"),
    KnownFlag("prevent-volume-mode-conversion", ValueKind::Bool, "true"),
    KnownFlag("volume-name-prefix", ValueKind::Text, "pvc"),
    KnownFlag("volume-name-uuid-length", ValueKind::Text, "-1"),
    KnownFlag("snapshot-name-prefix", ValueKind::Text, "snapshot"),
    KnownFlag("snapshot-name-uuid-length", ValueKind::Text, "-1"),
    KnownFlag("max-entries", ValueKind::Text, "0"),
    KnownFlag("reconcile-sync", ValueKind::Duration, "1m"),
    KnownFlag("node-deployment", ValueKind::Bool, "false"),
];

/// Returns the sidecar that a container runs, by the name of its image or container. Distributions rename both.
pub fn sidecar_program(image: &str, container: &str) -> Option<&'static str> {
    let mut rows = COMPONENTS.iter().filter(|row| row.sidecar.is_some());
    let row = rows.find(|row| {
        let task = row.container.trim_start_matches("csi-");
        image == row.container || container == row.container || image.contains(&format!("external-{task}"))
    });
    row.map(|row| row.container)
}

/// Whether the operator has such a sidecar, so that its flags can be compared.
pub(super) fn is_compared(program: &str) -> bool {
    COMPONENTS
        .iter()
        .any(|row| row.container == program && row.sidecar.is_some())
}

/// Returns the differences between a sidecar of the other installation and the operator's.
pub(super) fn differences(spec: &CinderCSIDriverSpec, program: &str, flags: &[Flag]) -> Vec<Difference> {
    let row = COMPONENTS.iter().find(|row| row.container == program);
    let Some((row, name)) = row.and_then(|row| Some((row, row.sidecar?))) else {
        return Vec::new();
    };
    let settings = spec.controller.sidecars.iter().find(|one| one.name == name);
    let sidecar = SidecarComparison {
        spec,
        settings,
        row,
        program,
    };
    let found = effective(flags).into_iter().filter_map(|flag| {
        let difference = sidecar.compare(&flag)?;
        Some(if flag.secrets.is_empty() {
            difference
        } else {
            Difference {
                reason: difference.reason,
                ..Difference::without_value(format!("{} of {program}", flag.shown()), &flag.secrets)
            }
        })
    });
    found.collect()
}

/// Returns the flags without repetitions. The last value applies, and the values of feature gates accumulate.
fn effective(flags: &[Flag]) -> Vec<Flag> {
    let mut effective: Vec<Flag> = Vec::new();
    for flag in flags {
        let Some(earlier) = effective.iter_mut().find(|known| known.name == flag.name) else {
            effective.push(flag.clone());
            continue;
        };
        if flag.name == FEATURE_GATES {
            earlier.value = Some(format!("{},{}", earlier.text(), flag.text()));
            earlier.secrets.extend(flag.secrets.iter().cloned());
        } else {
            *earlier = flag.clone();
        }
    }
    effective
}

struct SidecarComparison<'a> {
    spec: &'a CinderCSIDriverSpec,
    settings: Option<&'a SidecarSettings>,
    row: &'a ComponentRow,
    program: &'a str,
}

impl SidecarComparison<'_> {
    /// Returns the difference of a flag, if it exists.
    fn compare(&self, flag: &Flag) -> Option<Difference> {
        let value = flag.text();
        let subject = format!(
            "{}={} of {}",
            flag.shown(),
            UntrustedText::with_limit(&without_users(value), 200),
            self.program
        );
        let judged = |message: String, remedy: String| Some(Difference::of_flag(subject.clone(), message, remedy));
        match flag.name.as_str() {
            "csi-address" | "v" | "http-endpoint" | "metrics-address" | "metrics-path" | "logtostderr"
            | "stderrthreshold" => None,
            leader if leader.starts_with("leader-election") => None,
            "kubeconfig" | "master" if flag.value.as_deref().unwrap_or_default().is_empty() => None,
            "kubeconfig" | "master" => Some(outside(subject)),
            "timeout" => self.compare_timeout(value, judged),
            "worker-threads" | "workers" => {
                let workers = self.settings.and_then(|one| one.worker_threads).unwrap_or(100);
                (value.trim().parse() != Ok(workers)).then(|| {
                    let message = format!("the operator's sidecar works on {workers} volumes at once");
                    let remedy = format!("Set workerThreads of {} in spec.controller.sidecars", self.program);
                    judged(message, remedy)
                })?
            }
            "default-fstype" if value == "ext4" => None,
            "default-fstype" => judged(
                "volumes of classes that name no file system get ext4".to_owned(),
                format!(
                    "Name the file system in the classes: csi.storage.k8s.io/fstype: {}",
                    UntrustedText::new(value)
                ),
            ),
            FEATURE_GATES => self.compare_gates(value, judged),
            "retry-interval-max" => self.compare_known(value, ValueKind::Duration, self.row.retry_interval_max, judged),
            "enable-capacity" => {
                let is_on = self.spec.csi_driver.storage_capacity.to_string();
                self.compare_known(value, ValueKind::Bool, &is_on, judged)
            }
            name => {
                // A flag without a value is a boolean.
                let own = self.row.arguments.iter().find_map(|word| {
                    let (own, value) = word
                        .trim_start_matches('-')
                        .split_once('=')
                        .unwrap_or((word.trim_start_matches('-'), "true"));
                    (own == name).then_some((ValueKind::Bool, value))
                });
                let known = KNOWN
                    .iter()
                    .find(|known| known.0 == name)
                    .map(|known| (known.1, known.2));
                match own.or(known) {
                    Some((kind, new)) => self.compare_known(value, kind, new, judged),
                    None => judged(
                        "the operator does not give the flag to its sidecar".to_owned(),
                        BY_OVERRIDE.to_owned(),
                    ),
                }
            }
        }
    }

    fn compare_timeout(
        &self,
        value: &str,
        judged: impl Fn(String, String) -> Option<Difference>,
    ) -> Option<Difference> {
        let own = self.settings.and_then(|one| one.timeout.as_deref());
        let new = own.unwrap_or(self.row.timeout);
        let (old, own_time) = (go::parse_duration(value), own.and_then(go::parse_duration));
        // Without a field, the operator's sidecar waits at least as long as the sidecar in the manifests of
        // cinder-csi-plugin.
        let is_same = match own_time {
            Some(time) => old == Some(time),
            None => old.is_some() && [go::parse_duration("3m"), go::parse_duration(new)].contains(&old),
        };
        if is_same {
            return None;
        }
        judged(
            format!("the operator's sidecar waits {new} for an answer of the driver"),
            format!("Set timeout of {} in spec.controller.sidecars", self.program),
        )
    }

    fn compare_gates(&self, value: &str, judged: impl Fn(String, String) -> Option<Difference>) -> Option<Difference> {
        let Some(gates) = go::parse_gates(value) else {
            return judged(
                "the sidecar does not accept the value".to_owned(),
                "Correct it, or compare it yourself".to_owned(),
            );
        };
        if gates.get(TOPOLOGY) != Some(&false) || self.spec.topology.mode == TopologyMode::Disabled {
            return None;
        }
        judged(
            ZONES_ARE_USED.to_owned(),
            "Set spec.topology.mode to Disabled".to_owned(),
        )
    }

    fn compare_known(
        &self,
        old: &str,
        kind: ValueKind,
        new: &str,
        judged: impl Fn(String, String) -> Option<Difference>,
    ) -> Option<Difference> {
        let is_same = match kind {
            ValueKind::Duration => go::parse_duration(old).is_some_and(|time| Some(time) == go::parse_duration(new)),
            ValueKind::Bool => go::parse_bool(old).is_some_and(|flag| Some(flag) == go::parse_bool(new)),
            ValueKind::Limit => {
                let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
                matches!((number(old), number(new)), (Some(old), Some(new)) if old <= new)
            }
            ValueKind::Text => old == new,
        };
        if is_same {
            return None;
        }
        judged(
            format!("the operator's sidecar {} has {new}", self.program),
            BY_OVERRIDE.to_owned(),
        )
    }
}

/// Returns the finding for a controller that serves another cluster, or runs outside of this one.
fn outside(subject: String) -> Difference {
    Difference::new(
        AdoptionFindingReason::OutsideController,
        subject,
        "the controller reaches the cluster by a kubeconfig: it runs outside of the cluster that it serves. The operator cannot migrate \
         such an installation: it would stop the controller of another cluster, or start a second one",
        "Keep this installation, or move its controller into the cluster first; accepting the finding does not change it",
    )
}
