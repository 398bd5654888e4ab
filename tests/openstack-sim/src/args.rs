// SPDX-License-Identifier: Apache-2.0
//! The command line of the simulator.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use openstack_sim::{
    GroupType, Latencies, MetadataConfig, Pool, Quota, ServerSpec, Sim, SimConfig, TlsIdentity, VolumeType,
};
use tokio::signal::unix::{SignalKind, signal};

/// A stateful simulator of OpenStack: Keystone v3, Cinder v3, Nova v2.1 and the metadata service.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve Keystone, Cinder and Nova until SIGTERM or SIGINT.
    Serve(Box<Serve>),
    /// Serve one server's metadata, as at 169.254.169.254.
    Metadata(Metadata),
    /// Release the loop devices and links of a killed simulator with this backing folder.
    Clean {
        /// The backing folder.
        #[arg(long)]
        backing: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Serve {
    /// Address to listen on; port 0 selects a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// PEM file of the TLS certificate; plain HTTP without it.
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the TLS key.
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Address in the catalog and in links, if it differs from the listening address.
    #[arg(long)]
    public_url: Option<String>,
    /// File that is written when the simulator listens: addresses and credentials as JSON.
    #[arg(long)]
    ready_file: Option<PathBuf>,
    /// File that is written when the simulator listens: a `cloud.conf` for the driver.
    #[arg(long)]
    cloud_conf: Option<PathBuf>,
    /// Folder in which volumes are sparse files and attachments become loop devices.
    #[arg(long)]
    backing: Option<PathBuf>,
    /// A server: ID[,name=NAME][,zone=ZONE][,by-id=DIR]; the folder acts as its /dev/disk/by-id.
    #[arg(long = "server")]
    servers: Vec<ServerSpec>,
    /// Number of volumes of 1 GiB at the start.
    #[arg(long, default_value_t = 0)]
    volumes: usize,
    /// Durations of work: create=800ms,attach=1.1s,…; names: create, delete, extend, snapshot, backup, retype, group,
    /// members, attach, connect, detach, release, settle, answer, accept.
    #[arg(long = "latency")]
    latencies: Vec<String>,
    /// A volume type: NAME[,multiattach][,encrypted[=MIB]][,backend=NAME][,qos=ID][,EXTRA_SPEC=VALUE]. The first is the default.
    #[arg(long = "volume-type")]
    volume_types: Vec<VolumeType>,
    /// A group type; `NAME,consistent` for one with consistent group snapshots.
    #[arg(long = "group-type")]
    group_types: Vec<String>,
    /// A backend's capacity in GiB: NAME=GIB.
    #[arg(long = "pool")]
    pools: Vec<String>,
    /// An availability zone of Cinder. The first is the default.
    #[arg(long = "zone")]
    zones: Vec<String>,
    /// An availability zone of Nova; defaults to those of the servers.
    #[arg(long = "compute-zone")]
    compute_zones: Vec<String>,
    /// An additional region in the catalog, whose services do not work.
    #[arg(long = "other-region")]
    other_regions: Vec<String>,
    /// PEM file of the CA of client certificates; connections without such a certificate are refused.
    #[arg(long, requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Quota of the project: volumes=N,gigabytes=N,snapshots=N,per_volume_gigabytes=N; -1 is unlimited.
    #[arg(long)]
    quota: Option<Quota>,
    /// Maximum page size of a list.
    #[arg(long, default_value_t = 1000)]
    page_limit: usize,
    /// Maximum number of volumes per server.
    #[arg(long, default_value_t = 256)]
    volumes_per_server: usize,
    /// Lifetime of a token in seconds.
    #[arg(long, default_value_t = 3600)]
    token_lifetime: u64,
}

#[derive(Debug, Args)]
struct Metadata {
    /// Address to listen on.
    #[arg(long, default_value = "169.254.169.254:80")]
    listen: SocketAddr,
    /// The server's UUID.
    #[arg(long)]
    instance_id: String,
    /// Its availability zone.
    #[arg(long, default_value = "nova")]
    zone: String,
    /// Its name.
    #[arg(long)]
    name: String,
    /// File that is written when the service listens.
    #[arg(long)]
    ready_file: Option<PathBuf>,
}

impl Cli {
    /// Runs the command.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Serve(serve) => serve.run().await,
            Command::Metadata(metadata) => metadata.run().await,
            Command::Clean { backing } => Ok(openstack_sim::clean(&backing).await?),
        }
    }
}

impl Serve {
    async fn run(self) -> anyhow::Result<()> {
        let mut signals = Signals::listen()?;
        let (ready_file, cloud_conf) = (self.ready_file.clone(), self.cloud_conf.clone());
        let sim = Sim::start(self.config()?).await?;
        let access = serde_json::to_vec_pretty(sim.access()).context("cannot encode the ready file")?;
        if let Some(path) = cloud_conf {
            publish(&path, sim.access().cloud_conf().as_bytes())?;
        }
        if let Some(path) = ready_file {
            publish(&path, &access)?;
        }
        tracing::info!(auth_url = sim.auth_url(), "the simulator listens");
        signals.next().await;
        sim.shutdown().await.context("the simulator did not stop cleanly")
    }

    fn config(self) -> anyhow::Result<SimConfig> {
        let mut config = SimConfig {
            listen: self.listen,
            public_url: self.public_url,
            servers: self.servers,
            volumes: self.volumes,
            backing: self.backing,
            page_limit: self.page_limit,
            volumes_per_server: self.volumes_per_server,
            token_lifetime: std::time::Duration::from_secs(self.token_lifetime),
            ..SimConfig::default()
        };
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            config.tls = Some(TlsIdentity {
                certificate_pem: read(certificate)?,
                key_pem: read(key)?,
            });
        }
        let mut latencies = Latencies::default();
        for text in &self.latencies {
            latencies.apply(text)?;
        }
        config.latencies = latencies;
        if !self.volume_types.is_empty() {
            config.volume_types = self.volume_types;
        }
        if !self.group_types.is_empty() {
            config.group_types = self.group_types.iter().map(|text| group_type(text)).collect();
        }
        config.pools = self.pools.iter().map(|text| pool(text)).collect::<Result<_, _>>()?;
        config.other_regions = self.other_regions;
        config.compute_zones = self.compute_zones;
        if let Some(path) = &self.client_ca {
            config.client_ca_pem = Some(read(path)?);
        }
        if !self.zones.is_empty() {
            config.zones = self.zones;
        }
        if let Some(quota) = self.quota {
            config.quota = quota;
        }
        Ok(config)
    }
}

impl Metadata {
    async fn run(self) -> anyhow::Result<()> {
        let mut signals = Signals::listen()?;
        let config = MetadataConfig {
            listen: self.listen,
            instance_id: self.instance_id,
            name: self.name,
            zone: self.zone,
        };
        let server = openstack_sim::MetadataServer::start(config).await?;
        if let Some(path) = &self.ready_file {
            publish(path, server.url().as_bytes())?;
        }
        tracing::info!(url = server.url(), "the metadata service listens");
        signals.next().await;
        Ok(())
    }
}

/// Receives SIGTERM and SIGINT from its creation on.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let fail = "cannot listen for signals";
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context(fail)?,
            interrupt: signal(SignalKind::interrupt()).context(fail)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn group_type(text: &str) -> GroupType {
    match text.split_once(',') {
        Some((name, "consistent")) => GroupType::consistent(name),
        _ => GroupType::new(text),
    }
}

fn pool(text: &str) -> anyhow::Result<Pool> {
    let parts = text
        .split_once('=')
        .and_then(|(name, size)| Some((name, size.parse().ok()?)));
    let (name, size) = parts.with_context(|| format!("`{text}` is no pool; write NAME=GIB"))?;
    Ok(Pool::new(name, size))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file atomically, so that readers never read a partial file.
fn publish(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let temporary = path.with_extension("new");
    fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&temporary, path))
        .with_context(|| format!("cannot write {}", path.display()))
}
