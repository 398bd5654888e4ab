// SPDX-License-Identifier: Apache-2.0
//! Renders one driver as one screen, from the object alone.

use std::fmt::Write as _;

use cinder_csi_crds::{Blocker, CinderCSIDriver, CinderCSIDriverStatus, CloudStatus, ConditionType};
use kube::ResourceExt;

use crate::table::table;

/// Maximum number of rows of a list; the object has the rest.
const ROWS: usize = 10;

/// Renders the state of a driver for an administrator.
pub(crate) fn screen(driver: &CinderCSIDriver) -> String {
    let state = driver.status.as_ref().and_then(|status| status.state);
    let state = state.map_or_else(
        || format!("{:?}", driver.spec.management_state),
        |state| format!("{state:?}"),
    );
    let mut text = format!("{}  ({state})\n", driver.name_any());
    let Some(status) = driver.status.as_ref().filter(|status| status.is_observed()) else {
        text.push_str("  No operator has reconciled this object yet. `kubectl get pods -A -l app.kubernetes.io/name=cinder-csi-operator` lists the operator's pods.\n");
        return text;
    };
    let outdated = driver.metadata.generation.zip(status.observed_generation);
    if outdated.is_some_and(|(generation, observed)| generation != observed) {
        text.push_str(
            "  The operator has not observed the present spec; the following lines are about the previous one.\n",
        );
    }
    text.push_str(&versions(status));
    section(&mut text, "Conditions", &conditions(status));
    section(&mut text, "Components", &components(status));
    section(&mut text, "Clouds", &clouds(status));
    section(&mut text, "Volumes", &volumes(status));
    section(&mut text, "What blocks the removal", &blockers(status));
    text
}

fn section(text: &mut String, title: &str, content: &str) {
    if !content.is_empty() {
        let _ = write!(text, "\n{title}\n{content}");
    }
}

fn versions(status: &CinderCSIDriverStatus) -> String {
    let version = status.version.as_deref().unwrap_or("none yet");
    let mut line = format!("  version {version}");
    if let Some(target) = status.target_version.as_deref().filter(|target| *target != version) {
        let _ = write!(line, ", going to {target}");
    }
    if let Some(kubernetes) = &status.kubernetes_version {
        let _ = write!(line, ", Kubernetes {kubernetes}");
    }
    line.push('\n');
    if let Some(rollout) = &status.rollout {
        let _ = writeln!(
            line,
            "  rollout of {}: {:?}, {} of {} pods done",
            rollout.component, rollout.state, rollout.updated, rollout.desired
        );
        for failed in &rollout.failed {
            let _ = writeln!(line, "    {}: {}", failed.node, failed.reason);
        }
    }
    line
}

/// Renders the headline conditions, and all other conditions with a status that is not the good one.
fn conditions(status: &CinderCSIDriverStatus) -> String {
    let mut text = String::new();
    for condition in &status.conditions {
        let type_ = ConditionType::ALL
            .iter()
            .find(|type_| type_.as_str() == condition.type_);
        let is_good = type_.is_some_and(|type_| type_.good_status() == condition.status);
        let is_headline = matches!(
            type_,
            Some(ConditionType::Available | ConditionType::Progressing | ConditionType::Degraded)
        );
        if is_headline || !is_good {
            let mark = if is_good { ' ' } else { '!' };
            let _ = writeln!(
                text,
                "{mark} {}={} ({})",
                condition.type_, condition.status, condition.reason
            );
            if !is_good {
                let _ = writeln!(text, "    {}", condition.message);
            }
        }
    }
    text
}

fn components(status: &CinderCSIDriverStatus) -> String {
    let mut rows: Vec<Vec<String>> = status
        .components
        .iter()
        .map(|part| {
            vec![
                part.name.clone(),
                part.version.clone().unwrap_or_default(),
                format!("{}/{}", part.updated, part.desired),
                format!("{}/{}", part.ready, part.desired),
                part.image.clone().unwrap_or_default(),
            ]
        })
        .collect();
    rows.extend(status.sidecars.iter().map(|sidecar| {
        vec![
            sidecar.name.clone(),
            sidecar.release.clone().unwrap_or_default(),
            String::new(),
            String::new(),
            format!(
                "{} {}",
                sidecar.image,
                if sidecar.version_skew == "OK" {
                    ""
                } else {
                    &sidecar.version_skew
                }
            )
            .trim_end()
            .to_owned(),
        ]
    }));
    let mut text = titled_table(&["NAME", "VERSION", "UPDATED", "READY", "IMAGE"], &rows);
    if let Some(nodes) = status.nodes.as_ref().filter(|nodes| !nodes.unregistered.is_empty()) {
        let _ = writeln!(text, "  not registered on: {}", nodes.unregistered.join(", "));
    }
    text
}

fn clouds(status: &CinderCSIDriverStatus) -> String {
    let row = |cloud: &CloudStatus| {
        let ends = [
            &cloud.credential_expires_at,
            &cloud.ca_expires_at,
            &cloud.client_cert_expires_at,
        ];
        let first = ends.into_iter().flatten().map(|time| time.0).min();
        vec![
            cloud.name.clone(),
            if cloud.authenticated { "yes" } else { "NO" }.to_owned(),
            cloud.auth_method.clone().unwrap_or_default(),
            first.map(|time| time.strftime("%F").to_string()).unwrap_or_default(),
        ]
    };
    titled_table(
        &["NAME", "LOGIN OK", "METHOD", "EXPIRES"],
        &status.clouds.iter().map(row).collect::<Vec<_>>(),
    )
}

fn volumes(status: &CinderCSIDriverStatus) -> String {
    let Some(volumes) = &status.volumes else {
        return String::new();
    };
    let mut text = format!("  {} stuck\n", volumes.stuck_count);
    for stuck in volumes.stuck.iter().take(ROWS) {
        let _ = writeln!(
            text,
            "! {} {}: {} ({})\n    {}",
            stuck.kind, stuck.name, stuck.operation, stuck.reason, stuck.hint
        );
    }
    text
}

fn blockers(status: &CinderCSIDriverStatus) -> String {
    let deletion = status.deletion.iter().flat_map(|deletion| &deletion.blockers);
    let row = |blocker: &Blocker| {
        vec![
            blocker.kind.clone(),
            blocker.count.to_string(),
            blocker.names.join(", "),
        ]
    };
    titled_table(
        &["KIND", "COUNT", "SOME OF THEM"],
        &deletion.map(row).collect::<Vec<_>>(),
    )
}

fn titled_table(head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    table(head, rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unobserved_driver_shows_no_conditions() {
        let driver = json!({"metadata": {"name": "d", "generation": 1}, "spec": {"clouds": []}, "status": {"observedGeneration": -1,
            "conditions": [{"type": "Available", "status": "Unknown", "reason": "NotReconciled", "message": "",
                "lastTransitionTime": "1970-01-01T00:00:00Z"}]}});
        let text = screen(&serde_json::from_value(driver).expect("a driver"));
        assert!(text.contains("No operator has reconciled this object yet"), "{text}");
        assert!(!text.contains("Conditions"), "{text}");
    }
}
