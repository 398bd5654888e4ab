// SPDX-License-Identifier: Apache-2.0
//! The observed clouds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A cloud.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CloudStatus {
    /// Its name in the spec.
    pub name: String,

    /// Whether login with the present credentials of the Secret works.
    pub authenticated: bool,

    /// How the driver logs in: ApplicationCredential, Password, Trust or Token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,

    /// When the application credential, or the token that cannot be renewed, expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_expires_at: Option<Time>,

    /// When the first certificate of the CA bundles, of cloud and proxy, expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_expires_at: Option<Time>,

    /// When the client certificate expires.
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
    /// The cloud's name in the spec.
    pub cloud: String,
    /// The id of the project.
    #[serde(rename = "projectID")]
    pub project_id: String,
    /// The region of Cinder; missing where the catalogue names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}
