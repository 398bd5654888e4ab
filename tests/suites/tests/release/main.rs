// SPDX-License-Identifier: Apache-2.0
//! Tests a release from a user's perspective: pushes the result of `make release` to a registry, and installs a driver
//! from it in a cluster without images of the product. Uses the chart, the chart with the driver, and `install.yaml`.
//!
//! The release contains only this machine's architecture and the programs of the other tests.

mod contents;
mod packages;

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use harness::{Product, Profile, Progress};
use suites::cluster::{DRIVER, NAMESPACE, PATIENCE, SECRET, USERS, WITHIN, World, life};
use suites::expect::{expect_equal, expect_none, expect_parts};
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
    let world = World::start_nodes(1, progress).await?;
    let registry = Registry::start(&world.cluster).await?;
    registry.publish(&world.cluster, &made.folder()).await?;
    world.cluster.load_sidecar_images().await?;
    world.create_namespace(USERS).await?;
    let shop = ReleaseSite { made, world };
    scenarios
        .run(&shop, async |ended| {
            if !ended.passed {
                println!("{}", shop.world.describe().await);
                shop.world.print_logs().await;
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
    let (first, second) = (shop.made.text("SHA256SUMS")?, again.text("SHA256SUMS")?);
    expect_equal("SHA256SUMS", &second, &first)
}

async fn helm_installs_driver_from_registry(shop: &ReleaseSite) -> Result<()> {
    shop.has_no_image_of_the_product().await?;
    shop.helm_with_chart("install", &["--create-namespace"]).await?;
    shop.a_pod_gets_its_volume().await?;
    shop.uninstall().await
}

/// Installs one application as a GitOps tool does; the pods of the hooks pull and run like all others.
async fn one_helm_release_installs_operator_and_driver(shop: &ReleaseSite) -> Result<()> {
    shop.has_no_image_of_the_product().await?;
    shop.world.create_namespace(NAMESPACE).await?;
    shop.world.good_secret().await?;
    shop.helm_with_chart("install", &["--set=driver.create=true"]).await?;
    shop.world.healthy().await?;
    shop.all_run_the_release().await?;
    let shown = shop.helm(&["test", RELEASE, "--logs"]).await?;
    expect_parts(&shown, &[DRIVER, "Available=True"])?;
    shop.delete_driver().await?;
    shop.uninstall().await
}

/// On install, the driver is a hook that a pod of the chart waits for. On upgrade, it is an object of the release.
async fn helm_wait_fails_for_wrong_secret(shop: &ReleaseSite) -> Result<()> {
    let world = &shop.world;
    world.create_namespace(NAMESPACE).await?;
    world.secret("clouds.yaml", &world.clouds_yaml("wrong")?).await?;
    let create = ["--set=driver.create=true"];
    for command in ["install", "upgrade"] {
        let outcome = shop.helm_with_chart(command, &create).await;
        let error = format!("{:#}", outcome.err().context("helm accepts the wrong Secret")?);
        expect_parts(&error, &["CredentialsRejected"])?;
        let is_late = error.contains("deadline exceeded");
        ensure!(!is_late, "helm waits until its timeout: {error}");
    }
    world.good_secret().await?;
    world.condition("Stalled", "False").await?;
    shop.helm_with_chart("upgrade", &create).await?;
    world.healthy().await?;
    shop.delete_driver().await?;
    shop.uninstall().await
}

async fn kubectl_installs_driver_from_one_file(shop: &ReleaseSite) -> Result<()> {
    shop.has_no_image_of_the_product().await?;
    let file = shop.made.folder().join("install.yaml");
    let words = ["apply", "--server-side", "--filename", path(&file)?];
    shop.world.kubectl(&words).await?;
    let available = ["wait", "-n", NAMESPACE, "--for=condition=Available", WITHIN];
    let words = [&available[..], &["deployment", "--all"]].concat();
    shop.world.cluster.kubectl_within(PATIENCE, &words).await?;
    shop.a_pod_gets_its_volume().await?;
    shop.world.remove(&["--filename", path(&file)?]).await
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
        self.world.delete_driver().await?;
        self.world.remove(&["secret", "-n", NAMESPACE, SECRET]).await
    }

    async fn helm_with_chart(&self, command: &str, options: &[&str]) -> Result<()> {
        let chart = format!("oci://{ADDRESS}/cinder-csi/charts/cinder-csi-operator");
        let words = [command, RELEASE, &chart, "--version", &self.made.version];
        let words = [&words[..], &["--plain-http", "--wait"], options].concat();
        self.helm(&words).await.map(drop)
    }

    /// Runs helm in the network of a node, because the registry is on its loopback interface.
    async fn helm(&self, words: &[&str]) -> Result<String> {
        let helm = self.world.cluster.command_in_network(path(&programs::helm()?)?)?;
        let place = ["--namespace", NAMESPACE, "--timeout=290s"];
        helm.args(words).args(place).timeout(PATIENCE).output().await
    }

    /// Checks that every container of the product runs an image of the release by digest.
    async fn all_run_the_release(&self) -> Result<()> {
        let names = self.made.names()?;
        let mut seen = 0;
        for pod in self.world.list(&["pods", "-n", NAMESPACE]).await? {
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
        expect_none("images", &self.images().await?)
    }

    /// Returns the node's images of the product.
    async fn images(&self) -> Result<Vec<String>> {
        let listed = self.ctr(&["images", "list", "--quiet"]).await?;
        let ours = listed.lines().filter(|name| name.contains("/cinder-csi/"));
        Ok(ours.map(str::to_owned).collect())
    }

    /// Uninstalls the release, the objects that `helm uninstall` retains, as documented in docs/uninstall.md, and the
    /// images.
    async fn uninstall(&self) -> Result<()> {
        self.helm(&["uninstall", RELEASE, "--wait"]).await?;
        let lease = ["lease", "-n", NAMESPACE, "cinder-csi-operator"];
        self.world.remove(&lease).await?;
        let definition = ["crd", "cindercsidrivers.csi.openstack.org"];
        self.world.remove(&definition).await?;
        let images = self.images().await?;
        let mut words = vec!["images", "rm", "--sync"];
        words.extend(images.iter().map(String::as_str));
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
