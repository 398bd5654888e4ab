// SPDX-License-Identifier: Apache-2.0
//! Typed calls to Nova: servers and their volume attachments.

mod servers;
mod zones;

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use crate::api::block_storage::null_as_default;
use crate::api::pages::{Item, decode_list};
use crate::error::{CloudError, Failure};
use crate::http::service::{MicroVersion, Service};
use crate::http::transport::{Answer, Request, Transport};
use crate::ids::{ServerId, VolumeId};
use crate::memory_size::memory_size;

/// The first microversion in which Nova attaches multiattach volumes.
pub(crate) const MULTIATTACH: MicroVersion = MicroVersion(2, 60);

/// The first microversion in which Nova attaches to and detaches from shelved servers.
pub(crate) const SHELVED: MicroVersion = MicroVersion(2, 20);

/// The status of a shelved server that has no host.
const OFFLOADED: &str = "SHELVED_OFFLOADED";

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Server {
    pub id: ServerId,
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// `ACTIVE`, `SHUTOFF` and so on.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: String,
    /// The availability zone of Nova.
    #[serde(default, rename = "OS-EXT-AZ:availability_zone")]
    pub availability_zone: Option<String>,
    /// The current task of Nova on the server; `None` when it is idle.
    #[serde(default, rename = "OS-EXT-STS:task_state")]
    pub task_state: Option<String>,
    #[serde(default, rename = "os-extended-volumes:volumes_attached")]
    attached: Vec<AttachedVolume>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct AttachedVolume {
    id: VolumeId,
}

memory_size!(Server {
    id,
    name,
    status,
    availability_zone,
    task_state,
    attached,
});

memory_size!(AttachedVolume { id });

impl Server {
    /// Whether the server is shelved, with or without a host.
    pub(crate) fn is_shelved(&self) -> bool {
        matches!(self.status.as_str(), "SHELVED" | OFFLOADED)
    }

    /// Whether the server is shelved without a host and has no task that changes this. Nova handles its volumes
    /// without a host.
    pub(crate) fn is_offloaded(&self) -> bool {
        self.status == OFFLOADED && self.task_state.is_none()
    }

    /// The volumes that Nova counts as attached, which includes those that are still being attached.
    pub fn volumes(&self) -> impl ExactSizeIterator<Item = &VolumeId> {
        self.attached.iter().map(|volume| &volume.id)
    }
}

/// Nova's record of a volume at a server. It exists from the attach request until after the detachment, and does not
/// show whether the attachment is complete.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ServerAttachment {
    #[serde(default, rename = "volumeId")]
    volume: String,
    #[serde(default)]
    pub(crate) device: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Compute<'a> {
    transport: &'a Transport,
}

#[derive(Deserialize)]
struct ServerBody {
    server: Server,
}

#[derive(Deserialize)]
struct AttachmentBody {
    #[serde(rename = "volumeAttachment")]
    attachment: ServerAttachment,
}

#[derive(Deserialize)]
struct ListedAttachment {
    #[serde(rename = "volumeId")]
    volume: VolumeId,
}

impl Item for ListedAttachment {
    const KEY: &'static str = "volumeAttachments";
}

fn describe_pair(server: &ServerId, volume: &VolumeId) -> String {
    format!("volume {volume}, server {server}")
}

/// The response of Nova to an accepted attach request.
#[derive(Debug)]
pub(crate) struct AcceptedAttachment {
    pub(crate) device: Option<String>,
    pub(crate) request_id: Option<String>,
}

impl<'a> Compute<'a> {
    pub(crate) fn new(transport: &'a Transport) -> Self {
        Self { transport }
    }

    /// Gets a server. Returns `None` when Nova reports the server, by its id, as not found.
    pub(crate) async fn server(&self, id: &ServerId) -> Result<Option<Server>, CloudError> {
        let path = ["servers", id.as_str()];
        let mut request = Request::new(
            Service::Compute,
            "server_get",
            Method::GET,
            &path,
            format!("server {id}"),
        );
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if !answer.missing() {
            let body = answer.resource(id.as_str(), |body: &ServerBody| body.server.id.as_str())?;
            return Ok(Some(body.server));
        }
        let failure = answer.into_failure();
        // Nova names an unknown server. A 404 for an unknown URL proves nothing about the server.
        if failure
            .fault
            .to_ascii_lowercase()
            .contains(&id.as_str().to_ascii_lowercase())
        {
            Ok(None)
        } else {
            Err(CloudError::Unreachable { failure, sent: true })
        }
    }

    /// Requests an attachment. The driver does not repeat the request once it may have reached Nova. The inner error:
    /// Nova does not know the server or the volume.
    pub(crate) async fn attach(
        &self,
        server: &ServerId,
        volume: &VolumeId,
        version: Option<MicroVersion>,
    ) -> Result<Result<AcceptedAttachment, Failure>, CloudError> {
        let path = ["servers", server.as_str(), "os-volume_attachments"];
        let mut request = Request::new(
            Service::Compute,
            "volume_attach",
            Method::POST,
            &path,
            describe_pair(server, volume),
        );
        request.version = version;
        request.creates = true;
        request.body = Some(json!({ "volumeAttachment": { "volumeId": volume } }));
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            return Ok(Err(answer.into_failure()));
        }
        let request_id = answer.request_id().map(str::to_owned);
        Ok(Ok(AcceptedAttachment {
            device: answer.json::<AttachmentBody>()?.attachment.device,
            request_id,
        }))
    }

    /// Requests a detachment. The answer may be a 404.
    pub(crate) async fn detach(
        &self,
        server: &ServerId,
        volume: &VolumeId,
        version: Option<MicroVersion>,
    ) -> Result<Answer, CloudError> {
        let path = ["servers", server.as_str(), "os-volume_attachments", volume.as_str()];
        let mut request = Request::new(
            Service::Compute,
            "volume_detach",
            Method::DELETE,
            &path,
            describe_pair(server, volume),
        );
        request.version = version;
        request.may_be_missing = true;
        self.transport.send(request).await
    }

    /// Lists the volumes of which Nova has a record at the server; `None` when Nova does not know the server.
    pub(crate) async fn attachments(&self, server: &ServerId) -> Result<Option<Vec<VolumeId>>, CloudError> {
        let path = ["servers", server.as_str(), "os-volume_attachments"];
        let object = format!("server {server}");
        let mut request = Request::new(Service::Compute, "server_attachment_list", Method::GET, &path, object);
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            return Ok(None);
        }
        decode_list(answer, |attachment: ListedAttachment| Some(attachment.volume)).map(Some)
    }

    /// Gets Nova's record of the volume at the server; `None` when Nova does not know the record or the server.
    pub(crate) async fn attachment(
        &self,
        server: &ServerId,
        volume: &VolumeId,
    ) -> Result<Option<ServerAttachment>, CloudError> {
        let path = ["servers", server.as_str(), "os-volume_attachments", volume.as_str()];
        let mut request = Request::new(
            Service::Compute,
            "server_attachment_get",
            Method::GET,
            &path,
            describe_pair(server, volume),
        );
        request.may_be_missing = true;
        let answer = self.transport.send(request).await?;
        if answer.missing() {
            Ok(None)
        } else {
            let body = answer.resource(volume.as_str(), |body: &AttachmentBody| body.attachment.volume.as_str())?;
            Ok(Some(body.attachment))
        }
    }
}
