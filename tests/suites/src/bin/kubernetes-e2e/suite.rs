// SPDX-License-Identifier: Apache-2.0
//! Runs `e2e.test` under ginkgo, inside the cluster.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use harness::{Command, Tools};
use suites::cluster::World;
use suites::ginkgo::{self, Spec};

use crate::driver::Driver;
use crate::kept::Run;
use crate::{Arguments, images, text, verdict};

/// Limit of a run. The whole selection takes 25 minutes.
const LIMIT: Duration = Duration::from_mins(75);
/// Grace period in which ginkgo can end by itself.
const GRACE: Duration = Duration::from_mins(3);

/// Descriptions of a driver, each with the selection of its specs.
const DESCRIPTIONS: [(&str, &str); 4] = [
    ("ordinary", r"\] \[Testpattern"),
    (
        "shared",
        r".*\[Class: shared\] .*(\(block volmode\)\] multiVolume .*from pods on different node|ROX mode)",
    ),
    ("one-zone", r".*\[Class: one-zone\] .* volumegroupsnapshot"),
    ("immediate", r".*\[Class: immediate\] .* volume-modify-stress"),
];
/// Excluded specs: Windows nodes, volume populators that are not installed, and restores from group snapshots. The last
/// ones request 1 MiB regardless of the description; csi-provisioner refuses a claim smaller than its snapshot, and
/// each spec waits for a quarter of an hour.
const LEFT_OUT: &str =
    r"\[Feature:Windows\]|with any volume data source|should create snapshots for StatefulSet volumes and verify";

/// Imports the images of the specs' pods.
pub(crate) async fn load_images(world: &World, tools: &Tools) -> Result<()> {
    world.cluster.progress().say("importing the images of the specs' pods");
    let list = Command::new(tools.path("e2e.test")?)
        .arg("--list-images")
        .output()
        .await?;
    for image in images::all(&list, tools).await? {
        world.cluster.import(&image).await?;
    }
    Ok(())
}

/// Runs the selected specs and returns their results.
pub(crate) async fn run(
    world: &World,
    tools: &Tools,
    driver: Driver,
    arguments: &Arguments,
) -> Result<(Run, Vec<Spec>)> {
    let cluster = &world.cluster;
    let logs = cluster.logs()?;
    let (report, log) = (logs.join("kubernetes-e2e.json"), logs.join("kubernetes-e2e.log"));
    let mut words = vec![
        text(tools.path("ginkgo")?)?.to_owned(),
        format!("--procs={}", arguments.procs),
        format!("--timeout={}s", LIMIT.as_secs()),
        format!("--grace-period={}s", GRACE.as_secs()),
        format!("--json-report={}", text(&report)?),
        format!("--skip={LEFT_OUT}"),
        "--no-color".to_owned(),
        "--seed=1".to_owned(),
    ];
    // ginkgo combines the expressions with OR.
    let focus = arguments
        .focus
        .as_ref()
        .map_or_else(String::new, |focus| format!(".*(?:{focus})"));
    words.extend(DESCRIPTIONS.map(|(_, chosen)| format!(r"--focus=External.Storage \[Driver: [^\]]*{chosen}{focus}")));
    words.extend([text(tools.path("e2e.test")?)?.to_owned(), "--".to_owned()]);
    for (name, _) in DESCRIPTIONS {
        words.push(format!("--storage.testdriver={}", text(&driver.file(name))?));
    }
    words.extend([
        "--provider=skeleton".to_owned(),
        format!("--kubeconfig={}", text(&cluster.kubeconfig()?)?),
        format!("--kubectl-path={}", text(cluster.tools().path("kubectl")?)?),
    ]);
    cluster.progress().say(format!(
        "running the suite on {}, {} specs at a time; log: {}",
        driver.title(),
        arguments.procs,
        log.display()
    ));
    let started = Instant::now();
    // Runs in the namespaces of the first node, and ends with them.
    let mut shell = vec!["sh", "-c", "exec \"$@\" >\"$0\" 2>&1", text(&log)?];
    shell.extend(words.iter().map(String::as_str));
    let ended = cluster.first_node()?.exec_within(LIMIT + 2 * GRACE, &shell).await;
    let seconds = started.elapsed().as_secs();
    cluster.progress().say(format!("the suite ended after {seconds} s"));
    // ginkgo fails if a spec fails; the report names the spec.
    let specs =
        ginkgo::read(&report).with_context(|| format!("ginkgo ended so: {ended:?}; its log is {}", log.display()))?;
    let specs = verdict::chosen(specs);
    ensure!(
        !specs.is_empty(),
        "no spec was chosen; ginkgo's log is {}",
        log.display()
    );
    let run = Run {
        focus: arguments.focus.clone(),
        procs: arguments.procs,
        seconds,
        specs: specs.len(),
    };
    Ok((run, specs))
}
