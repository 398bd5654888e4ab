// SPDX-License-Identifier: Apache-2.0
//! Clouds, with references to their credentials and certificates.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::OBJECT_NAME;

/// Valid name of a section of cloud.conf, also in the Go driver: no control characters, quotes and
/// backslashes.
const SECTION: &str = r#"^[^\x00-\x1f\x7f"\\]+$"#;

/// An OpenStack cloud. All references are to objects in the namespace of the driver.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.insecureSkipTLSVerify) && self.insecureSkipTLSVerify) || !has(self.caBundleRef)")
    .message("insecureSkipTLSVerify turns off what caBundleRef is for: give one of them"))]
pub struct Cloud {
    /// Name of this cloud in messages and in the status.
    #[serde(default = "default_cloud")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Name of this cloud in the driver's configuration. Defaults to `name`. Secrets of volumes select the
    /// cloud by it (key cloud). In the Go driver it is the name of a section, [Global "SECTION"]. With a
    /// section, Secrets cannot select the cloud by `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SECTION))]
    pub section: Option<String>,

    /// Secret with the credentials: a clouds.yaml, or a cloud.conf in the format of the Go driver.
    pub credentials_secret_ref: SecretKeyRef,

    /// Entry of clouds.yaml to use. It has no effect on a cloud.conf.
    #[serde(default = "default_cloud_name")]
    #[schemars(length(min = 1, max = 253))]
    pub cloud_name: String,

    /// Region in the service catalogue. Defaults to the region in the credentials file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub region: Option<String>,

    /// Certificates of the authorities that signed the cloud's endpoints, in PEM format. Defaults to the
    /// public authorities. The bundle replaces the public authorities, unless also-public-roots is true in
    /// cloud.conf (also_public_roots in clouds.yaml).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,

    /// Type of endpoints to use from the service catalogue. Defaults to the type in the credentials file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_type: Option<EndpointType>,

    /// Secret of type kubernetes.io/tls with a client certificate (keys tls.crt and tls.key), for a cloud
    /// that requires one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert_secret_ref: Option<ClientCertRef>,

    /// Disables the verification of the cloud's certificate. A client on the network path can then read the
    /// credentials. Condition CredentialsValid reports the setting. Use it in test environments only.
    #[serde(rename = "insecureSkipTLSVerify", default)]
    pub insecure_skip_tls_verify: bool,

    /// Maps zones of Nova to zones of Cinder with different names. Other zones have the same name in both.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 64,
        "additionalProperties" = serde_json::json!({ "type": "string", "minLength": 1, "maxLength": 255 }),
    ))]
    #[x_kube(validation = Rule::new("self.all(zone, zone.size() > 0 && !zone.contains('='))")
        .message("the zones of Nova on the left must have names without =, which ends the name in the driver's configuration"))]
    pub availability_zone_map: BTreeMap<String, String>,

    /// Value of the label topology.kubernetes.io/region on the nodes that are servers of this cloud. Each
    /// node then reports its region, and one StorageClass creates volumes in the cloud of the pod's node. Set
    /// a distinct value for every cloud, or for none. It requires zones and Kubernetes 1.35, and the driver
    /// then runs only on nodes with that label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub node_region: Option<String>,
}

impl Cloud {
    /// Creates the cloud `default`, with credentials under the key `clouds.yaml` of the named Secret.
    pub fn from_secret(name: impl Into<String>) -> Self {
        Self {
            name: default_cloud(),
            section: None,
            credentials_secret_ref: SecretKeyRef {
                name: name.into(),
                key: default_credentials_key(),
            },
            cloud_name: default_cloud_name(),
            region: None,
            ca_bundle_ref: None,
            endpoint_type: None,
            client_cert_secret_ref: None,
            insecure_skip_tls_verify: false,
            availability_zone_map: BTreeMap::new(),
            node_region: None,
        }
    }

    /// Name of the cloud in the driver's configuration.
    pub fn section_name(&self) -> &str {
        self.section.as_deref().unwrap_or(&self.name)
    }
}

/// Type of a service endpoint.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EndpointType {
    /// The endpoint for users.
    Public,
    /// The endpoint in the internal network of the cloud.
    Internal,
    /// The endpoint for administrators.
    Admin,
}

/// A Secret of type kubernetes.io/tls in the namespace of the driver.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClientCertRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
}

/// A key of a Secret in the namespace of the driver.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,

    /// Key of the Secret. Its suffix selects the format: .yaml or .yml for a clouds.yaml, .conf for a
    /// cloud.conf.
    #[serde(default = "default_credentials_key")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.endsWith('.yaml') || self.endsWith('.yml') || self.endsWith('.conf')")
        .message("the key must end in .yaml or .yml (a clouds.yaml) or in .conf (a cloud.conf): the ending says how the content is read"))]
    pub key: String,
}

/// A key of a ConfigMap or Secret in the namespace of the driver, with certificates in PEM format.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CaBundleRef {
    /// Kind of the object with the certificates.
    #[serde(default)]
    pub kind: CaBundleKind,

    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,

    /// Key in the object.
    #[serde(default = "default_ca_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Kind of an object with certificates.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaBundleKind {
    /// A ConfigMap.
    #[default]
    ConfigMap,
    /// A Secret.
    Secret,
}

fn default_cloud() -> String {
    "default".into()
}

fn default_cloud_name() -> String {
    "openstack".into()
}

fn default_credentials_key() -> String {
    "clouds.yaml".into()
}

fn default_ca_key() -> String {
    "ca.crt".into()
}
