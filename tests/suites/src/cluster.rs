// SPDX-License-Identifier: Apache-2.0
//! A cluster with the product, helpers for it, and scenarios that do not depend on the kind of cloud.

mod cloud;
pub mod credentials;
mod driver;
pub mod growth;
mod kubectl;
pub mod life;
mod login;
mod objects;
mod openstack;
mod operands;
mod plugin;
mod pods;
mod servers;
pub mod snapshots;
mod watch;
pub mod writers;

use std::time::Duration;

use anyhow::{Context as _, Result};
use harness::{Cluster, ClusterConfig, Product, Profile, Progress};
use serde_json::{Value, json};

pub use login::Login;
pub use objects::{claim, claim_of_class, from_snapshot, pod, storage_class};
use openstack::Site;
pub use openstack::{OpenStack, SECURE_KEYSTONE};
pub use operands::OPERANDS;
pub use plugin::Plugin;
pub use pods::is_ready;
pub use watch::{Watch, WatchLine, longest_gap};

use objects::good_driver;

/// Name of the driver under test.
pub const DRIVER: &str = "cinder.csi.openstack.org";
/// Namespace of the operator and its operands.
pub const NAMESPACE: &str = "cinder-csi";
/// Name of the driver's container in the controller and node pods.
pub const DRIVER_CONTAINER: &str = "cinder-csi-driver";
/// Namespace of the scenarios' pods.
pub const USERS: &str = "users";
/// Name of the Secret that the object refers to.
pub const SECRET: &str = "openstack-credentials";
/// Name of the StorageClass in the object.
pub const CLASS: &str = "cinder";

/// Limit of every wait. A killed sidecar blocks its Lease for 137 s.
pub const PATIENCE: Duration = Duration::from_mins(5);
/// Timeout of kubectl, slightly shorter so that it can print its reason.
pub const WITHIN: &str = "--timeout=290s";

/// A cluster with an available driver.
#[derive(Debug)]
pub struct World {
    pub cluster: Cluster,
    product: Option<Product>,
    openstack: Option<OpenStack>,
}

impl World {
    /// Wraps a cluster on the simulator without the product.
    pub fn bare(cluster: Cluster) -> Self {
        Self {
            cluster,
            product: None,
            openstack: None,
        }
    }

    /// Starts a cluster on the simulator without the product.
    pub async fn start(config: ClusterConfig) -> Result<Self> {
        Ok(Self::bare(Cluster::start(config).await?))
    }

    /// Starts a cluster on the simulator with this number of nodes, without the product.
    pub async fn start_nodes(count: u8, progress: Progress) -> Result<Self> {
        let config = ClusterConfig {
            progress,
            ..ClusterConfig::with_nodes(count)
        };
        Self::start(config).await
    }

    /// Starts a cluster whose two nodes are servers of the real OpenStack, and installs the product.
    pub async fn on_real_services(progress: Progress) -> Result<Self> {
        Self::bare_on_real_services(progress).await?.with_product().await
    }

    /// Like [`World::on_real_services`], without the product.
    pub async fn bare_on_real_services(progress: Progress) -> Result<Self> {
        Self::begun(progress, Site::cluster).await
    }

    /// Like [`World::bare_on_real_services`], with an additional node in the other zone.
    pub async fn bare_in_both_zones(progress: Progress) -> Result<Self> {
        Self::begun(progress, Site::cluster_in_both_zones).await
    }

    async fn begun(progress: Progress, cluster: fn(&Site) -> ClusterConfig) -> Result<Self> {
        let site = Site::take().await?;
        let config = ClusterConfig {
            progress,
            ..cluster(&site)
        };
        let cluster = Cluster::start(config).await?;
        let openstack = Some(site.open(&cluster).await?);
        Ok(Self {
            openstack,
            ..Self::bare(cluster)
        })
    }

    /// Installs the operator and a driver in a bare cluster, and waits until the driver is available.
    pub async fn with_product(mut self) -> Result<Self> {
        let logs = self.cluster.logs()?.to_owned();
        let product = self
            .cluster
            .install_product()
            .await
            .with_context(|| format!("the operator is not installed; logs: {}", logs.display()))?;
        self.product = Some(product);
        let installed = async {
            self.create_namespace(USERS).await?;
            self.ask_for_driver().await
        };
        if let Err(error) = installed.await {
            let description = self.describe().await;
            return Err(error.context(format!(
                "the product is not installed; logs: {}\n{description}",
                logs.display()
            )));
        }
        Ok(self)
    }

    /// Builds the product and imports its images, without an installation.
    pub async fn with_images(mut self) -> Result<Self> {
        let product = Product::build(Profile::from_environment()?, self.cluster.progress()).await?;
        self.cluster.load_images(&product).await?;
        self.product = Some(product);
        Ok(self)
    }

    /// Installs a version of the product with a driver, and waits until the driver has this version.
    pub async fn install_version(&self, product: &Product) -> Result<()> {
        self.cluster.load_images(product).await?;
        self.cluster.install_manifests_of(&product.source).await?;
        self.good_secret().await?;
        self.apply_driver().await?;
        self.cluster.load_sidecars_of_controller(NAMESPACE).await?;
        self.reach_version(product).await
    }

    /// Returns the installed product. Fails in a bare cluster.
    pub fn product(&self) -> Result<&Product> {
        self.product
            .as_ref()
            .context("this cluster began with nothing installed")
    }

    /// Returns the real services. Fails in a cluster on the simulator.
    pub fn openstack(&self) -> Result<&OpenStack> {
        self.openstack.as_ref().context("this cluster's cloud is the simulator")
    }

    /// Removes the cluster, checks that nothing remains, and releases the real services.
    pub async fn stop(self) -> Result<()> {
        self.cluster.stop().await.context("something of the cluster is left")?;
        match self.openstack {
            Some(openstack) => openstack.stop().await,
            None => Ok(()),
        }
    }

    /// Describes the state of the cluster, for the report of a failure.
    pub async fn describe(&self) -> String {
        let mut text = String::new();
        for words in [
            &["get", "cindercsidriver", DRIVER, "-o", "jsonpath={.status}"][..],
            &["get", "pods", "-A", "-o", "wide"],
            &["get", "pv,volumeattachments"],
            &["get", "events", "-A", "--sort-by=.lastTimestamp"],
        ] {
            let answer = self.kubectl(words).await.unwrap_or_else(|error| format!("{error:#}"));
            let lines: Vec<_> = answer.lines().rev().take(25).collect();
            for line in lines.iter().rev() {
                text.push_str("    ");
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }

    /// Collects the logs after a failure, and prints their directory.
    pub async fn print_logs(&self) {
        match self.cluster.collect_logs().await {
            Ok(place) => println!("logs: {}", place.display()),
            Err(error) => println!("not all logs could be collected: {error:#}"),
        }
    }

    /// Deletes the objects of a failed scenario.
    pub async fn delete_what_users_made(&self) -> Result<()> {
        // The kinds of snapshots may not be installed.
        for (kinds, must) in [
            ("statefulsets,daemonsets,cronjobs,jobs,pods", true),
            ("volumegroupsnapshots", false),
            ("volumesnapshots", false),
            ("pvc", true),
        ] {
            let words = ["delete", kinds, "--all", "-n", USERS, "--timeout=60s"];
            let deleted = self.cluster.kubectl_within(Duration::from_secs(70), &words).await;
            if must {
                deleted?;
            }
        }
        Ok(())
    }

    /// Restores the state that the next scenario expects, as far as possible.
    pub async fn recover(&self) {
        let steps = async {
            if let Some(openstack) = &self.openstack {
                openstack.start_stopped().await?;
            } else {
                self.cluster.simulator()?.clear_faults().await?;
                self.latencies(json!({"create": 0, "attach": 0})).await?;
            }
            self.delete_what_users_made().await?;
            self.apply_driver().await?;
            // An apply does not remove fields that a scenario has patched.
            let good = good_driver();
            let spec = self.driver().await?["spec"].clone();
            let added = spec.as_object().into_iter().flatten().map(|(field, _)| field);
            let added = added.filter(|field| good["spec"][field.as_str()].is_null());
            let change: serde_json::Map<_, _> = added.map(|field| (field.clone(), Value::Null)).collect();
            self.patch_spec(&Value::Object(change)).await?;
            self.ask_for_driver().await?;
            self.all_home().await
        };
        if let Err(error) = steps.await {
            println!("    the cluster did not recover: {error:#}");
        }
    }
}
