// SPDX-License-Identifier: Apache-2.0
//! `kubectl cinder-csi diagnose`: the operator's findings about one claim, and the events of the claim and its pods.

use std::fmt;

use cinder_csi_crds::{CinderCSIDriver, StuckVolume};
use k8s_openapi::{
    api::core::v1::{Event, PersistentVolumeClaim, Pod},
    jiff::Timestamp,
};
use kube::{Client, ResourceExt, api::ListParams};
use serde::Serialize;

use super::PluginError;
use crate::{
    commands::table::write_notes,
    kubernetes::{GuardedApi, answer},
};

/// The most pods whose events are read.
const MOST_PODS: usize = 10;

/// The report about a claim.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimReport {
    /// `namespace/name`.
    claim: String,
    /// The phase of the claim, unless the claim was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    persistent_volume: Option<String>,
    /// The overdue operations that the operator reports.
    stuck: Vec<StuckVolume>,
    /// The events, the oldest first.
    events: Vec<EventLine>,
    /// The objects that could not be read.
    notes: Vec<String>,
}

/// An event of the claim or of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct EventLine {
    /// Kind and name.
    object: String,
    last_seen: Option<Timestamp>,
    #[serde(rename = "type")]
    type_: String,
    reason: String,
    message: String,
}

/// Reads the report with the rights of the user.
pub(super) async fn report(client: &Client, namespace: &str, name: &str) -> Result<ClaimReport, PluginError> {
    let key = format!("{namespace}/{name}");
    let mut notes = Vec::new();
    let claims: GuardedApi<PersistentVolumeClaim> = GuardedApi::namespaced(client.clone(), namespace);
    let claim = claims.get_opt(name).await;
    let claim = claim.map_err(PluginError::read(format!("read PersistentVolumeClaim {key}")))?;
    let drivers: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
    let drivers = list(&drivers, &ListParams::default(), "the CinderCSIDrivers", &mut notes).await;
    let volumes = drivers.into_iter().filter_map(|driver| driver.status?.volumes);
    let mut stuck: Vec<StuckVolume> = volumes.flat_map(|volumes| volumes.stuck).collect();
    stuck.retain(|stuck| stuck.claim.as_ref() == Some(&key));
    if claim.is_none() && stuck.is_empty() {
        return Err(PluginError::NoClaim {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    }
    let pods: GuardedApi<Pod> = GuardedApi::namespaced(client.clone(), namespace);
    let pods = list(&pods, &ListParams::default(), "the pods", &mut notes).await;
    let pods = pods.iter().filter(|pod| uses(pod, name)).take(MOST_PODS);
    let objects = claim.iter().filter_map(ResourceExt::uid);
    let objects: Vec<String> = objects.chain(pods.filter_map(ResourceExt::uid)).collect();
    let api: GuardedApi<Event> = GuardedApi::namespaced(client.clone(), namespace);
    let mut events = Vec::new();
    for uid in objects {
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let of_object = list(&api, &params, "the events", &mut notes).await;
        events.extend(of_object.into_iter().map(EventLine::from));
    }
    events.sort_by_key(|event| event.last_seen);
    notes.dedup();
    let volume = claim
        .as_ref()
        .and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
    Ok(ClaimReport {
        claim: key,
        phase: claim.map(|claim| claim.status.and_then(|status| status.phase).unwrap_or_default()),
        persistent_volume: volume,
        stuck,
        events,
        notes,
    })
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

fn uses(pod: &Pod, claim: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| volume.persistent_volume_claim.as_ref())
        .any(|source| source.claim_name == claim)
}

impl From<Event> for EventLine {
    fn from(event: Event) -> Self {
        let series = event.series.and_then(|series| series.last_observed_time);
        let last_seen = series.or(event.event_time).map(|time| time.0);
        let object = event.involved_object;
        Self {
            object: format!(
                "{} {}",
                object.kind.unwrap_or_default(),
                object.name.unwrap_or_default()
            ),
            last_seen: event.last_timestamp.map(|time| time.0).max(last_seen),
            type_: event.type_.unwrap_or_default(),
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
        }
    }
}

/// Replaces control characters in text from other sources, because a terminal would interpret them.
fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

impl fmt::Display for ClaimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Claim {}: {}",
            self.claim,
            self.phase.as_deref().unwrap_or("deleted")
        )?;
        match &self.persistent_volume {
            Some(volume) => writeln!(f, ", PersistentVolume {volume}")?,
            None => writeln!(f)?,
        }
        if self.stuck.is_empty() {
            writeln!(f, "\nThe operator reports no overdue operation of this claim.")?;
        }
        for stuck in &self.stuck {
            let node = stuck
                .node
                .as_ref()
                .map(|node| format!(", node {node}"))
                .unwrap_or_default();
            writeln!(f, "\n{} ({} {}{node})", stuck.operation, stuck.kind, stuck.name)?;
            writeln!(f, "  since:      {:.0}", stuck.since.0)?;
            if let Some(id) = &stuck.volume_id {
                writeln!(f, "  volume:     {id}")?;
            }
            writeln!(f, "  cause:      {}", stuck.reason)?;
            writeln!(f, "  what to do: {}", printable(&stuck.hint))?;
        }
        if !self.events.is_empty() {
            writeln!(f, "\nEvents")?;
        }
        for event in &self.events {
            let at = event.last_seen.map(|at| format!("{at:.0} ")).unwrap_or_default();
            let EventLine {
                object,
                type_,
                reason,
                message,
                ..
            } = event;
            writeln!(f, "  {at}{type_} {reason}, {object}: {}", printable(message))?;
        }
        write_notes(f, &self.notes)
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    type Objects = &'static [(&'static str, fn() -> Value)];

    /// The report about claim n/c where the API server has these objects by their paths. Objects that are `null` are forbidden.
    async fn mk_report(objects: Objects) -> Result<ClaimReport, PluginError> {
        let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let serving = tokio::spawn(async move {
            while let Some((request, send)) = handle.next_request().await {
                let path = request.uri().path();
                let refusal = |code: u16, reason: &str| {
                    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                        "reason": reason, "message": "no"});
                    (code, body)
                };
                let object = objects
                    .iter()
                    .find(|(known, _)| *known == path)
                    .map(|(_, object)| object());
                let (code, answer) = match object {
                    Some(Value::Null) => refusal(403, "Forbidden"),
                    Some(object) => (200, object),
                    None if path.ends_with("/c") => refusal(404, "NotFound"),
                    None => (200, json!({"metadata": {}, "items": []})),
                };
                let response = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                send.send_response(response.expect("a response"));
            }
        });
        let report = report(&Client::new(service, "n"), "n", "c").await;
        serving.abort();
        report
    }

    const CLAIM: &str = "/api/v1/namespaces/n/persistentvolumeclaims/c";
    const PODS: &str = "/api/v1/namespaces/n/pods";
    const EVENTS: &str = "/api/v1/namespaces/n/events";
    const DRIVERS: &str = "/apis/csi.openstack.org/v1beta1/cindercsidrivers";

    fn mk_claim() -> Value {
        json!({"metadata": {"namespace": "n", "name": "c", "uid": "u"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}})
    }

    fn mk_drivers() -> Value {
        let stuck = |claim: &str| {
            json!({"kind": "VolumeAttachment", "name": "va", "claim": claim, "operation": "Attach", "node": "n1", "volumeID": "id",
                "since": "2026-06-01T10:00:00Z", "reason": "NodeGone", "hint": "start\u{1b} it"})
        };
        json!({"metadata": {}, "items": [{"metadata": {"name": "d"}, "spec": {"clouds": []}, "status":
            {"volumes": {"stuckCount": 2, "stuck": [stuck("n/c"), stuck("n/other")]}}}]})
    }

    #[tokio::test]
    async fn reports_findings_of_operator_and_events() {
        let report = mk_report(&[
            (CLAIM, mk_claim),
            (DRIVERS, mk_drivers),
            (EVENTS, || {
                json!({"metadata": {}, "items": [{"metadata": {}, "type": "Warning", "reason": "FailedMount", "message": "no\nway",
                    "involvedObject": {"kind": "Pod", "name": "web"}, "lastTimestamp": "2026-06-01T10:09:00Z"}]})
            }),
        ]);
        let text = report.await.expect("a report").to_string();
        assert_eq!(
            text,
            "\
Claim n/c: Bound, PersistentVolume pv

Attach (VolumeAttachment va, node n1)
  since:      2026-06-01T10:00:00Z
  volume:     id
  cause:      NodeGone
  what to do: start  it

Events
  2026-06-01T10:09:00Z Warning FailedMount, Pod web: no way
"
        );
    }

    #[tokio::test]
    async fn deleted_claim_with_stuck_operation_is_reported() {
        let report = mk_report(&[(DRIVERS, mk_drivers)]).await.expect("a report");
        assert_eq!((report.phase.as_deref(), report.stuck.len()), (None, 1));
        let error = mk_report(&[]).await.expect_err("no claim").to_string();
        assert!(error.contains("no PersistentVolumeClaim c in namespace n"), "{error}");
    }

    #[tokio::test]
    async fn notes_name_unreadable_objects() {
        let report = mk_report(&[
            (CLAIM, mk_claim),
            (DRIVERS, || Value::Null),
            (PODS, || Value::Null),
            (EVENTS, || Value::Null),
        ]);
        let report = report.await.expect("a report");
        assert_eq!(report.notes.len(), 3, "{report}");
        assert!(report.to_string().contains("no overdue operation"), "{report}");
    }
}
