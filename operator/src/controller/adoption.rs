//! Carries a take-over out. What is to be done, [`crate::adoption`] says.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::{AdoptionMode, AdoptionStep};
use serde_json::Value;

use super::{OBSTACLE_PAUSE, Pass, rollout::is_controller_done};
use crate::{
    adoption::{Act, Installation, Ours, Takeover, take_driver, take_up, takeover},
    error::ReconcileError,
    events::Notice,
    objects::{Key, is_snapshot_controller, kind},
    observe::{self, ObserveError, eligible_nodes, ready_nodes},
    resolve::{Problem, Resolved},
    status::Seen,
};

/// Pause before another look at an installation that is being replaced.
pub(super) const TAKEOVER_PAUSE: Duration = Duration::from_secs(1);
/// What has not changed for so long will not change within a moment: a pod takes 30 s to end.
pub(super) const TAKEOVER_STALLS_AFTER: Duration = Duration::from_mins(1);

/// Another installation, and where its take-over is.
#[derive(Debug, Default)]
pub(super) struct Adoption {
    found: Installation,
    pub(super) takeover: Option<Takeover>,
}

impl Adoption {
    /// The nodes where a pod of the other installation is: ours waits there.
    pub(super) fn nodes(&self) -> BTreeSet<&str> {
        self.found.nodes()
    }
}

impl Pass<'_> {
    /// Looks for the installation that is to be replaced; its CSIDriver object counts as ours from then on, and so does what an
    /// operator let go of where that is to be taken up.
    pub(super) async fn look_for_installation(
        &self,
        live: &mut BTreeMap<Key, Value>,
        resolved: &Resolved,
        can_follow: bool,
        seen: &mut Seen,
    ) -> Result<Adoption, ReconcileError> {
        let spec = &self.driver.spec.adoption;
        match spec.mode {
            AdoptionMode::Refuse => return Ok(Adoption::default()),
            AdoptionMode::Adopt => {
                take_up(&self.owner, live);
                return Ok(Adoption::default());
            }
            AdoptionMode::Migrate => {}
        }
        let (context, name) = (self.context, &self.owner.name);
        let looked = observe::installation(&context.client, &self.owner, &spec.namespace, context.sources.now()).await;
        let mut found = match looked {
            Err(ObserveError::List { plural, source }) if is_forbidden(&source) => {
                seen.problems.push(forbidden(&plural, &spec.namespace));
                return Ok(Adoption::default());
            }
            other => other?,
        };
        // Where nothing runs, the other installation may be in another namespace: nothing is done beside it.
        if !found.has_workloads() {
            let is_foreign = |(key, object): (&Key, &Value)| key.kind == kind::CSI_DRIVER && !self.owner.owns(object);
            if found.is_gone() || live.iter().any(is_foreign) {
                return Ok(Adoption::default());
            }
        }
        context
            .cluster
            .read(|index| found.leave_dead_pods(|node| index.is_ready(node)));
        take_driver(&self.owner, live);
        let running = observe::running_node_pods(&context.client, &self.owner, self.namespace()).await?;
        let daemon_set = live
            .iter()
            .find(|(key, object)| key.kind == kind::DAEMON_SET && self.owner.owns(object));
        let template = daemon_set.and_then(|(_, object)| observe::pod_template(object));
        let (wanted, eligible, pods, registered) = context.cluster.read(|index| {
            let nodes = index.nodes();
            let template = template.as_ref();
            (
                template
                    .map(|template| ready_nodes(&nodes, template))
                    .unwrap_or_default(),
                template
                    .map(|template| eligible_nodes(&nodes, template))
                    .unwrap_or_default(),
                index.node_pods_of(name),
                index.registered_on(name),
            )
        });
        let serving = pods
            .iter()
            .filter(|pod| pod.ready && !pod.leaving && registered.contains(&pod.node))
            .map(|pod| pod.node.clone())
            .collect();
        let takeover = takeover(
            &found,
            &Ours {
                can_follow,
                has_controller: live.iter().any(|(key, object)| {
                    key.kind == kind::DEPLOYMENT && self.owner.owns(object) && !is_snapshot_controller(object)
                }),
                is_controller_done: is_controller_done(live),
                has_daemon_set: daemon_set.is_some(),
                wanted: &wanted,
                eligible: &eligible,
                running: &running,
                serving: &serving,
                max_unavailable: &resolved.node.max_unavailable,
            },
        );
        seen.adoption.clone_from(&takeover);
        Ok(Adoption { found, takeover })
    }

    /// When to look again: the other installation is not ours and so not watched. Not soon where nothing may be done or nothing
    /// happens, because every look lists much.
    pub(super) fn takeover_pause(&self, adoption: &Adoption, may_write: bool) -> Option<Duration> {
        let takeover = adoption.takeover.as_ref()?;
        let still = self.context.still(&self.owner.name, takeover);
        match takeover.step {
            AdoptionStep::Done => None,
            AdoptionStep::Preparing => Some(OBSTACLE_PAUSE),
            _ if may_write && still < TAKEOVER_STALLS_AFTER => Some(TAKEOVER_PAUSE),
            _ => Some(OBSTACLE_PAUSE),
        }
    }

    /// Does what is to be done now.
    pub(super) async fn take_over(&self, adoption: &Adoption, seen: &mut Seen) -> Result<Vec<Notice>, ReconcileError> {
        let namespace = &self.driver.spec.adoption.namespace;
        let acts = adoption.takeover.iter().flat_map(|takeover| &takeover.acts);
        let mut notices = Vec::new();
        for act in acts {
            match self.context.writer.take_over(namespace, act).await {
                Ok(()) => notices.push(Notice::normal("AdoptionStepDone", "Adopt", sentence(act, namespace))),
                Err(crate::apply::ApplyError::Refused { code: 403, .. }) => {
                    let plural = match act {
                        Act::ScaleDown(_) => "deployments",
                        Act::Orphan(_) => "daemonsets",
                        Act::Replace(_) => "pods",
                    };
                    seen.problems.push(forbidden(plural, namespace));
                    break;
                }
                Err(source) => {
                    return Err(ReconcileError::TakeOver {
                        act: sentence(act, namespace),
                        source,
                    });
                }
            }
        }
        Ok(notices)
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn forbidden(plural: &str, namespace: &str) -> Problem {
    Problem {
        reason: "AdoptionForbidden",
        message: format!(
            "spec.adoption.mode is Migrate, and the operator may not read or change {plural} in namespace {namespace}; \
             `kubectl apply -k config/rbac/adoption` gives it the role for that (its namespace is kube-system: write another one there \
             and in spec.adoption.namespace)"
        ),
    }
}

fn sentence(act: &Act, namespace: &str) -> String {
    match act {
        Act::ScaleDown(controller) => format!(
            "{} {namespace}/{} of the other installation is scaled to 0 (it had {})",
            controller.kind, controller.name, controller.replicas
        ),
        Act::Orphan(set) => format!(
            "DaemonSet {namespace}/{} of the other installation is deleted, its pods go on",
            set.name
        ),
        Act::Replace(pod) => format!(
            "pod {namespace}/{} of the other installation is deleted: the driver on node {} changes",
            pod.name, pod.node
        ),
    }
}
