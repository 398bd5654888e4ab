// SPDX-License-Identifier: Apache-2.0
//! JSON of volumes, snapshots and attachments.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Context;
use crate::microversion::Version;
use crate::state::{Attachment, AttachmentStatus, Backup, Snapshot, SnapshotStatus, Volume};
use crate::world::World;

/// Formats a time as Cinder does: microseconds are always zero, and there is no zone.
pub(super) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.000000").to_string()
}

pub(super) fn links(context: &Context<'_>, collection: &str, id: &str) -> Value {
    let base = &context.cloud.settings.base_url;
    let project = &context.cloud.settings.identity.project_id;
    // Links contain the project id if the request path does.
    let project = if context.request.path.contains(project.as_str()) {
        format!("{project}/")
    } else {
        String::new()
    };
    json!([
        {"rel": "self", "href": format!("{base}/volume/v3/{project}{collection}/{id}")},
        {"rel": "bookmark", "href": format!("{base}/volume/{project}{collection}/{id}")},
    ])
}

pub(super) fn volume_summary(context: &Context<'_>, volume: &Volume) -> Value {
    json!({"id": volume.id, "name": volume.name, "links": links(context, "volumes", &volume.id)})
}

pub(super) fn volume(context: &Context<'_>, world: &World, volume: &Volume) -> Value {
    // Reserved and unfinished attachments are not listed.
    let attachments: Vec<Value> = world
        .attachments_of(&volume.id)
        .iter()
        .filter(|attachment| attachment.status == AttachmentStatus::Attached)
        .map(|attachment| {
            json!({
                "id": volume.id,
                "attachment_id": attachment.id,
                "volume_id": volume.id,
                "server_id": attachment.server_id,
                "host_name": null,
                "device": attachment.device,
                "attached_at": attachment.attached_at.map(time),
            })
        })
        .collect();
    let mut view = json!({
        "id": volume.id,
        "status": volume.status.as_str(),
        "size": volume.size,
        "availability_zone": volume.availability_zone,
        "created_at": time(volume.created_at),
        "updated_at": volume.updated_at.map(time),
        "name": volume.name,
        "description": volume.description,
        "volume_type": volume.volume_type,
        "snapshot_id": volume.snapshot_id,
        "source_volid": volume.source_volume_id,
        "metadata": volume.metadata,
        "links": links(context, "volumes", &volume.id),
        "user_id": context.cloud.settings.identity.user_id,
        "bootable": "false",
        "encrypted": volume.encrypted,
        "replication_status": null,
        "consistencygroup_id": null,
        "multiattach": volume.multiattach,
        "attachments": attachments,
    });
    let version = context.version;
    // An extension of the read calls, and not of the create call.
    let looks = context.request.method == http::Method::GET;
    if looks {
        view["os-vol-tenant-attr:tenant_id"] = json!(context.cloud.settings.identity.project_id);
    }
    if context.token.admin {
        view["migration_status"] = json!(volume.migration_status);
        view["os-vol-mig-status-attr:migstat"] = json!(volume.migration_status);
        view["os-vol-mig-status-attr:name_id"] = Value::Null;
        let host = volume.backend.as_deref().map(pool_name);
        view["os-vol-host-attr:host"] = json!(host);
    }
    if version >= Version(3, 13) {
        view["group_id"] = json!(volume.group_id);
    }
    if version >= Version(3, 48) {
        view["shared_targets"] = json!(false);
        // Present after the scheduler has selected a backend.
        view["service_uuid"] = json!(looks.then_some("0f6b9b1c-8d55-4b6f-9d0e-2f1c7a3b5e90"));
    }
    if version >= Version(3, 61) && context.token.admin {
        view["cluster_name"] = Value::Null;
    }
    if version >= Version(3, 63) {
        let volume_type = world.volume_type(Some(&volume.volume_type)).ok();
        view["volume_type_id"] = json!(volume_type.map(|volume_type| &volume_type.id));
    }
    if version >= Version(3, 65) {
        view["consumes_quota"] = json!(true);
    }
    view
}

/// Returns Cinder's name of the pool of a backend.
pub(super) fn pool_name(backend: &str) -> String {
    format!("sim@{backend}#pool0")
}

pub(super) fn snapshot(context: &Context<'_>, snapshot: &Snapshot, detail: bool) -> Value {
    let mut view = json!({
        "id": snapshot.id,
        "created_at": time(snapshot.created_at),
        "updated_at": snapshot.updated_at.map(time),
        "name": snapshot.name,
        "description": snapshot.description,
        "volume_id": snapshot.volume_id,
        "status": snapshot.status.as_str(),
        "size": snapshot.size,
        "metadata": snapshot.metadata,
    });
    if detail {
        let identity = &context.cloud.settings.identity;
        // An extension of the read calls, and not of the create call.
        if context.request.method == http::Method::GET {
            view["os-extended-snapshot-attributes:project_id"] = json!(identity.project_id);
            let creating = snapshot.status == SnapshotStatus::Creating;
            view["os-extended-snapshot-attributes:progress"] = json!(if creating { "0%" } else { "100%" });
        }
        if context.version >= Version(3, 14) {
            view["group_snapshot_id"] = json!(snapshot.group_snapshot_id);
        }
        if context.version >= Version(3, 41) {
            view["user_id"] = json!(identity.user_id);
        }
        if context.version >= Version(3, 65) {
            view["consumes_quota"] = json!(true);
        }
    }
    view
}

pub(super) fn backup_summary(context: &Context<'_>, backup: &Backup) -> Value {
    json!({"id": backup.id, "name": backup.name, "links": links(context, "backups", &backup.id)})
}

pub(super) fn backup(context: &Context<'_>, world: &World, backup: &Backup) -> Value {
    let mut view = json!({
        "id": backup.id,
        "status": backup.status.as_str(),
        "size": backup.size,
        "object_count": backup.object_count,
        "availability_zone": backup.availability_zone,
        "container": backup.container,
        "created_at": time(backup.created_at),
        "updated_at": backup.updated_at.map(time),
        "name": backup.name,
        "description": backup.description,
        "fail_reason": backup.fail_reason,
        "volume_id": backup.volume_id,
        "links": links(context, "backups", &backup.id),
        "is_incremental": backup.parent_id.is_some(),
        "has_dependent_backups": world.has_dependent_backups(&backup.id),
        "snapshot_id": backup.snapshot_id,
        "data_timestamp": time(backup.data_timestamp),
    });
    let identity = &context.cloud.settings.identity;
    if context.version >= Version(3, 18) && context.token.admin {
        view["os-backup-project-attr:project_id"] = json!(identity.project_id);
    }
    if context.version >= Version(3, 43) {
        view["metadata"] = json!(backup.metadata);
    }
    if context.version >= Version(3, 56) && context.token.admin {
        view["user_id"] = json!(identity.user_id);
    }
    view
}

pub(super) fn attachment_summary(attachment: &Attachment) -> Value {
    json!({
        "id": attachment.id,
        "status": attachment.status.as_str(),
        "instance": attachment.server_id,
        "volume_id": attachment.volume_id,
    })
}

pub(super) fn attachment(context: &Context<'_>, attachment: &Attachment) -> Value {
    let mut view = attachment_summary(attachment);
    view["attached_at"] = json!(attachment.attached_at.map(time).unwrap_or_default());
    view["detached_at"] = json!("");
    // Since 3.54, an unset mode is the text `null`.
    let unsaid = (context.version >= Version(3, 54)).then_some("null");
    view["attach_mode"] = json!(attachment.mode.as_deref().or(unsaid));
    view["connection_info"] = if attachment.connected {
        json!({"driver_volume_type": "local", "attachment_id": attachment.id, "access_mode": "rw"})
    } else {
        json!({})
    };
    view
}
