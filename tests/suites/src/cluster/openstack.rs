// SPDX-License-Identifier: Apache-2.0
//! Real Keystone, Cinder and Nova for a cluster whose nodes are their servers.
//!
//! The services listen on the machine's loopback interface, and their catalog contains that address. A gateway makes
//! them available at the same ports of the first node. It replaces the address in responses and records the requests.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use harness::{CloudConfig, Cluster, ClusterConfig, Node, NodeConfig};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::Login;
use crate::gateway::{Door, Exchange, Gateway};
use crate::openstack::{Api, Service, keys};
use crate::real_cloud::{CloudLock, Description, FAR_ZONE, Server, ZONE, control, log_in_to_a_clean_cloud, take};

/// Port of Keystone with TLS.
pub const SECURE_KEYSTONE: u16 = 28543;

/// The exclusive right to use the services, before there is a cluster.
#[derive(Debug)]
pub(super) struct Site {
    description: Description,
    api: Api,
    turn: CloudLock,
}

impl Site {
    /// Waits for the lock, starts the services if needed, and cleans up after failed users.
    pub(super) async fn take() -> Result<Self> {
        let (turn, mut description) = take().await?;
        let api = log_in_to_a_clean_cloud(&mut description).await?;
        Ok(Self { description, api, turn })
    }

    /// Returns the configuration of a cluster with a node for each server of the first zone.
    pub(super) fn cluster(&self) -> ClusterConfig {
        let node = |(number, server): (usize, &Server)| node(&format!("node{number}"), server, ZONE);
        ClusterConfig {
            nodes: (1..).zip(&self.description.servers).map(node).collect(),
            cloud: CloudConfig::Real,
            ..ClusterConfig::default()
        }
    }

    /// Returns the configuration of a cluster with additional nodes for the servers of the other zone.
    pub(super) fn cluster_in_both_zones(&self) -> ClusterConfig {
        let mut config = self.cluster();
        for server in &self.description.far_servers {
            let name = format!("node{}", config.nodes.len() + 1);
            config.nodes.push(node(&name, server, FAR_ZONE));
        }
        config
    }

    /// Connects the cluster with the services.
    pub(super) async fn open(self, cluster: &Cluster) -> Result<OpenStack> {
        let host = cluster.first_node()?.address();
        let ports = &self.description.ports;
        let mut doors = Vec::new();
        for port in [ports.keystone, ports.cinder, ports.nova] {
            let listener = cluster.listen(port).await?;
            let tls = None;
            doors.push(Door { listener, port, tls });
        }
        let (authority, tls) = certificate(host)?;
        doors.push(Door {
            listener: cluster.listen(SECURE_KEYSTONE).await?,
            port: ports.keystone,
            tls: Some(Arc::new(tls)),
        });
        Ok(OpenStack {
            gateway: Gateway::through(doors, Some(host)).await?,
            host,
            authority,
            stopped: Mutex::default(),
            description: self.description,
            api: self.api,
            turn: self.turn,
        })
    }
}

/// The real services.
#[derive(Debug)]
pub struct OpenStack {
    description: Description,
    api: Api,
    gateway: Gateway,
    host: Ipv4Addr,
    authority: String,
    stopped: Mutex<BTreeSet<String>>,
    turn: CloudLock,
}

impl OpenStack {
    /// Returns the URL of Keystone for pods.
    pub fn auth_url(&self) -> String {
        format!("http://{}:{}/v3", self.host, self.description.ports.keystone)
    }

    /// Returns the URL of Keystone with TLS; [`OpenStack::authority`] is the CA of its certificate.
    pub fn secure_auth_url(&self) -> String {
        format!("https://{}:{SECURE_KEYSTONE}/v3", self.host)
    }

    /// Returns the CA certificate of Keystone in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns a session of the driver's user outside of the cluster.
    pub const fn api(&self) -> &Api {
        &self.api
    }

    /// Returns a cloud.conf with the password of the project's member, for use outside of the cluster.
    pub fn member_conf(&self) -> &Path {
        &self.description.member_conf
    }

    pub(super) fn login(&self) -> Result<Login> {
        let keys = keys(&self.description.cloud_conf)?;
        let key = |name: &str| {
            keys.get(name)
                .cloned()
                .with_context(|| format!("cloud.conf has no {name}"))
        };
        Ok(Login {
            auth_url: self.auth_url(),
            region: self.description.region.clone(),
            id: key("application-credential-id")?,
            secret: key("application-credential-secret")?,
        })
    }

    /// Returns the cluster's requests so far.
    pub fn calls(&self) -> Vec<Exchange> {
        self.gateway.log()
    }

    /// Returns Cinder's zones.
    pub fn zones(&self) -> &[String] {
        &self.description.zones
    }

    /// Returns the volume type for a purpose: `anywhere`, `archive` (for retypes from `anywhere`), or `multiattach`.
    pub fn volume_type(&self, purpose: &str) -> Option<&str> {
        self.description.roles.get(purpose).map(String::as_str)
    }

    /// Returns the group type with consistent snapshots.
    pub fn group_type(&self) -> &str {
        &self.description.group_type
    }

    /// Returns the log directory of the services.
    pub fn log(&self) -> &Path {
        &self.description.log
    }

    /// Lists the project's resources of a kind in Cinder.
    pub async fn list(&self, kind: &str) -> Result<Vec<Value>> {
        self.api.list(kind).await
    }

    /// Fails if the project has a resource in Cinder, or a server has a volume in Nova or a device on this machine.
    pub async fn nothing_left(&self) -> Result<()> {
        let remaining = self.api.block_storage().await?;
        ensure!(remaining.is_empty(), "left in Cinder: {remaining:?}");
        for server in self.description.servers.iter().chain(&self.description.far_servers) {
            let path = format!("/servers/{}/os-volume_attachments", server.id);
            let list = self.api.get(Service::Compute, &path).await?;
            let attachments = &list["volumeAttachments"];
            ensure!(
                attachments.as_array().is_some_and(Vec::is_empty),
                "left in Nova on {}: {attachments}",
                server.name
            );
            let devices = std::fs::read_dir(&server.by_id)
                .with_context(|| format!("cannot list {}", server.by_id.display()))?
                .count();
            ensure!(devices == 0, "{} still has {devices} devices", server.name);
        }
        Ok(())
    }

    /// Returns the node configuration with the server of the other zone.
    pub(super) fn far(&self, name: &str) -> Result<NodeConfig> {
        let server = self.description.far_servers.first();
        let server =
            server.context("the cloud has one zone: it was started by an earlier version; make openstack-down")?;
        Ok(node(name, server, FAR_ZONE))
    }

    /// Returns the original configuration of a node.
    pub(super) fn near(&self, started: &Node) -> Result<NodeConfig> {
        let mut servers = self.description.servers.iter();
        let server = servers.find(|server| server.id == started.server_id());
        let server = server.with_context(|| format!("the cloud has no server of {}", started.name()))?;
        Ok(node(started.name(), server, started.zone()))
    }

    /// Returns the zone of a server in Nova.
    pub async fn zone_of(&self, server_id: &str) -> Result<Value> {
        let path = format!("/servers/{server_id}");
        let mut server = self.api.get(Service::Compute, &path).await?;
        Ok(server["server"]["OS-EXT-AZ:availability_zone"].take())
    }

    /// Stops a service such as `cinder-api` until [`OpenStack::start_service`].
    pub async fn stop_service(&self, service: &str) -> Result<()> {
        control(&["stop", service]).await?;
        self.stopped().insert(service.to_owned());
        Ok(())
    }

    /// Starts a stopped service.
    pub async fn start_service(&self, service: &str) -> Result<()> {
        control(&["start", service]).await?;
        self.stopped().remove(service);
        Ok(())
    }

    pub(super) async fn start_stopped(&self) -> Result<()> {
        let stopped = self.stopped().clone();
        for service in stopped {
            self.start_service(&service).await?;
        }
        Ok(())
    }

    fn stopped(&self) -> parking_lot::MutexGuard<'_, BTreeSet<String>> {
        self.stopped.lock()
    }

    /// Fails if a resource remains. Stops the services if they were started here.
    pub(super) async fn stop(self) -> Result<()> {
        let cleanup = self.nothing_left().await;
        drop(self.turn);
        cleanup
    }
}

fn node(name: &str, server: &Server, zone: &str) -> NodeConfig {
    NodeConfig {
        name: name.to_owned(),
        server_id: server.id.clone(),
        zone: zone.to_owned(),
        by_id: Some(server.by_id.clone()),
    }
}

/// Creates a certificate for `host` and its CA.
fn certificate(host: Ipv4Addr) -> Result<(String, ServerConfig)> {
    let authority_key = KeyPair::generate().context("cannot make a key")?;
    let mut authority = CertificateParams::new(Vec::new()).context("cannot describe an authority")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = authority
        .self_signed(&authority_key)
        .context("cannot sign an authority")?
        .pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().context("cannot make a key")?;
    let certificate = CertificateParams::new(vec![host.to_string()]).context("cannot describe a certificate")?;
    let certificate = certificate
        .signed_by(&key, &issuer)
        .context("cannot sign a certificate")?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("no version of TLS")?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .context("the certificate cannot be used")?;
    Ok((pem, config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_clients_with_ca_trust_gateway() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let (authority, tls) = certificate(Ipv4Addr::LOCALHOST).unwrap();
        let tls = Some(Arc::new(tls));
        let _gateway = Gateway::through(vec![Door { listener, port, tls }], None)
            .await
            .unwrap();
        let authority = reqwest::Certificate::from_pem(authority.as_bytes()).unwrap();
        let client = || reqwest::Client::builder().no_proxy();

        let stranger = client().build().unwrap().get(&url).send().await;
        let friend = client()
            .add_root_certificate(authority)
            .build()
            .unwrap()
            .get(&url)
            .send()
            .await;

        assert!(stranger.unwrap_err().is_connect());
        // The gateway has no backend.
        assert_eq!(friend.unwrap().status(), 502);
    }
}
