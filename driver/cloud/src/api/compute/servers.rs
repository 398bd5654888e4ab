// SPDX-License-Identifier: Apache-2.0
//! The servers of the project.

use reqwest::Method;
use serde::Deserialize;

use super::{Compute, Server};
use crate::error::CloudError;
use crate::http::service::Service;
use crate::http::transport::Request;
use crate::ids::ServerId;

#[derive(Deserialize)]
struct ServersBody {
    servers: Vec<Server>,
    #[serde(default)]
    servers_links: Vec<Link>,
}

#[derive(Deserialize)]
struct Link {
    rel: String,
}

impl Compute<'_> {
    /// All servers of the project, page by page.
    pub(crate) async fn servers(&self) -> Result<Vec<Server>, CloudError> {
        let mut servers: Vec<Server> = Vec::new();
        let mut marker: Option<ServerId> = None;
        loop {
            let path = ["servers", "detail"];
            let mut request = Request::new(
                Service::Compute,
                "server_list",
                Method::GET,
                &path,
                "servers of the project".to_owned(),
            );
            request
                .query
                .extend(marker.as_ref().map(|marker| ("marker", marker.to_string())));
            let body = self.transport.send(request).await?.json::<ServersBody>()?;
            let more = body.servers_links.iter().any(|link| link.rel == "next");
            let last = body.servers.last().map(|server| server.id.clone());
            servers.extend(body.servers);
            // A service that ignores the marker would have us turn for ever.
            if !more || last.is_none() || last == marker {
                return Ok(servers);
            }
            marker = last;
        }
    }
}
