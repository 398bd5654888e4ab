// SPDX-License-Identifier: Apache-2.0
//! `kubectl cinder-csi diagnose`: the operator's findings about the volumes of an object, and the events on the way to them.

use std::{collections::BTreeSet, fmt};

use cinder_csi_crds::{CinderCSIDriver, StuckVolume};
use cinder_csi_operator::kubernetes::{GuardedApi, answer};
use csi_sources::UntrustedText;
use k8s_openapi::{
    api::core::v1::{Event, Pod},
    jiff::Timestamp,
};
use kube::{Client, ResourceExt, api::ListParams};
use serde::Serialize;

use crate::{
    error::PluginError,
    heartbeat::{Heartbeat, heartbeat, lease_namespaces},
    table::write_notes,
    target::{Target, TargetKind},
};
use event_line::EventLine;
use trail::{TrailReader, VolumeLine};

mod event_line;
mod trail;

/// Maximum number of characters of a hint.
const LONGEST_HINT: usize = 4_000;
/// Maximum number of pods whose events are read.
const MOST_PODS: usize = 10;

/// The report about an object and its volumes.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiagnosisReport {
    /// Kind and name.
    object: String,
    #[serde(skip)]
    is_claim: bool,
    operator: Heartbeat,
    volumes: Vec<VolumeLine>,
    /// The overdue operations that the operator reports.
    stuck: Vec<StuckVolume>,
    /// Errors in the status of objects.
    errors: Vec<EventLine>,
    /// The events, oldest first.
    events: Vec<EventLine>,
    /// The objects that could not be read.
    notes: Vec<String>,
}

/// Reads the report with the rights of the user. `operators` is the operator's namespace.
pub(crate) async fn report(
    client: &Client,
    target: &Target,
    operators: &str,
    now: Timestamp,
) -> Result<DiagnosisReport, PluginError> {
    let mut notes = Vec::new();
    let trail = TrailReader::new(client, &mut notes).follow(target).await;
    let trail = trail.map_err(PluginError::read(format!("read {target}")))?;
    let drivers: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
    let drivers = list(&drivers, &ListParams::default(), "the CinderCSIDrivers", &mut notes).await;
    let operator = heartbeat(client, &lease_namespaces(operators, &drivers), now).await;
    let statuses = drivers.into_iter().filter_map(|driver| driver.status?.volumes);
    let mut stuck: Vec<StuckVolume> = statuses.flat_map(|volumes| volumes.stuck).collect();
    let is_target = |stuck: &StuckVolume| {
        target.kind == TargetKind::Attachment && stuck.kind == target.kind.as_str() && stuck.name == target.name
    };
    stuck.retain(|stuck| is_target(stuck) || trail.volumes.iter().any(|volume| volume.concerns(stuck)));
    if !trail.exists && stuck.is_empty() {
        return Err(PluginError::NoObject(target.to_string()));
    }
    let mut subjects = trail.subjects;
    subjects.extend(pods(client, &trail.volumes, &mut notes).await);
    let mut events = events(client, subjects, &mut notes).await;
    events.sort_by_key(|event| event.order(now));
    notes.dedup();
    Ok(DiagnosisReport {
        object: target.to_string(),
        is_claim: target.kind == TargetKind::Claim,
        operator,
        volumes: trail.volumes,
        stuck,
        errors: trail.errors,
        events,
        notes,
    })
}

/// Namespace and uid of the pods that use the volumes.
async fn pods(client: &Client, volumes: &[VolumeLine], notes: &mut Vec<String>) -> Vec<(String, String)> {
    let keys: BTreeSet<(&str, &str)> = volumes.iter().filter_map(VolumeLine::claim_key).collect();
    let namespaces: BTreeSet<&str> = keys.iter().map(|(namespace, _)| *namespace).collect();
    let mut users = Vec::new();
    for namespace in namespaces {
        let api: GuardedApi<Pod> = GuardedApi::namespaced(client.clone(), namespace);
        let pods = list(&api, &ListParams::default(), "the pods", notes).await;
        let uses_volume = |pod: &&Pod| trail::claims(pod).any(|claim| keys.contains(&(namespace, claim.as_str())));
        let using = pods.iter().filter(uses_volume).take(MOST_PODS);
        users.extend(using.filter_map(|pod| Some((namespace.to_owned(), pod.uid()?))));
    }
    users
}

/// Reads the events of objects. Each object is read once, in no particular order.
async fn events(client: &Client, subjects: Vec<(String, String)>, notes: &mut Vec<String>) -> Vec<EventLine> {
    let mut events = Vec::new();
    let subjects: BTreeSet<(String, String)> = subjects.into_iter().collect();
    for (namespace, uid) in subjects {
        let api: GuardedApi<Event> = GuardedApi::namespaced(client.clone(), &namespace);
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let of_object = list(&api, &params, "the events", notes).await;
        events.extend(of_object.into_iter().map(EventLine::from));
    }
    events
}

/// Lists objects. Adds a note about a failed list.
async fn list<K>(api: &GuardedApi<K>, params: &ListParams, what: &str, notes: &mut Vec<String>) -> Vec<K>
where
    K: Clone + fmt::Debug + serde::de::DeserializeOwned,
{
    let listed = api.list_readable(params, notes).await;
    listed.unwrap_or_else(|error| {
        notes.push(format!("{what} could not be read: {}", answer(&error)));
        Vec::new()
    })
}

impl DiagnosisReport {
    fn write_head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_claim {
            writeln!(f, "{}", UntrustedText::new(&self.object))?;
            if self.volumes.is_empty() {
                writeln!(f, "  no PersistentVolumeClaim")?;
            }
        }
        let indent = if self.is_claim { "" } else { "  " };
        for volume in &self.volumes {
            writeln!(f, "{indent}{volume}")?;
        }
        write!(f, "{}", self.operator)
    }

    fn write_stuck(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stuck.is_empty() {
            let report = if self.operator.is_running() {
                "The operator reports"
            } else {
                "The last report of the operator has"
            };
            writeln!(f, "\n{report} no overdue operation.")?;
        }
        for stuck in &self.stuck {
            let node = stuck
                .node
                .as_ref()
                .map(|node| format!(", node {node}"))
                .unwrap_or_default();
            let head = format!("{} ({} {}{node})", stuck.operation, stuck.kind, stuck.name);
            writeln!(f, "\n{}", UntrustedText::new(&head))?;
            writeln!(f, "  since:      {:.0}", stuck.since.0)?;
            if let Some(id) = &stuck.volume_id {
                writeln!(f, "  volume:     {}", UntrustedText::new(id))?;
            }
            writeln!(f, "  cause:      {}", UntrustedText::new(&stuck.reason))?;
            writeln!(
                f,
                "  what to do: {}",
                UntrustedText::with_limit(&stuck.hint, LONGEST_HINT)
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for DiagnosisReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_head(f)?;
        self.write_stuck(f)?;
        for (title, lines) in [
            ("Errors in the status of objects", &self.errors),
            ("Events", &self.events),
        ] {
            if !lines.is_empty() {
                writeln!(f, "\n{title}")?;
            }
            lines.iter().try_for_each(|line| write!(f, "{line}"))?;
        }
        write_notes(f, &self.notes)
    }
}

#[cfg(test)]
mod tests;
