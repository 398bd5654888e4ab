// SPDX-License-Identifier: Apache-2.0
//! Credentials of the product's pods.

use harness::Simulator;
use serde_json::{Value, json};

/// An application credential and the address of its cloud.
#[derive(Clone)]
pub struct Login {
    /// URL of Keystone.
    pub auth_url: String,
    pub region: String,
    /// Id of the application credential.
    pub id: String,
    /// Secret of the application credential.
    pub secret: String,
}

impl Login {
    /// Returns the application credential of a simulator.
    pub fn of_simulator(simulator: &Simulator) -> Self {
        let access = simulator.access();
        Self {
            auth_url: access.auth_url.clone(),
            region: access.region.clone(),
            id: access.application_credential_id.clone(),
            secret: access.application_credential_secret.clone(),
        }
    }

    /// Returns a clouds.yaml with the entry `openstack`.
    pub fn clouds_yaml(&self) -> String {
        self.clouds_yaml_with(&json!({}))
    }

    /// Returns a clouds.yaml whose entry has additional keys.
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

    /// Returns a cloud.conf with the same credential.
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
