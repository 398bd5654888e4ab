// SPDX-License-Identifier: Apache-2.0

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const SERVER: &str = "11111111-2222-4333-8444-555555555555";

fn now() -> SystemTime {
    parse_timestamp("2026-01-01T12:00:00.000000").expect("a time").into()
}

fn volume(change: &[(&str, Value)]) -> Volume {
    let mut volume = json!({
        "id": "99999999-2222-4333-8444-555555555555", "size": 1, "status": "available",
        "updated_at": "2026-01-01T11:59:00.000000",
    });
    for (key, value) in change {
        volume[*key] = value.clone();
    }
    serde_json::from_value(volume).expect("a volume")
}

fn attached(status: &str) -> Volume {
    volume(&[
        ("status", json!(status)),
        (
            "attachments",
            json!([{"server_id": SERVER, "attachment_id": SERVER, "device": "/dev/vdb"}]),
        ),
    ])
}

/// The problems of a volume. `server` is empty without a report of Nova, or has the server's status, or `None` for an
/// unknown server.
fn found(volume: &Volume, server: &[Option<&str>]) -> Vec<(Severity, &'static str)> {
    let server = server.iter().map(|status| {
        let server = status.map(|status| json!({"id": SERVER, "name": "node", "status": status}));
        let server = server.map(|server| serde_json::from_value(server).expect("a server"));
        (ServerId::new(SERVER), server)
    });
    let problems = volume.problems(&server.collect(), now());
    problems
        .into_iter()
        .map(|problem| (problem.severity, problem.reason))
        .collect()
}

#[rstest]
#[case("available", None)]
#[case("creating", None)]
#[case("retyping", None)]
#[case("error", Some((Severity::Inaccessible, "VolumeError")))]
#[case("error_managing", Some((Severity::Inaccessible, "VolumeError")))]
#[case("error_restoring", Some((Severity::DataLoss, "RestoreFailed")))]
#[case("error_extending", Some((Severity::Degraded, "ExtendFailed")))]
#[case("error_deleting", Some((Severity::Degraded, "DeleteFailed")))]
#[case("maintenance", Some((Severity::Degraded, "Maintenance")))]
#[case("error_of_tomorrow", Some((Severity::Degraded, "VolumeError")))]
#[case("in-use", Some((Severity::Degraded, "AttachmentInconsistent")))]
fn error_status_maps_to_problem(#[case] status: &str, #[case] expected: Option<(Severity, &'static str)>) {
    assert_eq!(
        found(&volume(&[("status", json!(status))]), &[]),
        expected.into_iter().collect::<Vec<_>>()
    );
}

#[rstest]
#[case("migration_status", "migrating", Some("Migrating"))]
#[case("migration_status", "error", Some("MigrationFailed"))]
#[case("migration_status", "success", None)]
#[case("replication_status", "error", Some("ReplicationFailed"))]
#[case("replication_status", "failed-over", Some("ReplicationFailedOver"))]
#[case("replication_status", "enabled", None)]
fn failed_migration_or_replication_degrades_volume(
    #[case] key: &str,
    #[case] status: &str,
    #[case] reason: Option<&'static str>,
) {
    let expected = reason.map(|reason| (Severity::Degraded, reason));
    assert_eq!(
        found(&volume(&[(key, json!(status))]), &[]),
        expected.into_iter().collect::<Vec<_>>()
    );
}

#[rstest]
#[case(&[], None)]
#[case(&[Some("ACTIVE")], None)]
#[case(&[Some("SHUTOFF")], None)]
#[case(&[Some("ERROR")], Some("ServerError"))]
#[case(&[Some("DELETED")], Some("ServerGone"))]
#[case(&[None], Some("ServerGone"))]
fn server_state_affects_volume_health(#[case] of: &[Option<&str>], #[case] reason: Option<&'static str>) {
    let expected = reason.map(|reason| (Severity::Inaccessible, reason));
    assert_eq!(found(&attached("in-use"), of), expected.into_iter().collect::<Vec<_>>());
}

#[rstest]
#[case("reserved", "2026-01-01T11:54:59.000000", true)]
#[case("attaching", "2026-01-01T11:00:00", true)]
#[case("detaching", "2026-01-01T11:55:01.000000", false)]
#[case("creating", "2026-01-01T11:00:00.000000", false)]
fn slow_attachment_is_inconsistent(#[case] status: &str, #[case] since: &str, #[case] expected: bool) {
    let volume = volume(&[("status", json!(status)), ("updated_at", json!(since))]);
    assert_eq!(!found(&volume, &[]).is_empty(), expected);
}
