// SPDX-License-Identifier: Apache-2.0
//! Both drivers as a cluster runs them: claims go through the real external-provisioner and external-attacher to a cloud whose
//! servers the cluster's nodes are.
//!
//! Each driver has a cluster of its own, installed as its makers do: ours by the operator, the Go driver from its own manifests,
//! with the arguments that either gives to the sidecars. The sidecars' programs are the same. One claim after the other gets a
//! pod; of a crowd of claims the controller's part is measured alone, with VolumeAttachments that are made as the
//! attach-detach controller makes them: nobody runs fifty containers for it.

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

use cloud::{Asked, Moments};
use site::{CLASS, Processes, Who};
pub(crate) use table::render;
use watch::{Kind, Story, Watch};

/// How long a step of one claim may take.
const STEP: Duration = Duration::from_mins(2);
/// How long a step of a crowd may take: sidecars repeat what failed after pauses that double.
const CROWD_STEP: Duration = Duration::from_mins(5);
/// Events that tell of a call that failed. Attaching and detaching have no event of the attacher's.
const FAILURES: [&str; 2] = ["ProvisioningFailed", "VolumeFailedDelete"];

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Claims with a pod each, one after the other.
    pub(crate) alone: u32,
    /// Claims at once.
    pub(crate) crowd: u32,
    /// How long the driver is watched with nothing to do; not at all when zero.
    pub(crate) idle: Duration,
}

/// All of one driver.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    processes: Roles<usize>,
    /// Memory after the start.
    idle: Roles<Memory>,
    /// The same in the end.
    loaded: Roles<Memory>,
    /// Processor time in a minute in which nobody asks for anything.
    minute: Option<Roles<Duration>>,
    alone: Claims,
    crowd: Option<Claims>,
}

/// Of some claims.
#[derive(Debug, Clone, Default)]
struct Claims {
    /// The driver's figures. Its lateness is that of attaching, as the API server tells it.
    lives: Lives,
    /// The same of detaching.
    late_detach: Vec<Duration>,
    /// Claims that did not get or lose their volume in time.
    failed: usize,
    steps: BTreeMap<Step, Vec<Span>>,
    /// From the wish for the first volume's end until the cloud had none.
    cleared: Option<Duration>,
    /// The operator's requests meanwhile.
    operator: usize,
}

/// What Kubernetes waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Bind,
    Attach,
    /// Of a pod.
    Ready,
    /// All that is before the volume can be used: the Go driver's claims are bound before their volumes are there.
    Use,
    Detach,
    Delete,
}

/// A step of one claim.
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
    /// The time that this many per cent of the claims did not need longer than.
    fn time(&self, step: Step, per_cent: usize) -> Option<Duration> {
        let mut times: Vec<_> = self.steps.get(&step)?.iter().map(|span| span.time()).collect();
        times.sort();
        percentile(&times, per_cent)
    }

    /// From the first claim's beginning to the last one's end.
    fn all(&self, step: Step) -> Option<Duration> {
        let spans = self.steps.get(&step)?;
        let (begin, end) = (
            spans.iter().map(|span| span.begin).min()?,
            spans.iter().map(|span| span.end).max()?,
        );
        Some(Span { begin, end }.time())
    }
}

/// Runs ours, then the Go driver.
pub(crate) async fn both(kind: CloudKind, plan: Plan) -> Result<(Figures, Figures)> {
    Ok((one(kind, plan, Who::Ours).await?, one(kind, plan, Who::Go).await?))
}

async fn one(kind: CloudKind, plan: Plan, who: Who) -> Result<Figures> {
    let world = site::start(kind, who).await.with_context(|| who.name())?;
    let figures = measure(&world, plan, who).await;
    if figures.is_err() {
        eprintln!("{}", world.describe().await);
        eprintln!("bench: logs: {}", world.cluster.collect_logs().await?.display());
    }
    // What a driver leaves behind is among its failures, and the next one gets a cloud without it.
    if let Err(error) = world.stop().await {
        eprintln!("bench: {}: {error:#}", who.name());
    }
    figures.with_context(|| who.name())
}

async fn measure(world: &World, plan: Plan, who: Who) -> Result<Figures> {
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
    // Logins and discoveries are of the process and not of a volume.
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

/// A driver at work.
struct Bench<'a> {
    world: &'a World,
    processes: &'a Processes,
    watch: Watch,
}

/// The counters before.
struct Start {
    at: Instant,
    asked: Asked,
    processor: Roles<Processor>,
    events: usize,
}

impl Bench<'_> {
    /// One claim with a pod after the other.
    async fn alone(&self, prefix: &str, count: u32) -> Result<Claims> {
        let start = self.start().await?;
        let names = names(prefix, count);
        let mut moments = Moments::default();
        for name in &names {
            self.life(name, &mut moments).await?;
        }
        self.end(start, &names, true, moments).await
    }

    /// A claim and a pod, to their end. What does not come in time is missing in what the watch tells.
    async fn life(&self, name: &str, moments: &mut Moments) -> Result<()> {
        let one = [name.to_owned()];
        self.create(vec![of_class(name)]).await?;
        self.watch.reached(Kind::Claim, &one, |story| story.done, STEP).await?;
        let script = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done";
        let mut pod = pod(name, script, None);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        self.create(vec![pod]).await?;
        self.watch.reached(Kind::Pod, &one, |story| story.done, STEP).await?;
        moments.look(self.world).await?;
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

    /// Many claims, each step for all of them at once, spread over the nodes of their zone.
    async fn crowd(&self, prefix: &str, count: u32) -> Result<Claims> {
        let start = self.start().await?;
        let names = names(prefix, count);
        let mut moments = Moments::default();
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
        moments.look(self.world).await?;
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
        // Validation would read the API's description first.
        let create = create
            .args(["create", "--validate=false", "-f", "-"])
            .stdin(list.to_string());
        create.output().await.map(drop)
    }

    async fn delete(&self, words: &[&str]) -> Result<()> {
        let words = [&["delete", "--wait=false"], words].concat();
        self.world.cluster.kubectl(&words).await.map(drop)
    }

    /// The PersistentVolume of a claim; empty where it has none.
    fn volume(&self, claim: &str) -> String {
        let object = self.watch.story(Kind::Claim, claim).object;
        object["spec"]["volumeName"].as_str().unwrap_or_default().to_owned()
    }

    async fn start(&self) -> Result<Start> {
        Ok(Start {
            events: self.failures().await?,
            asked: Asked::so_far(self.world).await?,
            processor: self.processes.processor()?,
            at: Instant::now(),
        })
    }

    /// How many failed calls events have told of.
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

    /// The counters' growth since then, when the cloud has no volume any more, and what the watch tells.
    async fn end(&self, start: Start, names: &[String], with_pods: bool, mut moments: Moments) -> Result<Claims> {
        let cleared = wait_for("the end of all volumes in the cloud", CROWD_STEP, async || {
            let left = self.world.cloud_volumes().await?;
            ensure!(left.is_empty(), "left: {}", left.join(", "));
            Ok(Timestamp::now())
        })
        .await;
        let (wall, processor) = (start.at.elapsed(), self.processes.processor()?);
        let asked = Asked::so_far(self.world).await?.since(&start.asked);
        moments.read_log(self.world)?;

        let mut claims = Claims {
            operator: asked.operator,
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
            requests: asked.driver,
            failures,
            wall,
            processor: growth(processor, start.processor),
            lateness,
            ..Lives::default()
        };
        Ok(claims)
    }
}

/// How long after the cloud was done with a volume the API server told so.
fn late(moments: &BTreeMap<String, Timestamp>, volume: &Story, told: Option<Timestamp>) -> Option<Duration> {
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

/// A claim of the class that both drivers have here.
fn of_class(name: &str) -> Value {
    let mut claim = claim(name, "Filesystem");
    claim["spec"]["storageClassName"] = json!(CLASS);
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_all_lasts_from_the_first_beginning_to_the_last_end() {
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
