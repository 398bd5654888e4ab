// SPDX-License-Identifier: Apache-2.0
//! Measures both drivers behind the real external-provisioner and external-attacher, on a cloud whose servers are the
//! nodes of the cluster.
//!
//! Each driver runs in its own cluster and is installed as documented: ours by the operator, the Go driver from its own
//! manifests, with the sidecar arguments that each of them sets. The sidecar programs are the same. In the sequential
//! run, every claim gets a pod. In the crowd run, only the controller service is measured: the benchmark creates the
//! VolumeAttachments itself, as the attach-detach controller would, because fifty containers would dominate the result.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use jiff::Timestamp;
use serde_json::{Value, json};
use suites::cluster::{DRIVER, USERS, World, claim, pod};

use crate::Kind as CloudKind;
use crate::measure::{Lives, Roles, percentile};
use crate::process::{Memory, Processor};
use crate::run::growth;

mod cloud;
mod site;
mod table;
mod watch;

use cloud::{CloudTimes, RequestCounts};
use site::{CLASS, DriverKind, Processes};
pub(crate) use table::render;
use watch::{Kind, ObjectHistory, Watch};

/// Limit of one step of a single claim.
const STEP: Duration = Duration::from_mins(2);
/// Limit of one step of a crowd. It is longer because sidecars retry failed calls with exponential back-off.
const CROWD_STEP: Duration = Duration::from_mins(5);
/// Events that report a failed call. The external-attacher records no event for a failed attach or detach.
const FAILURES: [&str; 2] = ["ProvisioningFailed", "VolumeFailedDelete"];

/// The amount of work of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Number of claims with a pod each, created sequentially.
    pub(crate) alone: u32,
    /// Number of claims created at once.
    pub(crate) crowd: u32,
    /// Observation time of the idle driver; zero skips the measurement.
    pub(crate) idle: Duration,
}

/// Figures of one driver.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    processes: Roles<usize>,
    /// Memory after the start.
    idle: Roles<Memory>,
    /// Memory at the end of the run.
    loaded: Roles<Memory>,
    /// Processor time of an idle minute.
    minute: Option<Roles<Duration>>,
    alone: Claims,
    crowd: Option<Claims>,
}

/// Figures of a number of claims.
#[derive(Debug, Clone, Default)]
struct Claims {
    /// Figures of the driver. The lateness is that of attaching, as observed through the API server.
    lives: Lives,
    /// Lateness of detaching, as observed through the API server.
    late_detach: Vec<Duration>,
    /// Number of claims that did not bind or release their volume in time.
    failed: usize,
    steps: BTreeMap<Step, Vec<Span>>,
    /// Time from the first deletion until the cloud had no volume.
    cleared: Option<Duration>,
    /// Number of requests that the operator sent during the run.
    operator: usize,
}

/// The steps that Kubernetes waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Bind,
    Attach,
    /// The pod is ready.
    Ready,
    /// All steps before the volume is usable. The Go driver binds claims before their volumes exist, so `Bind` alone is
    /// not comparable.
    Use,
    Detach,
    Delete,
}

/// Begin and end of a step of one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    begin: Timestamp,
    end: Timestamp,
}

impl Span {
    fn time(self) -> Duration {
        Duration::try_from(self.end.duration_since(self.begin)).unwrap_or_default()
    }
}

impl Claims {
    /// Returns the percentile of the step's duration over all claims.
    fn time(&self, step: Step, per_cent: usize) -> Option<Duration> {
        let mut times: Vec<_> = self.steps.get(&step)?.iter().map(|span| span.time()).collect();
        times.sort();
        percentile(&times, per_cent)
    }

    /// Returns the time from the begin of the first claim to the end of the last one.
    fn all(&self, step: Step) -> Option<Duration> {
        let spans = self.steps.get(&step)?;
        let (begin, end) = (
            spans.iter().map(|span| span.begin).min()?,
            spans.iter().map(|span| span.end).max()?,
        );
        Some(Span { begin, end }.time())
    }
}

/// Measures our driver, then the Go driver.
pub(crate) async fn both(kind: CloudKind, plan: Plan) -> Result<(Figures, Figures)> {
    Ok((
        one(kind, plan, DriverKind::Ours).await?,
        one(kind, plan, DriverKind::Go).await?,
    ))
}

async fn one(kind: CloudKind, plan: Plan, who: DriverKind) -> Result<Figures> {
    let world = site::start(kind, who).await.with_context(|| who.name())?;
    let figures = measure(&world, plan, who).await;
    if figures.is_err() {
        eprintln!("{}", world.describe().await);
        eprintln!("bench: logs: {}", world.cluster.collect_logs().await?.display());
    }
    // Volumes that a driver fails to delete count as failures. The next driver starts with a new cloud.
    if let Err(error) = world.stop().await {
        eprintln!("bench: {}: {error:#}", who.name());
    }
    figures.with_context(|| who.name())
}

async fn measure(world: &World, plan: Plan, who: DriverKind) -> Result<Figures> {
    let say = |line: String| world.cluster.progress().say(line);
    let processes = Processes::find(world, who).await?;
    let bench = Bench {
        world,
        processes: &processes,
        watch: Watch::start(&world.cluster).await?,
    };
    let idle = processes.memory()?;
    let minute = processes.minute(plan.idle).await?;
    say(format!(
        "{}: {} claims with pods, one after the other",
        who.name(),
        plan.alone
    ));
    // Logins and version discovery belong to the process, not to a volume, so they happen before the measurement.
    let first = bench.alone("first", 1).await?;
    ensure!(
        first.failed == 0,
        "the first claim and its pod did not come to their end"
    );
    let alone = bench.alone("alone", plan.alone).await?;
    let mut crowd = None;
    if plan.crowd > 0 {
        say(format!("{}: {} claims at once", who.name(), plan.crowd));
        crowd = Some(bench.crowd("crowd", plan.crowd).await?);
    }
    let loaded = processes.memory()?;
    ensure!(
        Processes::find(world, who).await? == processes,
        "a container of {} was started again meanwhile",
        who.name()
    );
    Ok(Figures {
        processes: processes.counts(),
        idle,
        loaded,
        minute,
        alone,
        crowd,
    })
}

/// A running driver in its cluster.
struct Bench<'a> {
    world: &'a World,
    processes: &'a Processes,
    watch: Watch,
}

/// Counters at the start of a measurement.
struct Start {
    at: Instant,
    asked: RequestCounts,
    processor: Roles<Processor>,
    events: usize,
}

impl Bench<'_> {
    /// Runs claims with a pod each, one after the other.
    async fn alone(&self, prefix: &str, count: u32) -> Result<Claims> {
        let start = self.start().await?;
        let names = names(prefix, count);
        let mut moments = CloudTimes::default();
        for name in &names {
            self.life(name, &mut moments).await?;
        }
        self.end(start, &names, true, moments).await
    }

    /// Creates a claim and a pod, and deletes them. Steps that exceed their limit are missing in the watch.
    async fn life(&self, name: &str, moments: &mut CloudTimes) -> Result<()> {
        let one = [name.to_owned()];
        self.create(vec![of_class(name)]).await?;
        self.watch.reached(Kind::Claim, &one, |story| story.done, STEP).await?;
        let script = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done";
        let mut pod = pod(name, script, None);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        self.create(vec![pod]).await?;
        self.watch.reached(Kind::Pod, &one, |story| story.done, STEP).await?;
        moments.record_attached(self.world).await?;
        self.delete(&["pod", name, "-n", USERS]).await?;
        let volume = self.volume(name);
        if let Some((attachment, _)) = self.watch.attachment_of(&volume) {
            self.watch
                .reached(Kind::Attachment, &[attachment], |story| story.gone, STEP)
                .await?;
        }
        self.delete(&["pvc", name, "-n", USERS]).await?;
        self.watch
            .reached(Kind::Volume, &[volume], |story| story.gone, STEP)
            .await?;
        Ok(())
    }

    /// Creates many claims at once, and runs each step for all of them. The claims are spread over the nodes of their
    /// zone.
    async fn crowd(&self, prefix: &str, count: u32) -> Result<Claims> {
        let start = self.start().await?;
        let names = names(prefix, count);
        let mut moments = CloudTimes::default();
        self.create(names.iter().map(|name| of_class(name)).collect()).await?;
        let bound = self
            .watch
            .reached(Kind::Claim, &names, |story| story.done, CROWD_STEP)
            .await?;
        let zone = self.world.cluster.first_node()?.zone();
        let nodes = self.world.cluster.nodes().iter().filter(|node| node.zone() == zone);
        let attachments = bound.iter().zip(nodes.cycle()).map(|(name, node)| {
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
                "spec": {"attacher": DRIVER, "nodeName": node.name(),
                    "source": {"persistentVolumeName": self.volume(name)}}})
        });
        self.create(attachments.collect()).await?;
        self.watch
            .reached(Kind::Attachment, &bound, |story| story.done, CROWD_STEP)
            .await?;
        moments.record_attached(self.world).await?;
        self.delete(&["volumeattachments", "--all"]).await?;
        self.watch
            .reached(Kind::Attachment, &bound, |story| story.gone, CROWD_STEP)
            .await?;
        let volumes: Vec<_> = bound.iter().map(|name| self.volume(name)).collect();
        self.delete(&["pvc", "--all", "-n", USERS]).await?;
        self.watch
            .reached(Kind::Volume, &volumes, |story| story.gone, CROWD_STEP)
            .await?;
        self.end(start, &names, false, moments).await
    }

    async fn create(&self, objects: Vec<Value>) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let kubectl = self.world.cluster.tools().path("kubectl")?;
        let kubectl = kubectl.to_str().context("the path of kubectl is not UTF-8")?;
        let create = self.world.cluster.command_in_network(kubectl)?;
        // Validation would fetch the OpenAPI description first.
        let create = create
            .args(["create", "--validate=false", "-f", "-"])
            .stdin(list.to_string());
        create.output().await.map(drop)
    }

    async fn delete(&self, words: &[&str]) -> Result<()> {
        let words = [&["delete", "--wait=false"], words].concat();
        self.world.cluster.kubectl(&words).await.map(drop)
    }

    /// Returns the name of the PersistentVolume of a claim; empty if the claim is not bound.
    fn volume(&self, claim: &str) -> String {
        let object = self.watch.story(Kind::Claim, claim).object;
        object["spec"]["volumeName"].as_str().unwrap_or_default().to_owned()
    }

    async fn start(&self) -> Result<Start> {
        Ok(Start {
            events: self.failures().await?,
            asked: RequestCounts::so_far(self.world).await?,
            processor: self.processes.processor()?,
            at: Instant::now(),
        })
    }

    /// Counts the events that report failed calls.
    async fn failures(&self) -> Result<usize> {
        let events = self.world.cluster.get(&["events", "-A"]).await?;
        let events = events["items"].as_array().context("a list without items")?;
        let of = |event: &Value| {
            let count = event["series"]["count"].as_u64().or(event["count"].as_u64());
            usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX)
        };
        let failures = events
            .iter()
            .filter(|event| FAILURES.iter().any(|reason| event["reason"] == *reason));
        Ok(failures.map(of).sum())
    }

    /// Waits until the cloud has no volume, and returns the growth of the counters and the times from the watch.
    async fn end(&self, start: Start, names: &[String], with_pods: bool, mut moments: CloudTimes) -> Result<Claims> {
        let cleared = wait_for("the end of all volumes in the cloud", CROWD_STEP, async || {
            let remaining = self.world.cloud_volumes().await?;
            ensure!(remaining.is_empty(), "left: {}", remaining.join(", "));
            Ok(Timestamp::now())
        })
        .await;
        let (wall, processor) = (start.at.elapsed(), self.processes.processor()?);
        let counts = RequestCounts::so_far(self.world).await?.since(&start.asked);
        moments.read_log(self.world)?;

        let mut claims = Claims {
            operator: counts.operator,
            ..Claims::default()
        };
        let mut failures = self.failures().await?.saturating_sub(start.events);
        let mut lateness = Vec::new();
        for name in names {
            let claim = self.watch.story(Kind::Claim, name);
            let volume_name = self.volume(name);
            let volume = self.watch.story(Kind::Volume, &volume_name);
            let attachment = self.watch.attachment_of(&volume_name).map(|(_, story)| story);
            let attachment = attachment.unwrap_or_default();
            let pod = self.watch.story(Kind::Pod, name);
            let mut steps = vec![
                (Step::Bind, claim.began, claim.done),
                (Step::Attach, attachment.began, attachment.done),
                (Step::Detach, attachment.ending, attachment.gone),
                (Step::Delete, claim.ending, volume.gone),
            ];
            if with_pods {
                steps.push((Step::Ready, pod.began, pod.done));
            }
            steps.push((
                Step::Use,
                claim.began,
                if with_pods { pod.done } else { attachment.done },
            ));
            let mut missing = false;
            for (step, begin, end) in steps {
                match (begin, end) {
                    (Some(begin), Some(end)) => claims.steps.entry(step).or_default().push(Span { begin, end }),
                    _ => missing = true,
                }
            }
            claims.failed += usize::from(missing);
            failures += attachment.failures.len();
            lateness.extend(late(&moments.attached, &volume, attachment.done));
            claims
                .late_detach
                .extend(late(&moments.detached, &volume, attachment.gone));
        }
        lateness.sort();
        claims.late_detach.sort();
        match cleared {
            Ok(end) => {
                let endings = names
                    .iter()
                    .filter_map(|name| self.watch.story(Kind::Claim, name).ending);
                claims.cleared = endings.min().map(|begin| Span { begin, end }.time());
            }
            Err(error) => eprintln!("bench: {error:#}"),
        }
        claims.lives = Lives {
            count: u32::try_from(names.len()).unwrap_or(u32::MAX),
            requests: counts.driver,
            failures,
            wall,
            processor: growth(processor, start.processor),
            lateness,
            ..Lives::default()
        };
        Ok(claims)
    }
}

/// Returns the delay between the end of the operation in the cloud and the update on the API server.
fn late(moments: &BTreeMap<String, Timestamp>, volume: &ObjectHistory, told: Option<Timestamp>) -> Option<Duration> {
    let handle = volume.object["spec"]["csi"]["volumeHandle"].as_str()?;
    let span = Span {
        begin: *moments.get(handle)?,
        end: told?,
    };
    Some(span.time())
}

fn names(prefix: &str, count: u32) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

/// Returns a claim with the StorageClass that both drivers share.
fn of_class(name: &str) -> Value {
    let mut claim = claim(name, "Filesystem");
    claim["spec"]["storageClassName"] = json!(CLASS);
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_spans_first_begin_to_last_end() {
        let span = |begin: i64, end: i64| Span {
            begin: Timestamp::from_second(begin).unwrap(),
            end: Timestamp::from_second(end).unwrap(),
        };
        let spans = vec![span(1, 4), span(2, 9), span(3, 5)];
        let claims = Claims {
            steps: BTreeMap::from([(Step::Attach, spans)]),
            ..Claims::default()
        };
        assert_eq!(claims.all(Step::Attach), Some(Duration::from_secs(8)));
        assert_eq!(claims.time(Step::Attach, 50), Some(Duration::from_secs(3)));
        assert_eq!(claims.time(Step::Attach, 100), Some(Duration::from_secs(7)));
        assert_eq!(claims.all(Step::Bind), None);
    }
}
