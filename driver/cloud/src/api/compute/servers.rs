// SPDX-License-Identifier: Apache-2.0
//! The list of servers.

use reqwest::Method;
use serde::Deserialize;

use super::{Compute, Server};
use crate::api::pages::{PageFacts, Pages};
use crate::error::CloudError;
use crate::http::service::Service;
use crate::http::transport::Request;

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
    /// Lists all servers of the project, page by page.
    pub(crate) async fn servers(&self) -> Result<Vec<Server>, CloudError> {
        let mut servers: Vec<Server> = Vec::new();
        let mut pages = Pages::default();
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
                .extend(pages.marker().map(|marker| ("marker", marker.to_owned())));
            let answer = self.transport.send(request).await?;
            let (page, has_more) = pages.decode_page(answer, |page: &ServersBody| PageFacts {
                items: page.servers.len(),
                has_next: page.servers_links.iter().any(|link| link.rel == "next"),
                last: page.servers.last().map(|server| server.id.to_string()),
            })?;
            servers.extend(page.servers);
            if !has_more {
                return Ok(servers);
            }
        }
    }
}
