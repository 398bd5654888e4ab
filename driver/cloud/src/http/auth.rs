// SPDX-License-Identifier: Apache-2.0
//! Keystone: tokens and the service catalog.

mod body;
mod credential;
mod keystone;

use std::sync::Arc;

use async_trait::async_trait;
use openstack::auth::AuthType;
use openstack::{EndpointFilters, Error as SessionError, ErrorKind};
use reqwest::{Client, RequestBuilder, Url};

use crate::error::CloudError;
use crate::http::directory::Directory;

pub use credential::CredentialFacts;
pub(crate) use keystone::{Keystone, Token};

/// Token and catalog for the session, which uses one region of the catalog.
#[derive(Debug, Clone)]
pub(crate) struct SessionAuth {
    pub(crate) keystone: Arc<Keystone>,
    pub(crate) directory: Directory,
}

fn session_error(error: &CloudError) -> SessionError {
    SessionError::new(ErrorKind::AuthenticationFailed, error.to_string())
}

#[async_trait]
impl AuthType for SessionAuth {
    async fn authenticate(&self, _: &Client, request: RequestBuilder) -> Result<RequestBuilder, SessionError> {
        let token = self.keystone.token().await.map_err(|error| session_error(&error))?;
        Ok(request.header("x-auth-token", token.header.clone()))
    }

    async fn get_endpoint(&self, _: &Client, service: &str, _: &EndpointFilters) -> Result<Url, SessionError> {
        let token = self.keystone.token().await.map_err(|error| session_error(&error))?;
        self.directory
            .find(service, &token.catalog, &token.project_id)
            .ok_or_else(|| SessionError::new(ErrorKind::EndpointNotFound, service))
    }

    async fn refresh(&self, _: &Client) -> Result<(), SessionError> {
        self.keystone
            .token()
            .await
            .map(|_| ())
            .map_err(|error| session_error(&error))
    }
}
