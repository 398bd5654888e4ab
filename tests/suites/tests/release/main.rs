// SPDX-License-Identifier: Apache-2.0
//! Tests a release from a user's perspective: pushes the result of `make release` to a registry, and installs a driver
//! from it in a cluster without images of the product. Uses the chart, the chart with the driver, and `install.yaml`.
//!
//! The release contains only this machine's architecture and the programs of the other tests.

mod contents;
mod packages;

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, ClusterConfig, Product, Profile, Progress};
use serde_json::json;
use suites::cluster::{DRIVER, NAMESPACE, PATIENCE, SECRET, USERS, WITHIN, World, life};
use suites::programs;
use suites::registry::{ADDRESS, Registry};
use suites::scenarios;
use suites::scenarios::Scenarios;

use contents::BuiltRelease;

/// Name of the Helm release.
const RELEASE: &str = "cinder-csi-operator";

/// A release, and a cluster to install it in.
struct ReleaseSite {
    made: BuiltRelease,
    world: World,
}

fn main() -> ExitCode {
    let all = scenarios![
        checksums_match_all_files,
        index_contains_image_per_platform,
        bill_of_materials_lists_crates_and_packages,
        scanners_find_packages_of_each_image,
        plugin_archive_matches_krew_manifest,
        same_commit_gives_same_digests,
        helm_installs_driver_from_registry,
        one_helm_release_installs_operator_and_driver,
        helm_wait_fails_for_wrong_secret,
        kubectl_installs_driver_from_one_file,
    ];
    scenarios::main(all, run)
}

async fn run(scenarios: &mut Scenarios<ReleaseSite>) -> Result<()> {
    let progress = Progress::loud();
    let product = Product::build(Profile::from_environment()?, &progress).await?;
    progress.say("making a release");
    let made = BuiltRelease::build(&product).await?;
    let config = ClusterConfig {
        progress,
        ..ClusterConfig::with_nodes(1)
    };
    let cluster = Cluster::start(config).await?;
    let registry = Registry::start(&cluster).await?;
    registry.publish(&cluster, &made.folder()).await?;
    cluster.load_sidecar_images().await?;
    let users = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": USERS}});
    cluster.apply(&users.to_string()).await?;
    let shop = ReleaseSite {
        made,
        world: World::bare(cluster),
    };
    scenarios
        .run(&shop, async |ended| {
            if !ended.passed {
                println!("{}", shop.world.describe().await);
                match shop.world.cluster.collect_logs().await {
                    Ok(place) => println!("logs: {}", place.display()),
                    Err(error) => println!("not all logs could be collected: {error:#}"),
                }
            }
            Ok(())
        })
        .await?;
    registry.stop().await?;
    shop.world.stop().await
}

async fn checksums_match_all_files(shop: &ReleaseSite) -> Result<()> {
    shop.made.sums().await
}

async fn index_contains_image_per_platform(shop: &ReleaseSite) -> Result<()> {
    shop.made.images().await
}

async fn bill_of_materials_lists_crates_and_packages(shop: &ReleaseSite) -> Result<()> {
    shop.made.bills_of_materials()
}

async fn scanners_find_packages_of_each_image(shop: &ReleaseSite) -> Result<()> {
    for image in ["cinder-csi-driver", "cinder-csi-operator"] {
        packages::compare(&shop.made, image).await?;
    }
    Ok(())
}

async fn plugin_archive_matches_krew_manifest(shop: &ReleaseSite) -> Result<()> {
    shop.made.plugin().await
}

async fn same_commit_gives_same_digests(shop: &ReleaseSite) -> Result<()> {
    let again = shop.made.again().await?;
    ensure!(
        shop.made.text("SHA256SUMS")? == again.text("SHA256SUMS")?,
        "{} and {}",
        shop.made.text("SHA256SUMS")?,
        again.text("SHA256SUMS")?
    );
    Ok(())
}

async fn helm_installs_driver_from_registry(shop: &ReleaseSite) -> Result<()> {
    shop.has_no_image_of_the_product().await?;
    shop.helm_install(&["--create-namespace"]).await?;
    shop.a_pod_gets_its_volume().await?;
    shop.helm(&["uninstall", RELEASE, "--wait"]).await?;
    shop.clear().await
}

/// Installs one application as a GitOps tool does; the pods of the hooks pull and run like all others.
async fn one_helm_release_installs_operator_and_driver(shop: &ReleaseSite) -> Result<()> {
    shop.has_no_image_of_the_product().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    shop.world.cluster.apply(&namespace.to_string()).await?;
    shop.world.good_secret().await?;
    shop.helm_install(&["--set=driver.create=true"]).await?;
    shop.world.healthy().await?;
    shop.all_run_the_release().await?;
    let shown = shop.helm(&["test", RELEASE, "--logs"]).await?;
    ensure!(
        shown.contains(DRIVER) && shown.contains("Available=True"),
        "helm test shows {shown}"
    );
    shop.delete_driver().await?;
    shop.helm(&["uninstall", RELEASE, "--wait"]).await?;
    shop.clear().await
}

/// On install, the driver is a hook that a pod of the chart waits for. On upgrade, it is an object of the release.
async fn helm_wait_fails_for_wrong_secret(shop: &ReleaseSite) -> Result<()> {
    let world = &shop.world;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    world.cluster.apply(&namespace.to_string()).await?;
    world.secret("clouds.yaml", &world.clouds_yaml("wrong")?).await?;
    let create = ["--set=driver.create=true"];
    for outcome in [shop.helm_install(&create).await, shop.helm_upgrade(&create).await] {
        let error = format!("{:#}", outcome.err().context("helm accepts the wrong Secret")?);
        ensure!(
            error.contains("CredentialsRejected"),
            "helm does not print the reason: {error}"
        );
        ensure!(
            !error.contains("deadline exceeded"),
            "helm waits until its timeout: {error}"
        );
    }
    world.good_secret().await?;
    world.condition("Stalled", "False", |_| true).await?;
    shop.helm_upgrade(&create).await?;
    world.healthy().await?;
    shop.delete_driver().await?;
    shop.helm(&["uninstall", RELEASE, "--wait"]).await?;
    shop.clear().await
}

async fn kubectl_installs_driver_from_one_file(shop: &ReleaseSite) -> Result<()> {
    shop.has_no_image_of_the_product().await?;
    let cluster = &shop.world.cluster;
    let file = shop.made.folder().join("install.yaml");
    let words = ["apply", "--server-side", "--filename", path(&file)?];
    cluster.kubectl(&words).await?;
    let available = [
        "wait",
        "-n",
        NAMESPACE,
        "--for=condition=Available",
        WITHIN,
        "deployment",
        "--all",
    ];
    cluster.kubectl_within(PATIENCE, &available).await?;
    shop.a_pod_gets_its_volume().await?;
    let words = ["delete", "--filename", path(&file)?, WITHIN];
    cluster.kubectl_within(PATIENCE, &words).await.map(drop)
}

impl ReleaseSite {
    /// Creates a driver from one object, writes to a volume from a pod, and deletes all.
    async fn a_pod_gets_its_volume(&self) -> Result<()> {
        let world = &self.world;
        world.ask_for_driver().await?;
        self.all_run_the_release().await?;
        life::pod_gets_volume_and_cleans_up(world).await?;
        self.delete_driver().await
    }

    /// Deletes the driver, and then the Secret with its credentials.
    async fn delete_driver(&self) -> Result<()> {
        let cluster = &self.world.cluster;
        cluster
            .kubectl_within(PATIENCE, &["delete", "cindercsidriver", DRIVER, WITHIN])
            .await?;
        cluster
            .kubectl(&["delete", "secret", "-n", NAMESPACE, SECRET])
            .await
            .map(drop)
    }

    async fn helm_install(&self, options: &[&str]) -> Result<()> {
        self.helm_with_chart("install", options).await
    }

    async fn helm_upgrade(&self, options: &[&str]) -> Result<()> {
        self.helm_with_chart("upgrade", options).await
    }

    async fn helm_with_chart(&self, command: &str, options: &[&str]) -> Result<()> {
        let chart = format!("oci://{ADDRESS}/cinder-csi/charts/cinder-csi-operator");
        let words = [
            command,
            RELEASE,
            &chart,
            "--version",
            &self.made.version,
            "--plain-http",
            "--wait",
        ];
        self.helm(&[&words[..], options].concat()).await.map(drop)
    }

    /// Runs helm in the network of a node, because the registry is on its loopback interface.
    async fn helm(&self, words: &[&str]) -> Result<String> {
        let helm = self.world.cluster.command_in_network(path(&programs::helm()?)?)?;
        let place = ["--namespace", NAMESPACE, "--timeout=290s"];
        helm.args(words).args(place).timeout(PATIENCE).output().await
    }

    /// Checks that every container of the product runs an image of the release by digest.
    async fn all_run_the_release(&self) -> Result<()> {
        let (pods, names) = (
            self.world.cluster.get(&["pods", "-n", NAMESPACE]).await?,
            self.made.names()?,
        );
        let mut seen = 0;
        for pod in pods["items"].as_array().context("a list without items")? {
            for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
                let image = container["image"].as_str().unwrap_or_default();
                if !image.starts_with("ghcr.io/") {
                    continue;
                }
                ensure!(
                    names.iter().any(|name| name == image),
                    "{image} runs in {}, and the release has {names:?}",
                    pod["metadata"]["name"]
                );
                seen += 1;
            }
        }
        ensure!(
            seen >= 3,
            "operator, controller and node: {seen} containers run images of the product"
        );
        Ok(())
    }

    async fn has_no_image_of_the_product(&self) -> Result<()> {
        let images = self.images().await?;
        ensure!(images.is_empty(), "the node has {images:?}");
        Ok(())
    }

    /// Returns the node's images of the product.
    async fn images(&self) -> Result<Vec<String>> {
        let listed = self.ctr(&["images", "list", "--quiet"]).await?;
        let ours = listed.lines().filter(|name| name.contains("/cinder-csi/"));
        Ok(ours.map(str::to_owned).collect())
    }

    /// Removes the objects that `helm uninstall` retains, as documented in docs/uninstall.md, and the images.
    async fn clear(&self) -> Result<()> {
        let cluster = &self.world.cluster;
        cluster
            .kubectl(&["delete", "lease", "-n", NAMESPACE, "cinder-csi-operator"])
            .await?;
        let words = ["delete", "crd", "cindercsidrivers.csi.openstack.org", WITHIN];
        cluster.kubectl_within(PATIENCE, &words).await?;
        let images = self.images().await?;
        let words: Vec<&str> = ["images", "rm", "--sync"]
            .into_iter()
            .chain(images.iter().map(String::as_str))
            .collect();
        self.ctr(&words).await.map(drop)
    }

    async fn ctr(&self, words: &[&str]) -> Result<String> {
        let mut all = vec!["ctr", "-a", "/run/containerd/containerd.sock", "-n", "k8s.io"];
        all.extend(words);
        self.world.cluster.first_node()?.exec(&all).await
    }
}

fn path(path: &std::path::Path) -> Result<&str> {
    path.to_str().context("a path is not UTF-8")
}
