// SPDX-License-Identifier: Apache-2.0
//! Decides whether volumes and nodes have zones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cinder_csi_crds::{Cloud, PendingTopology, Topology as Spec, TopologyMode, TopologyStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::clouds::CloudFacts;
use crate::problem::Problem;
use crate::reasons::Degraded;
use crate::text::in_words;
use crate::units::duration;

/// Annotation on a CinderCSIDriver with the object's uid as value. It permits the operator to disable zones although
/// PersistentVolumes are bound to them.
pub const DISABLE_TOPOLOGY: &str = "csi.openstack.org/disable-topology";

/// Number of consecutive equal comparisons before a result takes effect.
const EQUAL_RESULTS: i32 = 3;

/// Time that the driver of a new object waits for the zones of its cloud.
const WAIT_FOR_ZONES: SignedDuration = SignedDuration::from_mins(5);

/// The resolved zone settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Whether zones are in use.
    pub enabled: bool,
    /// Whether the decision is known. Until then no pods are created, because they might be replaced a moment later.
    pub is_decided: bool,
    /// Additional segments of every node.
    pub additional: BTreeMap<String, String>,
    /// The zones of Nova in all clouds. `None` while a cloud does not return them.
    pub compute_zones: Option<BTreeSet<String>>,
    /// The state to record in the status.
    pub status: TopologyStatus,
    /// Why zones remain enabled although the spec disables them.
    pub refusal: Option<Problem>,
}

/// Input of the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopologyInput<'a> {
    pub(super) spec: &'a Spec,
    /// Whether every zone of Nova is a zone of Cinder. `None` while unknown.
    pub(super) is_consistent: Option<bool>,
    /// The zones of Nova in all clouds. `None` while unknown.
    pub(super) compute_zones: Option<&'a BTreeSet<String>>,
    pub(super) before: Option<&'a TopologyStatus>,
    /// Creation time of the object.
    pub(super) made: Option<Timestamp>,
    /// Number of PersistentVolumes that are bound to a zone.
    pub(super) zoned_volumes: usize,
    /// Whether the administrator has confirmed the change.
    pub(super) is_confirmed: bool,
    pub(super) now: Timestamp,
}

/// Whether all zones of Nova exist in Cinder. `None` if a cloud has not returned them, or is `silent`: an earlier
/// response is not a current result.
pub(super) fn is_consistent(
    clouds: &[Cloud],
    facts: &BTreeMap<String, CloudFacts>,
    silent: &BTreeSet<String>,
) -> Option<bool> {
    let mut all = Some(true);
    for cloud in clouds {
        let facts = facts
            .get(&cloud.name)
            .filter(|_| !silent.contains(&cloud.name))
            .filter(|facts| !facts.compute_zones.is_empty() && !facts.volume_zones.is_empty());
        let Some(facts) = facts else {
            all = None;
            continue;
        };
        let is_in_cinder = |zone: &String| {
            let volume_zone = cloud.availability_zone_map.get(zone).unwrap_or(zone);
            facts.volume_zones.contains(volume_zone)
        };
        if !facts.compute_zones.iter().all(is_in_cinder) {
            return Some(false);
        }
    }
    all
}

/// Returns the zones of Nova in all clouds. `None` if a cloud has not returned them, or is `silent`.
pub(super) fn compute_zones(
    clouds: &[Cloud],
    facts: &BTreeMap<String, CloudFacts>,
    silent: &BTreeSet<String>,
) -> Option<BTreeSet<String>> {
    let of_cloud = |cloud: &Cloud| {
        let facts = facts.get(&cloud.name).filter(|_| !silent.contains(&cloud.name))?;
        (!facts.compute_zones.is_empty()).then_some(&facts.compute_zones)
    };
    let zones: Option<Vec<&Vec<String>>> = clouds.iter().map(of_cloud).collect();
    Some(zones?.into_iter().flatten().cloned().collect())
}

/// Returns the problem with the labels of nodes. The CRD has no cost budget for this rule.
pub(super) fn problem(spec: &Spec) -> Option<Problem> {
    let wrong = spec.additional.keys().find(|key| !is_label(key))?;
    Some(Problem {
        reason: Degraded::InvalidSpec,
        message: format!(
            "spec.topology.additional has the key {wrong:?}, which no label can have: write NAME or example.org/NAME, the name of 63 \
             letters, digits, '-', '_' and '.' at most"
        ),
    })
}

/// Whether the key is valid for a label.
pub(super) fn is_label(key: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_word = |text: &str, longest: usize, others: &[char]| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || others.contains(&c);
        text.len() <= longest
            && is_end(text.chars().next())
            && is_end(text.chars().last())
            && text.chars().all(is_allowed)
    };
    match key.split_once('/') {
        Some((prefix, name)) => is_word(prefix, 253, &['-', '.']) && is_word(name, 63, &['-', '_', '.']),
        None => is_word(key, 63, &['-', '_', '.']),
    }
}

/// Resolves the zone settings.
pub(super) fn topology(question: &TopologyInput<'_>) -> Topology {
    let (mut enabled, is_decided, mut status) = match question.spec.mode {
        TopologyMode::Enabled => (true, true, settled(true, "Enabled")),
        TopologyMode::Disabled => (false, true, settled(false, "Disabled")),
        TopologyMode::Auto => compare(question),
    };
    // Without a status, the driver's volumes show whether zones are in use.
    let by_volumes = question.spec.mode == TopologyMode::Auto && question.zoned_volumes > 0;
    let was_enabled = question.before.map_or(by_volumes, |before| before.enabled);
    let mut refusal = None;
    if was_enabled && !enabled && question.zoned_volumes > 0 && !question.is_confirmed {
        refusal = Some(Problem {
            reason: Degraded::TopologyInUse,
            message: format!(
                "zones should be turned off, but {} of the driver can only be used in their zone, and pods with \
                 them could not be scheduled to new nodes: set spec.topology.mode to Enabled (with clouds[].availabilityZoneMap \
                 where names differ), or annotate the object with {DISABLE_TOPOLOGY} and its own uid as the value",
                in_words(question.zoned_volumes, "PersistentVolume")
            ),
        });
        enabled = true;
        status = TopologyStatus {
            enabled: true,
            reason: "TopologyInUse".into(),
            pending: question.before.and_then(|before| before.pending.clone()),
        };
    }
    Topology {
        enabled,
        is_decided,
        additional: question.spec.additional.clone(),
        compute_zones: question.compute_zones.cloned(),
        status,
        refusal,
    }
}

fn settled(enabled: bool, reason: &str) -> TopologyStatus {
    TopologyStatus {
        enabled,
        reason: reason.into(),
        pending: None,
    }
}

fn reason_of(is_consistent: bool) -> &'static str {
    if is_consistent { "ZonesMatch" } else { "ZonesDiffer" }
}

/// Returns for mode Auto whether zones are used, whether that is known, and the state to record.
fn compare(question: &TopologyInput<'_>) -> (bool, bool, TopologyStatus) {
    let Some(result) = question.is_consistent else {
        // A failed check changes nothing.
        if let Some(before) = question.before {
            return (before.enabled, true, before.clone());
        }
        let has_waited = |made: Timestamp| question.now.duration_since(made) >= WAIT_FOR_ZONES;
        let gives_up = question.made.is_none_or(has_waited);
        return (!gives_up, gives_up, settled(!gives_up, "ZonesUnknown"));
    };
    let Some(before) = question.before else {
        return (result, true, settled(result, reason_of(result)));
    };
    if before.enabled == result {
        return (result, true, settled(result, reason_of(result)));
    }
    let pending = count_result(question, before.pending.as_ref(), result);
    if pending.times >= EQUAL_RESULTS {
        return (result, true, settled(result, reason_of(result)));
    }
    let status = TopologyStatus {
        pending: Some(pending),
        ..before.clone()
    };
    (before.enabled, true, status)
}

/// Counts a result that differs from the current setting, once per interval.
fn count_result(question: &TopologyInput<'_>, pending: Option<&PendingTopology>, result: bool) -> PendingTopology {
    let at_times = |times: i32| PendingTopology {
        enabled: result,
        times,
        last_time: format!("{:.0}", question.now),
    };
    let Some(pending) = pending.filter(|pending| pending.enabled == result) else {
        return at_times(1);
    };
    let last = pending.last_time.parse::<Timestamp>().ok();
    let is_due = last.is_none_or(|last| {
        Duration::try_from(question.now.duration_since(last)).is_ok_and(|since| since >= interval(question.spec))
    });
    if is_due {
        at_times(pending.times.saturating_add(1))
    } else {
        pending.clone()
    }
}

/// Time between two comparisons that count.
pub fn interval(spec: &Spec) -> Duration {
    // The schema accepts only valid durations.
    duration(&spec.reevaluate_interval).unwrap_or(Duration::from_mins(10))
}

#[cfg(test)]
mod tests;
