// SPDX-License-Identifier: Apache-2.0
//! Where a cloud's credentials and certificates are.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OBJECT_NAME;

/// Text that a section of cloud.conf can have as its name, also in the Go driver: no control characters, quotes and backslashes.
const SECTION: &str = r#"^[^\x00-\x1f\x7f"\\]+$"#;

/// An OpenStack cloud. Every reference is to an object in the namespace where the driver runs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.insecureSkipTLSVerify) && self.insecureSkipTLSVerify) || !has(self.caBundleRef)")
    .message("insecureSkipTLSVerify turns off what caBundleRef is for: give one of them"))]
pub struct Cloud {
    /// Name of this cloud, for messages and for the status.
    #[serde(default = "default_cloud")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,

    /// Name of this cloud in the driver's configuration, which Secrets of volumes choose it by (key cloud): the Go driver's
    /// [Global "SECTION"]. Defaults to `name`. With a section, Secrets with `name` do not choose the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SECTION))]
    pub section: Option<String>,

    /// The Secret with the credentials: a clouds.yaml, or a cloud.conf as the Go driver takes it.
    pub credentials_secret_ref: SecretKeyRef,

    /// The entry of clouds.yaml to use. Without meaning for a cloud.conf.
    #[serde(default = "default_cloud_name")]
    #[schemars(length(min = 1, max = 253))]
    pub cloud_name: String,

    /// Region of the catalogue, where the credentials' file names none or another one is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub region: Option<String>,

    /// The certificates of the authorities that signed the cloud's endpoints, in PEM. They replace the public ones, unless
    /// also-public-roots is true in cloud.conf (also_public_roots in clouds.yaml). Defaults to the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,

    /// Which endpoints of the catalogue are used, where the credentials' file names none or another kind is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_type: Option<EndpointType>,

    /// A Secret of type kubernetes.io/tls (keys tls.crt and tls.key) with the certificate for a cloud that requires client
    /// certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert_secret_ref: Option<ClientCertRef>,

    /// Whether the certificate of the cloud is not verified. A client on the network path can then read the credentials. Condition
    /// CredentialsValid reports it. Use it in test environments only.
    #[serde(rename = "insecureSkipTLSVerify", default)]
    pub insecure_skip_tls_verify: bool,

    /// The zone of Cinder for each zone of Nova that has another name there. Zones that are not named have the same name in
    /// both.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 64,
        "additionalProperties" = serde_json::json!({ "type": "string", "minLength": 1, "maxLength": 255 }),
    ))]
    #[x_kube(validation = Rule::new("self.all(zone, zone.size() > 0 && !zone.contains('='))")
        .message("the zones of Nova on the left must have names without =, which ends the name in the driver's configuration"))]
    pub availability_zone_map: BTreeMap<String, String>,

    /// Value of the label topology.kubernetes.io/region on the nodes that are servers of this cloud. With it each node reports its
    /// region, and one StorageClass makes volumes in the cloud of the pod's node. Every cloud has another one, or none has any. Needs
    /// zones and Kubernetes 1.35, and the driver runs only on nodes with that label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub node_region: Option<String>,
}

impl Cloud {
    /// The cloud `default`, with the credentials under the key `clouds.yaml` of the Secret of this name.
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

    /// Its name in the driver's configuration.
    pub fn section_name(&self) -> &str {
        self.section.as_deref().unwrap_or(&self.name)
    }
}

/// Which of a service's endpoints.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EndpointType {
    /// The one for users.
    Public,
    /// The one inside the cloud's own network.
    Internal,
    /// The one for administrators.
    Admin,
}

/// A Secret of type kubernetes.io/tls in the namespace where the driver runs.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClientCertRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,
}

/// A key of a Secret in the namespace where the driver runs.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = OBJECT_NAME))]
    pub name: String,

    /// Key of the Secret. Its ending says what is in it: .yaml or .yml a clouds.yaml, .conf a cloud.conf.
    #[serde(default = "default_credentials_key")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.endsWith('.yaml') || self.endsWith('.yml') || self.endsWith('.conf')")
        .message("the key must end in .yaml or .yml (a clouds.yaml) or in .conf (a cloud.conf): the ending says how the content is read"))]
    pub key: String,
}

/// A key of a ConfigMap or Secret in the namespace where the driver runs that holds certificates in PEM.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CaBundleRef {
    /// What kind of object holds the certificates.
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

/// Where certificates are kept.
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
