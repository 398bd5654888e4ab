// SPDX-License-Identifier: Apache-2.0
//! The metadata service, limited to the identity of the server.

use std::convert::Infallible;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{Body, Reply};
use crate::cloud::Cloud;
use crate::listener::{Listener, ListenerError};
use crate::service;

/// The server that a [`MetadataServer`] describes.
#[derive(Debug, Clone)]
pub struct MetadataConfig {
    pub listen: SocketAddr,
    pub instance_id: String,
    pub name: String,
    pub zone: String,
}

/// The metadata service of one server, as on the link-local address.
#[derive(Debug)]
pub struct MetadataServer {
    url: String,
    stopped: CancellationToken,
}

impl MetadataServer {
    /// Starts the service and returns when it listens.
    pub async fn start(config: MetadataConfig) -> Result<Self, ListenerError> {
        let listener = Listener::bind(config.listen, None, None).await?;
        let url = listener.url();
        let document = document(&config.instance_id, &config.name, &config.zone, None);
        let stopped = CancellationToken::new();
        tokio::spawn(listener.serve(stopped.clone(), move |request| {
            let response = service::answer_metadata(&document, &request);
            async move { Ok::<_, Infallible>(response) }
        }));
        Ok(Self { url, stopped })
    }

    /// Returns the URL of the service.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for MetadataServer {
    fn drop(&mut self) {
        self.stopped.cancel();
    }
}

/// Returns the metadata document of a server.
fn document(id: &str, name: &str, zone: &str, project_id: Option<&str>) -> Value {
    json!({
        "uuid": id,
        "name": name,
        "hostname": format!("{name}.novalocal"),
        "availability_zone": zone,
        "project_id": project_id,
        "launch_index": 0,
        "meta": {},
        "keys": [],
        "devices": [],
        "dedicated_cpus": [],
    })
}

/// Handles a request to the link-local address.
pub(crate) fn answer(document: &Value, path: &[&str]) -> Reply {
    match path {
        ["openstack", "latest", "meta_data.json"] => Reply::json(200, document.clone()),
        ["openstack"] => text(200, "2018-08-27\nlatest"),
        ["openstack", "latest"] => text(200, "meta_data.json"),
        _ => not_found(),
    }
}

/// Handles a request below the simulator's own address, for any server.
pub(crate) fn of_server(cloud: &Cloud, server: &str, path: &[&str]) -> Reply {
    let document = cloud.read(|world| {
        let server = world.servers.get(server)?;
        let project = &cloud.settings.identity.project_id;
        Some(document(
            &server.spec.id,
            &server.spec.name,
            &server.spec.zone,
            Some(project),
        ))
    });
    document.map_or_else(not_found, |document| answer(&document, path))
}

fn not_found() -> Reply {
    text(404, "<html><head><title>404 Not Found</title></head></html>")
}

fn text(status: u16, text: &str) -> Reply {
    Reply {
        status,
        headers: Vec::new(),
        body: Body::Html(text.to_owned()),
    }
}
