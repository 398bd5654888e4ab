// SPDX-License-Identifier: Apache-2.0
//! State of the clouds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a cloud.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CloudStatus {
    /// Name of the cloud in the spec.
    pub name: String,

    /// Whether login with the current credentials of the Secret works.
    pub authenticated: bool,

    /// How the driver logs in: ApplicationCredential, Password, Trust or Token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,

    /// Expiry of the application credential, or of a token that cannot be renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_expires_at: Option<Time>,

    /// Earliest expiry of a certificate in the CA bundles of the cloud and of the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_expires_at: Option<Time>,

    /// Expiry of the client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert_expires_at: Option<Time>,

    /// The availability zones of Nova, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compute_zones: Vec<String>,

    /// The availability zones of Cinder, at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_zones: Vec<String>,
}

/// The project and region of the volumes of a cloud.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CloudPlace {
    /// Name of the cloud in the spec.
    pub cloud: String,
    /// The id of the project.
    #[serde(rename = "projectID")]
    pub project_id: String,
    /// Region of Cinder. Absent if the service catalogue has no region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}
