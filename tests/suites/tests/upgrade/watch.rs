// SPDX-License-Identifier: Apache-2.0
//! Events of the update in order.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use harness::Product;
use suites::cluster::{NAMESPACE, Watch, WatchLine, World};

/// Running watches.
pub(crate) struct Watches {
    registrations: Watch,
    pods: Watch,
    controller: Watch,
    versions: Watch,
}

/// The recorded lines.
pub(crate) struct RecordedEvents {
    /// Node, then the names of the drivers.
    pub(crate) registrations: Vec<WatchLine>,
    /// Node pod, its node, its image, whether it is Ready.
    pods: Vec<WatchLine>,
    /// Updated, available and total pods of the controller, and its version.
    controller: Vec<WatchLine>,
    /// The version in the status.
    versions: Vec<WatchLine>,
}

const REGISTRATION: &str = "{.metadata.name} {.spec.drivers[*].name}";
const POD: &str =
    "{.metadata.name} {.spec.nodeName} {.spec.containers[0].image} {.status.conditions[?(@.type==\"Ready\")].status}";
const CONTROLLER: &str = "{.metadata.generation} {.status.observedGeneration} {.spec.replicas} {.status.updatedReplicas} \
                          {.status.availableReplicas} {.status.replicas} \
                          {.spec.template.spec.containers[?(@.name==\"cinder-csi-driver\")].image}";

impl Watches {
    /// Starts the watches and waits for the initial output of each.
    pub(crate) async fn start(world: &World) -> Result<Self> {
        let of = |component| ["-n", NAMESPACE, "-l", component];
        let pods = [&["pods"][..], &of("app.kubernetes.io/component=node")].concat();
        let controller = [&["deployments"][..], &of("app.kubernetes.io/component=controller")].concat();
        Ok(Self {
            registrations: Watch::start(world, "registrations", &["csinodes"], REGISTRATION).await?,
            pods: Watch::start(world, "pods", &pods, POD).await?,
            controller: Watch::start(world, "controller", &controller, CONTROLLER).await?,
            versions: Watch::start(world, "versions", &["cindercsidrivers"], "{.status.version}").await?,
        })
    }

    /// Stops the watches.
    pub(crate) fn stop(self) -> Result<RecordedEvents> {
        Ok(RecordedEvents {
            registrations: self.registrations.stop()?,
            pods: self.pods.stop()?,
            controller: self.controller.stop()?,
            versions: self.versions.stop()?,
        })
    }
}

impl RecordedEvents {
    /// Checks that all controller pods had the new version before the first new node pod.
    pub(crate) fn controller_first(&self, previous: &Product, present: &Product) -> Result<()> {
        let first_node = self.pods.iter().find(|line| has_version(line, present));
        let first_node = first_node.context("no node pod was replaced")?;
        let done = self.controller.iter().find(|line| {
            let [generation, observed, wanted, updated, available, all] = std::array::from_fn(|index| line.word(index));
            has_version(line, present)
                && generation == observed
                && [updated, available, all].iter().all(|count| *count == wanted)
        });
        let done = done.with_context(|| format!("the controller was not replaced: {:?}", self.controller))?;
        let first_seen = &self.pods[0];
        ensure!(
            has_version(first_seen, previous),
            "the first node pod was not of the previous version: {first_seen:?}"
        );
        ensure!(
            done.version < first_node.version,
            "a node pod was replaced before the controller was done: {first_node:?}, then {done:?}"
        );
        Ok(())
    }

    /// Checks that at most one node lacked a Ready pod at any time.
    pub(crate) fn one_node_after_the_other(&self) -> Result<()> {
        let mut pods: BTreeMap<&str, (&str, bool)> = BTreeMap::new();
        let mut nodes = BTreeSet::new();
        let mut has_begun = false;
        for line in &self.pods {
            let (pod, node) = (line.word(0), line.word(1));
            // An unscheduled pod has no node, so its columns are shifted.
            if line.words.len() >= 3 && !node.contains('/') {
                nodes.insert(node);
                pods.insert(pod, (node, line.words.last().is_some_and(|word| word == "True")));
            }
            let served: BTreeSet<_> = pods
                .values()
                .filter(|(_, ready)| *ready)
                .map(|(node, _)| *node)
                .collect();
            has_begun |= nodes.len() > 1 && served.len() == nodes.len();
            ensure!(
                !has_begun || served.len() + 1 >= nodes.len(),
                "at {:.1} only {served:?} of {nodes:?} had a Ready pod",
                line.at
            );
        }
        ensure!(has_begun, "the node pods were not seen: {:?}", self.pods);
        Ok(())
    }

    /// Checks that the version in the status changed once, after the last node pod was replaced.
    pub(crate) fn version_last(&self, previous: &Product, present: &Product) -> Result<()> {
        let mut versions: Vec<&str> = self.versions.iter().map(|line| line.word(0)).collect();
        versions.dedup();
        ensure!(
            versions == [previous.version.as_str(), present.version.as_str()],
            "the version went through {versions:?}"
        );
        let changed = self.versions.iter().find(|line| line.word(0) == present.version);
        let changed = changed.context("the version did not change")?;
        let mut ready: BTreeMap<&str, &WatchLine> = BTreeMap::new();
        for line in self.pods.iter().filter(|line| has_version(line, present)) {
            if line.words.last().is_some_and(|word| word == "True") {
                ready.entry(line.word(0)).or_insert(line);
            }
        }
        ensure!(ready.len() == 2, "{} new node pods became Ready", ready.len());
        for (pod, line) in ready {
            ensure!(
                line.version < changed.version,
                "{pod} was Ready after the version changed: {changed:?}, then {line:?}"
            );
        }
        Ok(())
    }
}

/// Whether a version of a pod or of the controller has an image of a product.
fn has_version(line: &WatchLine, product: &Product) -> bool {
    let tag = format!(":v{}", product.version);
    line.words.iter().any(|word| word.ends_with(&tag))
}
