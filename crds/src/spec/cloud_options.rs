// SPDX-License-Identifier: Apache-2.0
//! Options of the driver that apply to all its clouds.

// KubeSchema derives a second struct from each. Attributes of the first do not apply to it.
#![allow(clippy::struct_field_names, reason = "the fields of a proxy are named as everywhere")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cloud::CaBundleRef;

/// How the driver uses Cinder, in all clouds.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BlockStorage {
    /// Maximum number of volumes of the driver on a node. Defaults to the number of free slots that the
    /// driver counts on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub node_volume_attach_limit: Option<u32>,

    /// Whether the driver rescans an expanded raw device on its node. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescan_on_resize: Option<bool>,

    /// Whether the driver ignores the zones of volumes, for clouds whose Nova attaches volumes of any zone.
    /// Defaults to the value in a cloud.conf among the credentials.
    #[serde(rename = "ignoreVolumeAZ", default, skip_serializing_if = "Option::is_none")]
    pub ignore_volume_az: Option<bool>,

    /// Whether the driver avoids Cinder requests that need a microversion, for clouds whose Cinder handles
    /// microversions incorrectly. Defaults to the value in a cloud.conf among the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_volume_microversion: Option<bool>,
}

/// Proxies between the driver and OpenStack.
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

    /// Hosts, domains and networks to connect to without the proxy. The metadata service, .svc and the
    /// address of the Kubernetes API are always included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 253), regex(pattern = r"^[^\s,$]+$")))]
    pub no_proxy: Vec<String>,

    /// Certificates of the authorities of the proxy, in PEM format, for a proxy that inspects TLS or is
    /// itself reached over TLS. The driver trusts them for every cloud, in addition to clouds[].caBundleRef
    /// or the public authorities. The driver reloads a change without a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
}
