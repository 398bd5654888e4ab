// SPDX-License-Identifier: Apache-2.0
//! Tests of the cluster itself: the properties that the suites need, and its complete removal. Needs root.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::{CloudConfig, Cluster, ClusterConfig, Command, Progress, wait_for};

const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: listener}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: docker.io/library/busybox:stable
    command: [sh, -c, 'while true; do echo here I am | nc -l -p 7000; done']
---
apiVersion: v1
kind: Pod
metadata: {name: sleeper}
spec:
  nodeName: node2
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: docker.io/library/busybox:stable
    command: [sleep, '3600']
";

fn quiet(nodes: u8) -> ClusterConfig {
    let mut config = ClusterConfig::with_nodes(nodes);
    config.cloud = CloudConfig::None;
    config.progress = Progress::quiet();
    config
}

/// Lists all remains of a run, by kind.
fn remains(run: &Path) -> Result<Vec<String>> {
    let id = run
        .file_name()
        .context("a run without a name")?
        .to_string_lossy()
        .into_owned();
    let mut remaining = Vec::new();
    if run.exists() {
        remaining.push(format!("files in {}", run.display()));
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    remaining.extend(
        mounts
            .lines()
            .filter(|line| line.contains(&id))
            .map(|line| format!("mount {line}")),
    );
    for hierarchy in mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .filter_map(|line| line.split(' ').nth(4))
    {
        let groups = std::fs::read_dir(hierarchy)?.flatten();
        remaining.extend(
            groups
                .filter(|group| group.file_name().to_string_lossy().starts_with(&id))
                .map(|group| format!("cgroup {group:?}")),
        );
    }
    for device in std::fs::read_dir("/sys/block")?.flatten() {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if file.contains(&id) {
            remaining.push(format!("loop device {} of {}", device.path().display(), file.trim()));
        }
    }
    for process in std::fs::read_dir("/proc")?.flatten() {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        if words.contains(&id) {
            remaining.push(format!("process {words}"));
        }
    }
    Ok(remaining)
}

async fn until_nothing_remains(run: &Path) -> Result<()> {
    wait_for("the end of everything", Duration::from_mins(1), async || {
        let remaining = remains(run)?;
        ensure!(remaining.is_empty(), "{remaining:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pods_communicate_and_cluster_is_removed_completely() -> Result<()> {
    let cluster = Cluster::start(quiet(2)).await?;
    let run = cluster.directory()?.to_owned();
    cluster.apply(PODS).await?;
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Ready",
            "--timeout=40s",
            "pod/listener",
            "pod/sleeper",
        ])
        .await?;

    let listener = cluster.get(&["pod", "listener"]).await?;
    let address = listener["status"]["podIP"].as_str().context("the pod has no address")?;
    let heard = wait_for("the listener's answer", Duration::from_secs(10), async || {
        let words = ["exec", "sleeper", "--", "nc", "-w", "2", address, "7000"];
        let heard = cluster.kubectl(&words).await?;
        ensure!(!heard.is_empty(), "it said nothing");
        Ok(heard)
    });
    assert_eq!(heard.await?, "here I am\n");
    // The service address of the API server works without kube-proxy.
    let reach = "nc -w 3 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo reached";
    assert_eq!(
        cluster.kubectl(&["exec", "sleeper", "--", "sh", "-c", reach]).await?,
        "reached\n"
    );

    let other = cluster.node("node2")?;
    let before = other.containers("default", "main").await?;
    assert_eq!(
        before
            .iter()
            .map(|container| container.pod.as_str())
            .collect::<Vec<_>>(),
        ["sleeper"]
    );
    other.kill_container("default", "main").await?;
    wait_for(
        "the restart of the killed container",
        Duration::from_secs(30),
        async || {
            let now = other.containers("default", "main").await?;
            ensure!(now.len() == 1 && now[0].id != before[0].id, "{now:?}");
            Ok(())
        },
    )
    .await?;

    cluster.stop().await?;
    until_nothing_remains(&run).await
}

#[tokio::test]
async fn devices_are_private_to_their_node() -> Result<()> {
    let cluster = Cluster::start(quiet(2)).await?;
    for node in cluster.nodes() {
        node.exec(&["ln", "-s", "/dev/null", &format!("/dev/disk/by-id/of-{}", node.name())])
            .await?;
    }
    for node in cluster.nodes() {
        let links = node.exec(&["ls", "/dev/disk/by-id"]).await?;
        assert_eq!(links.trim(), format!("of-{}", node.name()));
        let outside = node.by_id_directory().join(format!("of-{}", node.name()));
        assert_eq!(std::fs::read_link(outside)?, Path::new("/dev/null"));
    }
    cluster.stop().await
}

/// Starts a cluster in another process and returns when it is up. The pipe must stay open, because that process
/// continues to write to it.
async fn foreign_cluster() -> Result<(Child, PathBuf, impl Sized)> {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_harness"))
        .args(["up", "--foreground", "--no-simulator"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = child.stdout.take().context("no pipe")?;
    let reader = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(output).lines();
        let kubeconfig = lines.find_map(|line| line.ok()?.strip_prefix("export KUBECONFIG=").map(PathBuf::from));
        (kubeconfig, lines)
    });
    let (kubeconfig, rest) = tokio::time::timeout(Duration::from_mins(3), reader).await??;
    let kubeconfig = kubeconfig.context("it ended early")?;
    let run = kubeconfig.parent().context("a file without a directory")?.to_owned();
    ensure!(
        !remains(&run)?.is_empty(),
        "{} is not the directory of a run",
        run.display()
    );
    Ok((child, run, rest))
}

#[tokio::test]
async fn cluster_of_killed_owner_is_removed() -> Result<()> {
    let (mut owner, run, _output) = foreign_cluster().await?;
    // The kubelet attaches a loop device to the device of a raw block volume.
    let disk = run.join("disk.img");
    std::fs::File::create(&disk)?.set_len(1 << 20)?;
    let attach = ["--find", "--show"];
    let device = Command::new("losetup").args(attach).arg(&disk).output().await?;
    Command::new("losetup").args(attach).arg(device.trim()).output().await?;
    owner.kill()?;
    owner.wait()?;
    until_nothing_remains(&run).await
}

#[tokio::test]
async fn interrupted_owner_removes_its_cluster() -> Result<()> {
    let (mut owner, run, _output) = foreign_cluster().await?;
    let pid = rustix::process::Pid::from_child(&owner);
    rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
    let status = tokio::task::spawn_blocking(move || owner.wait()).await??;
    assert_eq!(status.code(), Some(130));
    assert_eq!(remains(&run)?, Vec::<String>::new());
    Ok(())
}
