// SPDX-License-Identifier: Apache-2.0
//! The list of servers.

use reqwest::Method;

use super::{Compute, Server};
use crate::api::pages::{Item, Listing};
use crate::error::CloudError;
use crate::http::service::Service;
use crate::http::transport::Request;

impl Item for Server {
    const KEY: &'static str = "servers";

    fn marker(&self) -> &str {
        self.id.as_str()
    }
}

impl Compute<'_> {
    /// Lists all servers of the project, page by page.
    pub(crate) async fn servers(&self) -> Result<Vec<Server>, CloudError> {
        let mut listing = Listing::default();
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
                .extend(listing.marker().map(|marker| ("marker", marker.to_owned())));
            let answer = self.transport.send(request).await?;
            if !listing.add_page(answer, &mut Some)? {
                return Ok(listing.into_results());
            }
        }
    }
}
