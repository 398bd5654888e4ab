// SPDX-License-Identifier: Apache-2.0
//! The client that the calls to Cinder share.

use reqwest::Method;
use serde::{Deserialize, Deserializer};

use crate::http::service::Service;
use crate::http::transport::{Request, Transport};

#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockStorage<'a> {
    pub(super) transport: &'a Transport,
}

impl<'a> BlockStorage<'a> {
    pub(crate) fn new(transport: &'a Transport) -> Self {
        Self { transport }
    }

    pub(super) fn request<'p>(
        operation: &'static str,
        method: Method,
        path: &'p [&'p str],
        object: impl Into<String>,
    ) -> Request<'p> {
        Request::new(Service::BlockStorage, operation, method, path, object.into())
    }
}

pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
