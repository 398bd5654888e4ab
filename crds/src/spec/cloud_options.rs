// SPDX-License-Identifier: Apache-2.0
//! How the driver uses OpenStack: what goes for all clouds of a driver.

// KubeSchema makes a second struct of each, which an attribute of the first does not reach.
#![allow(clippy::struct_field_names, reason = "the fields of a proxy are named as everywhere")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cloud::CaBundleRef;

/// How the driver uses Cinder, for all clouds.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BlockStorage {
    /// How many volumes of the driver a node may have. Defaults to what the node counts that its bus has room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub node_volume_attach_limit: Option<u32>,

    /// Whether a raw device that grew is looked at again on its node. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescan_on_resize: Option<bool>,

    /// Whether zones of volumes are of no interest, where Nova can attach volumes of any zone. Defaults to what a
    /// cloud.conf among the credentials says.
    #[serde(rename = "ignoreVolumeAZ", default, skip_serializing_if = "Option::is_none")]
    pub ignore_volume_az: Option<bool>,

    /// Whether nothing is asked of Cinder that needs a microversion, for a cloud whose Cinder mistakes them. Defaults
    /// to what a cloud.conf among the credentials says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_volume_microversion: Option<bool>,
}

/// The proxies on the way to OpenStack.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.httpProxy) || has(self.httpsProxy)")
    .message("a proxy needs httpProxy, httpsProxy or both"))]
pub struct Proxy {
    /// URL of the proxy for http endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 8, max = 512), regex(pattern = r"^(https?|socks5h?)://\S+$"))]
    #[x_kube(validation = Rule::new("!self.contains('@')").message("the URL of a proxy must not hold credentials: pods show it to everybody who may read them"))]
    pub http_proxy: Option<String>,

    /// URL of the proxy for https endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 8, max = 512), regex(pattern = r"^(https?|socks5h?)://\S+$"))]
    #[x_kube(validation = Rule::new("!self.contains('@')").message("the URL of a proxy must not hold credentials: pods show it to everybody who may read them"))]
    pub https_proxy: Option<String>,

    /// Hosts, domains and networks that are reached without the proxy. The metadata service, .svc and the address of the
    /// Kubernetes API are always among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253), regex(pattern = r"^[^\s,$]+$")))]
    pub no_proxy: Vec<String>,

    /// The certificates, in PEM, of the authorities of a proxy that looks into TLS, or that is reached over it. They are trusted for every
    /// cloud, as well as those of clouds[].caBundleRef, or the public ones where a cloud has none. The driver reloads a change without a
    /// restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
}
