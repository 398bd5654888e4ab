// SPDX-License-Identifier: Apache-2.0
//! Insecure parts of a configuration.

use std::fmt;

use super::CloudConfig;

/// A part of a configuration with which other hosts of the network can read the traffic, or impersonate the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insecurity {
    /// `tls-insecure`.
    AnyCertificate,
    /// `auth-url` with http.
    HttpKeystone,
    /// `allow-http-endpoints`.
    HttpEndpoints,
}

impl fmt::Display for Insecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnyCertificate => "any certificate is accepted",
            Self::HttpKeystone => "auth-url has http, so that the password is sent in clear text",
            Self::HttpEndpoints => "allow-http-endpoints permits that tokens are sent in clear text",
        })
    }
}

impl CloudConfig {
    /// Lists the insecure parts. A proxy is not one of them, even one with http, because https passes through it in a
    /// tunnel.
    pub fn insecurities(&self) -> Vec<Insecurity> {
        let parts = [
            (self.tls.insecure, Insecurity::AnyCertificate),
            (!self.uses_https(), Insecurity::HttpKeystone),
            (self.allow_http_endpoints, Insecurity::HttpEndpoints),
        ];
        let present = parts.into_iter().filter(|(is_present, _)| *is_present);
        present.map(|(_, insecurity)| insecurity).collect()
    }

    /// Whether Keystone is reached over TLS.
    pub(crate) fn uses_https(&self) -> bool {
        self.auth_url.starts_with("https://")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insecure_parts_are_listed() {
        let conf = "[Global]\nauth-url=https://k\nuser-id=u\npassword=p\ntenant-id=t\n";
        let secure = CloudConfig::from_cloud_conf(conf).expect("good");
        assert_eq!(secure.insecurities(), []);
        let conf = conf.replace("https://", "http://");
        let conf = format!("{conf}tls-insecure=true\nallow-http-endpoints=true\n");
        let config = CloudConfig::from_cloud_conf(&conf).expect("good");
        assert_eq!(
            config.insecurities(),
            [
                Insecurity::AnyCertificate,
                Insecurity::HttpKeystone,
                Insecurity::HttpEndpoints
            ]
        );
    }
}
