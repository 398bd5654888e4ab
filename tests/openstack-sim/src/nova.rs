// SPDX-License-Identifier: Apache-2.0
//! Nova v2.1.

mod attachments;
mod servers;

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{Fault, Reply, Request, Style};
use crate::cloud::Cloud;
use crate::keystone::authenticate;
use crate::microversion::Version;

/// A call of Nova.
#[derive(Debug, Clone, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Call {
    ListVersions,
    GetVersion,
    ListServers { detail: bool },
    GetServer(String),
    ListAttachments(String),
    GetAttachment(String, String),
    Attach(String),
    Detach(String, String),
    ListZones,
    Unknown,
}

impl Call {
    /// Returns the call of a request; `path` excludes the prefix of the service.
    pub(crate) fn route(method: &str, path: &[&str]) -> Self {
        let own = |id: &&str| (*id).to_owned();
        match (method, path) {
            ("GET", []) => Self::ListVersions,
            ("GET", ["v2.1"]) => Self::GetVersion,
            ("GET", ["v2.1", "servers"]) => Self::ListServers { detail: false },
            ("GET", ["v2.1", "servers", "detail"]) => Self::ListServers { detail: true },
            ("GET", ["v2.1", "servers", id]) => Self::GetServer(own(id)),
            ("GET", ["v2.1", "servers", id, "os-volume_attachments"]) => Self::ListAttachments(own(id)),
            ("POST", ["v2.1", "servers", id, "os-volume_attachments"]) => Self::Attach(own(id)),
            ("GET", ["v2.1", "servers", id, "os-volume_attachments", volume]) => {
                Self::GetAttachment(own(id), own(volume))
            }
            ("DELETE", ["v2.1", "servers", id, "os-volume_attachments", volume]) => Self::Detach(own(id), own(volume)),
            ("GET", ["v2.1", "os-availability-zone"]) => Self::ListZones,
            _ => Self::Unknown,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ListVersions => "list_compute_versions",
            Self::GetVersion => "get_compute_version",
            Self::ListServers { detail: false } => "list_servers",
            Self::ListServers { detail: true } => "list_servers_detail",
            Self::GetServer(_) => "get_server",
            Self::ListAttachments(_) => "list_server_volumes",
            Self::GetAttachment(..) => "get_server_volume",
            Self::Attach(_) => "attach_volume",
            Self::Detach(..) => "detach_volume",
            Self::ListZones => "list_compute_zones",
            Self::Unknown => "unknown",
        }
    }
}

/// Input of all handlers.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) cloud: &'a Arc<Cloud>,
    pub(super) request: &'a Request,
    pub(super) version: Version,
    pub(super) admin: bool,
}

/// Handles a call.
pub(crate) fn answer(cloud: &Arc<Cloud>, call: &Call, request: &Request) -> Reply {
    match call {
        Call::ListVersions => return Reply::json(200, json!({"versions": [version_view(cloud)]})),
        Call::GetVersion => return Reply::json(200, json!({"version": version_view(cloud)})),
        _ => {}
    }
    let token = match authenticate(cloud, request) {
        Ok(token) => token,
        Err(refusal) => return refusal,
    };
    let version = match cloud.settings.compute.negotiate(request) {
        Ok(version) => version,
        Err(fault) => return fault.render(Style::Compute),
    };
    let context = Context {
        cloud,
        request,
        version,
        admin: token.admin,
    };
    let reply = match call {
        Call::ListServers { detail } => context.list_servers(*detail),
        Call::GetServer(id) => context.get_server(id),
        Call::ListAttachments(server) => context.list_attachments(server),
        Call::GetAttachment(server, volume) => context.get_attachment(server, volume),
        Call::Attach(server) => context.attach(server),
        Call::Detach(server, volume) => context.detach(server, volume),
        Call::ListZones => Ok(context.list_zones()),
        Call::ListVersions | Call::GetVersion | Call::Unknown => {
            Err(Fault::not_found(crate::api::default_message(404)))
        }
    };
    let reply = reply.unwrap_or_else(|fault| fault.render(Style::Compute));
    cloud.settings.compute.stamp(reply, version)
}

fn version_view(cloud: &Cloud) -> Value {
    json!({
        "id": "v2.1",
        "status": "CURRENT",
        "version": cloud.settings.compute.highest.to_string(),
        "min_version": cloud.settings.compute.lowest.to_string(),
        "updated": "2013-07-23T11:33:21Z",
        "links": [
            {"rel": "self", "href": format!("{}/compute/v2.1/", cloud.settings.base_url)},
            {"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"},
        ],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}],
    })
}
