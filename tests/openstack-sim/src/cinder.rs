// SPDX-License-Identifier: Apache-2.0
//! Cinder v3.

mod attachments;
mod backups;
mod groups;
mod listing;
mod messages;
mod others;
mod snapshots;
mod view;
mod volume_actions;
mod volumes;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Fault, Reply, Request, Style};
use crate::cloud::Cloud;
use crate::keystone::{Token, authenticate};
use crate::microversion::Version;

/// A call of Cinder.
#[derive(Debug, Clone, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Call {
    ListVersions,
    GetVersion,
    ListVolumes { detail: bool },
    CreateVolume,
    GetVolume(String),
    UpdateVolume(String),
    DeleteVolume(String),
    ExtendVolume(String),
    RetypeVolume(String),
    ResetStatus(String),
    OtherAction(String),
    ListMetadata(String),
    MergeMetadata(String),
    ReplaceMetadata(String),
    DeleteMetadata(String, String),
    Snapshots(snapshots::Call),
    Backups(backups::Call),
    Groups(groups::Call),
    ListAttachments { detail: bool },
    CreateAttachment,
    GetAttachment(String),
    UpdateAttachment(String),
    CompleteAttachment(String),
    DeleteAttachment(String),
    ListTypes,
    GetType(String),
    ListZones,
    GetLimits,
    GetQuota { defaults: bool },
    UpdateQuota,
    GetPools,
    ListServices,
    ListMessages,
    GetMessage(String),
    DeleteMessage(String),
    WrongProject,
    Unknown,
}

impl Call {
    /// Returns the call of a request; `path` excludes the prefix of the service.
    pub(crate) fn route(cloud: &Cloud, request: &Request, path: &[&str]) -> Self {
        let method = request.method.as_str();
        let path = match path {
            [] => {
                return if method == "GET" {
                    Self::ListVersions
                } else {
                    Self::Unknown
                };
            }
            ["v3"] => {
                return if method == "GET" {
                    Self::GetVersion
                } else {
                    Self::Unknown
                };
            }
            // The project in the path is optional since 3.67.
            ["v3", project, rest @ ..] if *project == cloud.settings.identity.project_id => rest,
            ["v3", project, rest @ ..] if is_project_id(project) && !rest.is_empty() => return Self::WrongProject,
            ["v3", rest @ ..] => rest,
            _ => return Self::Unknown,
        };
        let own = |id: &&str| (*id).to_owned();
        match (method, path) {
            ("GET", ["volumes"]) => Self::ListVolumes { detail: false },
            ("GET", ["volumes", "detail"]) => Self::ListVolumes { detail: true },
            ("POST", ["volumes"]) => Self::CreateVolume,
            ("GET", ["volumes", id]) => Self::GetVolume(own(id)),
            ("PUT", ["volumes", id]) => Self::UpdateVolume(own(id)),
            ("DELETE", ["volumes", id]) => Self::DeleteVolume(own(id)),
            ("POST", ["volumes", id, "action"]) => match request.action().as_deref() {
                Some("os-extend") => Self::ExtendVolume(own(id)),
                Some("os-retype") => Self::RetypeVolume(own(id)),
                Some("os-reset_status") => Self::ResetStatus(own(id)),
                _ => Self::OtherAction(own(id)),
            },
            ("GET", ["volumes", id, "metadata"]) => Self::ListMetadata(own(id)),
            ("POST", ["volumes", id, "metadata"]) => Self::MergeMetadata(own(id)),
            ("PUT", ["volumes", id, "metadata"]) => Self::ReplaceMetadata(own(id)),
            ("DELETE", ["volumes", id, "metadata", key]) => Self::DeleteMetadata(own(id), own(key)),
            ("GET", ["attachments"]) => Self::ListAttachments { detail: false },
            ("GET", ["attachments", "detail"]) => Self::ListAttachments { detail: true },
            ("POST", ["attachments"]) => Self::CreateAttachment,
            ("GET", ["attachments", id]) => Self::GetAttachment(own(id)),
            ("PUT", ["attachments", id]) => Self::UpdateAttachment(own(id)),
            ("DELETE", ["attachments", id]) => Self::DeleteAttachment(own(id)),
            ("POST", ["attachments", id, "action"]) if request.action().as_deref() == Some("os-complete") => {
                Self::CompleteAttachment(own(id))
            }
            ("GET", ["types"]) => Self::ListTypes,
            ("GET", ["types", id]) => Self::GetType(own(id)),
            ("GET", ["os-availability-zone"]) => Self::ListZones,
            ("GET", ["limits"]) => Self::GetLimits,
            ("GET", ["os-quota-sets", _]) => Self::GetQuota { defaults: false },
            ("GET", ["os-quota-sets", _, "defaults"]) => Self::GetQuota { defaults: true },
            ("PUT", ["os-quota-sets", _]) => Self::UpdateQuota,
            ("GET", ["scheduler-stats", "get_pools"]) => Self::GetPools,
            ("GET", ["os-services"]) => Self::ListServices,
            ("GET", ["messages"]) => Self::ListMessages,
            ("GET", ["messages", id]) => Self::GetMessage(own(id)),
            ("DELETE", ["messages", id]) => Self::DeleteMessage(own(id)),
            _ => Self::route_nouns(method, path, request.action().as_deref()).unwrap_or(Self::Unknown),
        }
    }

    /// Routes the calls of resources with their own modules.
    fn route_nouns(method: &str, path: &[&str], action: Option<&str>) -> Option<Self> {
        match path {
            ["snapshots", rest @ ..] => snapshots::Call::route(method, rest, action).map(Self::Snapshots),
            ["backups", rest @ ..] => backups::Call::route(method, rest, action).map(Self::Backups),
            _ => groups::Call::route(method, path, action).map(Self::Groups),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ListVersions => "list_volume_versions",
            Self::GetVersion => "get_volume_version",
            Self::ListVolumes { detail: false } => "list_volumes",
            Self::ListVolumes { detail: true } => "list_volumes_detail",
            Self::CreateVolume => "create_volume",
            Self::GetVolume(_) => "get_volume",
            Self::UpdateVolume(_) => "update_volume",
            Self::DeleteVolume(_) => "delete_volume",
            Self::ExtendVolume(_) => "extend_volume",
            Self::RetypeVolume(_) => "retype_volume",
            Self::ResetStatus(_) => "reset_volume_status",
            Self::OtherAction(_) => "volume_action",
            Self::ListMetadata(_) => "list_volume_metadata",
            Self::MergeMetadata(_) => "merge_volume_metadata",
            Self::ReplaceMetadata(_) => "replace_volume_metadata",
            Self::DeleteMetadata(..) => "delete_volume_metadata",
            Self::Snapshots(call) => call.name(),
            Self::Backups(call) => call.name(),
            Self::Groups(call) => call.name(),
            Self::ListAttachments { detail: false } => "list_attachments",
            Self::ListAttachments { detail: true } => "list_attachments_detail",
            Self::CreateAttachment => "create_attachment",
            Self::GetAttachment(_) => "get_attachment",
            Self::UpdateAttachment(_) => "update_attachment",
            Self::CompleteAttachment(_) => "complete_attachment",
            Self::DeleteAttachment(_) => "delete_attachment",
            Self::ListTypes => "list_volume_types",
            Self::GetType(_) => "get_volume_type",
            Self::ListZones => "list_volume_zones",
            Self::GetLimits => "get_volume_limits",
            Self::GetQuota { .. } => "get_volume_quota",
            Self::UpdateQuota => "update_volume_quota",
            Self::GetPools => "get_pools",
            Self::ListServices => "list_volume_services",
            Self::ListMessages => "list_messages",
            Self::GetMessage(_) => "get_message",
            Self::DeleteMessage(_) => "delete_message",
            Self::WrongProject | Self::Unknown => "unknown",
        }
    }

    /// Returns the microversion that introduced the call.
    fn since(&self) -> Version {
        match self {
            Self::ListAttachments { .. }
            | Self::CreateAttachment
            | Self::GetAttachment(_)
            | Self::UpdateAttachment(_)
            | Self::DeleteAttachment(_) => Version(3, 27),
            Self::CompleteAttachment(_) => Version(3, 44),
            Self::ListMessages | Self::GetMessage(_) | Self::DeleteMessage(_) => Version(3, 3),
            Self::Backups(call) => call.since(),
            Self::Groups(call) => call.since(),
            _ => Version(3, 0),
        }
    }
}

fn is_project_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Input of all handlers.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) cloud: &'a Arc<Cloud>,
    pub(super) request: &'a Request,
    pub(super) version: Version,
    pub(super) token: Token,
}

/// Handles a call.
pub(crate) fn answer(cloud: &Arc<Cloud>, call: &Call, request: &Request) -> Reply {
    match call {
        Call::ListVersions => return Reply::json(300, versions(cloud)),
        Call::GetVersion => return Reply::json(200, versions(cloud)),
        _ => {}
    }
    let token = match authenticate(cloud, request) {
        Ok(token) => token,
        Err(refusal) => return refusal,
    };
    let version = match cloud.settings.block_storage.negotiate(request) {
        Ok(version) => version,
        Err(fault) => return fault.render(Style::Compute),
    };
    let context = Context {
        cloud,
        request,
        version,
        token,
    };
    let reply = if version < call.since() {
        Err(Fault::not_found(format!(
            "API version {version} is not supported on this method."
        )))
    } else {
        context.answer(call)
    };
    let reply = reply.unwrap_or_else(|fault| fault.render(Style::Compute));
    cloud.settings.block_storage.stamp(reply, version)
}

impl Context<'_> {
    fn answer(&self, call: &Call) -> Result<Reply, Fault> {
        match call {
            Call::ListVolumes { detail } => self.list_volumes(*detail),
            Call::CreateVolume => self.create_volume(),
            Call::GetVolume(id) => self.get_volume(id),
            Call::UpdateVolume(id) => self.update_volume(id),
            Call::DeleteVolume(id) => self.delete_volume(id),
            Call::ExtendVolume(id) => self.extend_volume(id),
            Call::RetypeVolume(id) => self.retype_volume(id),
            Call::ResetStatus(id) => self.reset_status(id),
            Call::OtherAction(id) => self.other_action(id),
            Call::ListMetadata(id) => self.list_metadata(id),
            Call::MergeMetadata(id) => self.write_metadata(id, false),
            Call::ReplaceMetadata(id) => self.write_metadata(id, true),
            Call::DeleteMetadata(id, key) => self.delete_metadata(id, key),
            Call::Snapshots(call) => self.on_snapshots(call),
            Call::Backups(call) => self.on_backups(call),
            Call::Groups(call) => self.on_groups(call),
            Call::ListAttachments { detail } => self.list_attachments(*detail),
            Call::CreateAttachment => self.create_attachment(),
            Call::GetAttachment(id) => self.get_attachment(id),
            Call::UpdateAttachment(id) => self.update_attachment(id),
            Call::CompleteAttachment(id) => self.complete_attachment(id),
            Call::DeleteAttachment(id) => self.delete_attachment(id),
            Call::ListTypes => self.list_types(),
            Call::GetType(id) => self.get_type(id),
            Call::ListZones => Ok(self.list_zones()),
            Call::GetLimits => Ok(self.limits()),
            Call::GetQuota { defaults } => Ok(self.quota(*defaults)),
            Call::UpdateQuota => self.update_quota(),
            Call::GetPools => self.pools(),
            Call::ListServices => self.list_services(),
            Call::ListMessages => self.list_messages(),
            Call::GetMessage(id) => self.get_message(id),
            Call::DeleteMessage(id) => self.delete_message(id),
            Call::WrongProject => Err(Fault::bad_request("Malformed request url")),
            Call::ListVersions | Call::GetVersion => Err(Fault::not_found(crate::api::default_message(404))),
            Call::Unknown => Ok(Fault::not_found(crate::api::default_message(404)).without_json()),
        }
    }
}

fn versions(cloud: &Cloud) -> Value {
    json!({"versions": [{
        "id": "v3.0",
        "status": "CURRENT",
        "version": cloud.settings.block_storage.highest.to_string(),
        "min_version": cloud.settings.block_storage.lowest.to_string(),
        "updated": "2023-08-31T00:00:00Z",
        "links": [
            {"rel": "describedby", "type": "text/html", "href": "https://docs.openstack.org/"},
            {"rel": "self", "href": format!("{}/volume/v3/", cloud.settings.base_url)},
        ],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.volume+json;version=3"}],
    }]})
}
