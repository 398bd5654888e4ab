// SPDX-License-Identifier: Apache-2.0
//! Records the versions of objects by `kubectl get --watch`, with times. Resource versions determine the order of
//! versions in different watches, because the API server counts them across all objects.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{Command, wait_for};
use tokio::task::JoinHandle;

use super::{DRIVER, PATIENCE, World};

/// Longer than any scenario with a watch.
const LONGEST: Duration = Duration::from_mins(15);

/// A version of an object.
#[derive(Debug, Clone)]
pub struct WatchLine {
    /// Time in seconds.
    pub at: f64,
    /// Resource version of the object.
    pub version: u64,
    pub words: Vec<String>,
}

impl WatchLine {
    /// Returns a word, or an empty one.
    pub fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }
}

/// A running watch. Dropping it ends its child processes.
#[derive(Debug)]
pub struct Watch {
    running: JoinHandle<Result<String>>,
    file: PathBuf,
}

impl Watch {
    /// Watches objects, and waits for the initial output. `path` is the JSON path of the columns.
    pub async fn start(world: &World, name: &str, objects: &[&str], path: &str) -> Result<Self> {
        let directory = world.cluster.logs()?.join("watch");
        fs::create_dir_all(&directory).context("cannot make a directory")?;
        let file = directory.join(name);
        fs::write(&file, "").context("cannot make a file")?;
        // A watch ends when the definition of its kind changes, so it is restarted. Output is not buffered.
        let script = format!(
            "end=$((SECONDS + {})); while [ $SECONDS -lt $end ]; do \"$@\"; sleep 0.1; done | \
             while read -r line; do echo \"$EPOCHREALTIME $line\" >> \"$0\"; done",
            LONGEST.as_secs()
        );
        let kubectl = world.cluster.tools().path("kubectl")?;
        // kubectl's default cache would outlive the cluster and contain the APIs of another one with the same address.
        let command: Command = world
            .cluster
            .command_in_network("bash")?
            .args(["-c", &script])
            .arg(&file)
            .arg(kubectl)
            .arg("--cache-dir")
            .arg(directory.join("cache"))
            .arg("get")
            .args(objects)
            .args(["--watch", "-o"])
            .arg(format!("jsonpath={{.metadata.resourceVersion}} {path}{{\"\\n\"}}"))
            .timeout(LONGEST + PATIENCE);
        let running = tokio::spawn(async move { command.output().await });
        let watch = Self { running, file };
        wait_for(&format!("the watch of {name}"), PATIENCE, async || {
            ensure!(!read(&watch.file)?.is_empty(), "it has printed nothing");
            Ok(())
        })
        .await?;
        Ok(watch)
    }

    /// Stops the watch and returns the versions.
    pub fn stop(self) -> Result<Vec<WatchLine>> {
        ensure!(!self.running.is_finished(), "the watch ended too early");
        read(&self.file)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn read(file: &Path) -> Result<Vec<WatchLine>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let parse = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some(WatchLine {
            at: words.next()?.parse().ok()?,
            version: words.next()?.parse().ok()?,
            words: words.collect(),
        })
    };
    Ok(text.lines().filter_map(parse).collect())
}

/// Returns the longest time for which a registered driver was missing in a CSINode. The columns are the name of the
/// node and the names of its drivers.
pub fn longest_gap(registrations: &[WatchLine]) -> Result<Duration> {
    let mut missing: BTreeMap<&str, f64> = BTreeMap::new();
    let mut longest: f64 = 0.0;
    for line in registrations {
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
