// SPDX-License-Identifier: Apache-2.0
//! Records events of the update by `kubectl get --watch`, with times. Resource versions determine the order of events
//! in different watches, because the API server counts them across all objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, Command, Product, wait_for};
use tokio::task::JoinHandle;

use crate::{DRIVER, NAMESPACE};

/// Longer than an update.
const LONGEST: Duration = Duration::from_mins(10);
const PATIENCE: Duration = Duration::from_secs(30);

/// A line of a watch.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Time in seconds.
    at: f64,
    /// Resource version of the object.
    version: u64,
    words: Vec<String>,
}

/// Running watches.
pub(crate) struct Watch {
    running: Vec<JoinHandle<Result<String>>>,
    directory: PathBuf,
}

/// The recorded lines.
pub(crate) struct RecordedEvents {
    /// Node, then the names of the drivers.
    pub(crate) registrations: Vec<Line>,
    /// Node pod, its node, its image, whether it is Ready.
    pods: Vec<Line>,
    /// Updated, available and total pods of the controller, and its version.
    controller: Vec<Line>,
    /// The version in the status.
    versions: Vec<Line>,
}

const WATCHES: [(&str, &str, &str); 4] = [
    ("registrations", "csinodes", "{.metadata.name} {.spec.drivers[*].name}"),
    (
        "pods",
        "pods -l app.kubernetes.io/component=node",
        "{.metadata.name} {.spec.nodeName} {.spec.containers[0].image} {.status.conditions[?(@.type==\"Ready\")].status}",
    ),
    (
        "controller",
        "deployments -l app.kubernetes.io/component=controller",
        "{.metadata.generation} {.status.observedGeneration} {.spec.replicas} {.status.updatedReplicas} {.status.availableReplicas} \
         {.status.replicas} {.spec.template.spec.containers[?(@.name==\"cinder-csi-driver\")].image}",
    ),
    ("versions", "cindercsidrivers", "{.status.version}"),
];

impl Watch {
    /// Starts the watches and waits for the initial output of each.
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let directory = cluster.logs()?.join("watch");
        fs::create_dir_all(&directory).context("cannot make a directory")?;
        let kubectl = cluster.tools().path("kubectl")?.display().to_string();
        let cache = directory.join("cache").display().to_string();
        let mut running = Vec::new();
        for (name, what, path) in WATCHES {
            let file = directory.join(name);
            // A watch ends when the definition of its kind changes, so it is restarted. Output is not buffered.
            // kubectl's default cache would outlive the cluster and contain the APIs of another one with the same
            // address.
            let script = format!(
                "end=$((SECONDS + {})); while [ $SECONDS -lt $end ]; do {kubectl} --cache-dir '{cache}' get {what} -n {NAMESPACE} --watch -o \
                 jsonpath='{{.metadata.resourceVersion}} {path}{{\"\\n\"}}'; sleep 0.1; done | \
                 while read -r line; do echo \"$EPOCHREALTIME $line\" >> \"$0\"; done",
                LONGEST.as_secs()
            );
            let command: Command = cluster
                .command_in_network("bash")?
                .args(["-c", &script])
                .arg(&file)
                .timeout(LONGEST + PATIENCE);
            running.push(tokio::spawn(async move { command.output().await }));
        }
        wait_for("the watches", PATIENCE, async || {
            for (name, ..) in WATCHES {
                ensure!(!lines(&directory.join(name)).is_empty(), "nothing of {name}");
            }
            Ok(())
        })
        .await?;
        Ok(Self { running, directory })
    }

    /// Stops the watches.
    pub(crate) fn stop(self) -> Result<RecordedEvents> {
        for watch in self.running {
            ensure!(!watch.is_finished(), "a watch ended too early");
            // Its child processes end with it.
            watch.abort();
        }
        let read = |name: &str| lines(&self.directory.join(name));
        Ok(RecordedEvents {
            registrations: read("registrations"),
            pods: read("pods"),
            controller: read("controller"),
            versions: read("versions"),
        })
    }
}

fn lines(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            Some(Line {
                at: words.next()?.parse().ok()?,
                version: words.next()?.parse().ok()?,
                words: words.collect(),
            })
        })
        .collect()
}

impl Line {
    fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }
}

impl RecordedEvents {
    /// Checks that all controller pods had the new version before the first new node pod.
    pub(crate) fn controller_first(&self, previous: &Product, present: &Product) -> Result<()> {
        let is_new = |image: &str| image.ends_with(&format!(":v{}", present.version));
        let first_node = self.pods.iter().find(|line| line.words.iter().any(|word| is_new(word)));
        let first_node = first_node.context("no node pod was replaced")?;
        let done = self.controller.iter().find(|line| {
            let [generation, observed, wanted, updated, available, all] = std::array::from_fn(|index| line.word(index));
            is_new(line.word(6))
                && generation == observed
                && [updated, available, all].iter().all(|count| *count == wanted)
        });
        let done = done.with_context(|| format!("the controller was not replaced: {:?}", self.controller))?;
        ensure!(
            self.pods[0]
                .words
                .iter()
                .any(|word| word.ends_with(&format!(":v{}", previous.version))),
            "the first node pod seen was not of the previous version: {:?}",
            self.pods[0]
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
        let is_new = |line: &&Line| {
            line.words
                .iter()
                .any(|word| word.ends_with(&format!(":v{}", present.version)))
        };
        let mut ready: BTreeMap<&str, &Line> = BTreeMap::new();
        for line in self.pods.iter().filter(is_new) {
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

    /// Returns the longest time for which a registered driver was missing in a CSINode.
    pub(crate) fn longest_gap(&self) -> Result<Duration> {
        let mut missing: BTreeMap<&str, f64> = BTreeMap::new();
        let mut longest: f64 = 0.0;
        for line in &self.registrations {
            let node = line.word(0);
            if line.words.iter().skip(1).any(|word| word == DRIVER) {
                if let Some(since) = missing.remove(node) {
                    longest = longest.max(line.at - since);
                }
            } else {
                missing.entry(node).or_insert(line.at);
            }
        }
        ensure!(missing.is_empty(), "never came back: {missing:?}");
        Ok(Duration::from_secs_f64(longest))
    }
}
