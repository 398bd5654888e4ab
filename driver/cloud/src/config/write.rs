// SPDX-License-Identifier: Apache-2.0
//! Writes the `cloud.conf` that the operator supplies to the driver.

use std::fmt::Write;

use secrecy::ExposeSecret;

use super::gcfg;
use super::{
    ApplicationCredential, Auth, BlockStorageOptions, CloudConfig, Domain, Interface, MetadataOptions, Project,
    Services, User,
};

type Keys = Vec<(&'static str, String)>;

impl CloudConfig {
    /// Writes a `cloud.conf` that [`CloudConfig::from_cloud_conf`] reads as the same configuration, secrets included.
    /// The format has no inline CA, so the caller supplies the path of its file in `ca_file`.
    pub fn to_cloud_conf(&self, ca_file: Option<&str>) -> String {
        let mut text = self.sections("", ca_file);
        let mut keys = Keys::new();
        if self.metadata.search_order != MetadataOptions::default().search_order {
            keys.push(("search-order", self.metadata.search_order.join(",")));
        }
        let timeout = self.metadata.request_timeout;
        keys.extend(timeout.map(|timeout| ("request-timeout", format!("{}ms", timeout.as_millis()))));
        section(&mut text, "Metadata", &keys);
        text
    }

    /// Writes the sections of a cloud of this name, for a `cloud.conf` with several clouds. Section `[Metadata]` is
    /// omitted, because it applies to all clouds.
    pub fn to_named_sections(&self, cloud: &str, ca_file: Option<&str>) -> String {
        self.sections(&format!(" {}", gcfg::quote(cloud)), ca_file)
    }

    fn sections(&self, suffix: &str, ca_file: Option<&str>) -> String {
        let mut keys: Keys = vec![("auth-url", self.auth_url.clone())];
        write_auth(&mut keys, &self.auth);
        keys.extend(self.region.clone().map(|region| ("region", region)));
        if self.interface != Interface::Public {
            keys.push(("os-endpoint-type", self.interface.as_str().to_owned()));
        }
        let own_ca = || self.tls.ca_file.as_ref().map(|path| path.display().to_string());
        write_services(&mut keys, &self.services);
        keys.extend(ca_file.map(str::to_owned).or_else(own_ca).map(|path| ("ca-file", path)));
        if let Some(client) = &self.tls.client {
            keys.push(("cert-file", client.cert_file.display().to_string()));
            keys.push(("key-file", client.key_file.display().to_string()));
        }
        let switches = [
            ("tls-insecure", self.tls.insecure),
            ("also-public-roots", self.tls.also_public_roots),
            ("allow-http-endpoints", self.allow_http_endpoints),
        ];
        let switched_on = switches.into_iter().filter(|(_, is_on)| *is_on);
        keys.extend(switched_on.map(|(key, _)| (key, "true".to_owned())));
        let mut text = String::new();
        section(&mut text, &format!("Global{suffix}"), &keys);
        section(
            &mut text,
            &format!("BlockStorage{suffix}"),
            &block_storage(&self.block_storage),
        );
        let pairs = |key: &'static str, pairs: &std::collections::BTreeMap<String, String>| -> Keys {
            let written = pairs.iter().map(|(left, right)| (key, format!("{left}={right}")));
            written.collect()
        };
        let mut keys = pairs("segment", &self.topology.segments);
        keys.append(&mut pairs("zone-map", &self.topology.zone_map));
        section(&mut text, &format!("Topology{suffix}"), &keys);
        text
    }
}

fn write_services(keys: &mut Keys, services: &Services) {
    let Services { block_storage, compute } = services;
    let mut add = |key, value: Option<&str>| keys.extend(value.map(|value| (key, value.to_owned())));
    add("block-storage-endpoint-override", block_storage.endpoint.as_deref());
    add(
        "block-storage-interface",
        block_storage.interface.map(Interface::as_str),
    );
    add("compute-endpoint-override", compute.endpoint.as_deref());
    add("compute-interface", compute.interface.map(Interface::as_str));
    add("compute-region", compute.region.as_deref());
}

fn block_storage(options: &BlockStorageOptions) -> Keys {
    let BlockStorageOptions {
        node_volume_attach_limit,
        rescan_on_resize,
        ignore_volume_az,
        ignore_volume_microversion,
    } = options;
    let limit = node_volume_attach_limit.iter();
    let mut keys: Keys = limit
        .map(|limit| ("node-volume-attach-limit", limit.to_string()))
        .collect();
    for (key, on) in [
        ("rescan-on-resize", rescan_on_resize),
        ("ignore-volume-az", ignore_volume_az),
        ("ignore-volume-microversion", ignore_volume_microversion),
    ] {
        if *on {
            keys.push((key, "true".to_owned()));
        }
    }
    keys
}

fn write_auth(keys: &mut Keys, auth: &Auth) {
    match auth {
        Auth::Password {
            user,
            password,
            project,
        } => {
            write_user(keys, user);
            keys.push(("password", password.expose_secret().to_owned()));
            write_project(keys, project);
        }
        Auth::Trust { user, password, trust } => {
            write_user(keys, user);
            keys.push(("password", password.expose_secret().to_owned()));
            keys.push(("trust-id", trust.clone()));
        }
        Auth::Token { token, project } => {
            keys.push(("token", token.expose_secret().to_owned()));
            write_project(keys, project);
        }
        Auth::ApplicationCredential { credential, secret } => {
            match credential {
                ApplicationCredential::Id(id) => keys.push(("application-credential-id", id.clone())),
                ApplicationCredential::Name { name, user } => {
                    keys.push(("application-credential-name", name.clone()));
                    write_user(keys, user);
                }
            }
            keys.push(("application-credential-secret", secret.expose_secret().to_owned()));
        }
    }
}

fn write_project(keys: &mut Keys, project: &Project) {
    match project {
        Project::Id(id) => keys.push(("tenant-id", id.clone())),
        Project::Name { name, domain } => {
            keys.push(("tenant-name", name.clone()));
            keys.push(match domain {
                Domain::Id(id) => ("tenant-domain-id", id.clone()),
                Domain::Name(name) => ("tenant-domain-name", name.clone()),
            });
        }
    }
}

fn write_user(keys: &mut Keys, user: &User) {
    match user {
        User::Id(id) => keys.push(("user-id", id.clone())),
        User::Name { name, domain } => {
            keys.push(("username", name.clone()));
            keys.push(match domain {
                Domain::Id(id) => ("user-domain-id", id.clone()),
                Domain::Name(name) => ("user-domain-name", name.clone()),
            });
        }
    }
}

fn section(text: &mut String, name: &str, keys: &[(&str, String)]) {
    if keys.is_empty() {
        return;
    }
    // Writing to a String cannot fail.
    let _ = writeln!(text, "[{name}]");
    for (key, value) in keys {
        let _ = writeln!(text, "{key} = {}", gcfg::quote(value));
    }
}
