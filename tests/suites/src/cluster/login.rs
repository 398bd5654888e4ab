// SPDX-License-Identifier: Apache-2.0
//! How the product's pods log in.

use serde_json::{Value, json};

/// How pods log in to the cloud with an application credential.
#[derive(Clone)]
pub struct Login {
    /// Keystone.
    pub auth_url: String,
    /// The region.
    pub region: String,
    /// The application credential.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

impl Login {
    /// A clouds.yaml with the entry `openstack`.
    pub fn clouds_yaml(&self) -> String {
        self.clouds_yaml_with(&json!({}))
    }

    /// The same with more keys of the entry.
    pub fn clouds_yaml_with(&self, keys: &Value) -> String {
        let mut entry = json!({
            "auth_type": "v3applicationcredential",
            "region_name": self.region,
            "auth": {
                "auth_url": self.auth_url,
                "application_credential_id": self.id,
                "application_credential_secret": self.secret,
            },
        });
        for (key, value) in keys.as_object().into_iter().flatten() {
            entry[key] = value.clone();
        }
        json!({"clouds": {"openstack": entry}}).to_string()
    }

    /// A cloud.conf that logs in with the same credential.
    pub fn cloud_conf(&self) -> String {
        format!(
            "[Global]\nauth-url = {}\nregion = {}\napplication-credential-id = {}\napplication-credential-secret = {}\n",
            self.auth_url, self.region, self.id, self.secret
        )
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Login")
            .field("auth_url", &self.auth_url)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
