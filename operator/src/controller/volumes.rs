//! Volumes in trouble, in a reconcile: what takes too long is found, looked into and told of.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;

use super::Pass;
use crate::{
    diagnosis::{CloudAccess, LOOKED_INTO, Suspect, Suspects, diagnose, suspects},
    events::Notice,
    resolve::Resolved,
    status::{self, CloudView, Seen},
};

/// The label with a node's zone.
const ZONE_LABEL: &str = "topology.cinder.csi.openstack.org/zone";

impl Pass<'_> {
    /// Finds and explains operations that take too long; says when to look again.
    pub(super) fn look_at_volumes(&self, seen: &mut Seen, resolved: Option<&Resolved>) -> Option<Duration> {
        let (context, name) = (self.context, &self.owner.name);
        seen.has_topology = resolved.is_some_and(|resolved| resolved.topology.enabled);
        seen.node_zones = context.cluster.read(|index| {
            let nodes = index.nodes().into_iter();
            nodes.filter_map(|node| node.labels.get(ZONE_LABEL).cloned()).collect()
        });
        let limits = seen.health.stuck;
        let now = context.sources.now();
        let Suspects { all, others, next } = context
            .cluster
            .read(|index| suspects(index, name, &limits, now, LOOKED_INTO));
        let is_any_stuck = !all.is_empty();
        let mut known = context.inquiries.join(name, &context.clouds, all);
        for suspect in &mut known {
            complete(suspect, seen);
        }
        seen.stuck = known.iter().map(diagnose).collect();
        seen.stuck_others = others;
        seen.stuck_unexplained = is_any_stuck && seen.stuck.is_empty();
        let again = (!seen.stuck.is_empty())
            .then(|| context.inquiries.due_in(name))
            .flatten();
        [next, again].into_iter().flatten().min()
    }

    /// Tells claims of operations that take too long, once per reason.
    pub(super) async fn tell_claims(&self, seen: &Seen) {
        for stuck in status::news(self.driver.status.as_ref(), seen) {
            let Some(claim) = &stuck.claim else { continue };
            let regarding = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                namespace: Some(claim.namespace.clone()),
                name: Some(claim.name.clone()),
                uid: Some(claim.uid.clone()),
                ..ObjectReference::default()
            };
            let note = format!(
                "{} of the volume takes too long: {}: {}",
                stuck.operation.as_str(),
                stuck.finding.reason,
                stuck.finding.hint
            );
            let notice = Notice::warning("VolumeStuck", "Diagnose", note);
            self.context.events.publish(&regarding, notice).await;
        }
    }
}

/// Adds what is known of driver and clouds.
fn complete(suspect: &mut Suspect, seen: &Seen) {
    let case = &mut suspect.case;
    case.has_controller = seen
        .controller
        .as_ref()
        .is_some_and(|controller| controller.available > 0);
    case.access = access(&seen.clouds);
    case.facts = seen.clouds.iter().map(|cloud| cloud.state.facts.clone()).collect();
    case.zone_map = seen.clouds.iter().flat_map(|cloud| cloud.zone_map.clone()).collect();
}

/// Whether the driver can work: while one cloud lets it in, that is not what stops it.
pub(crate) fn access(clouds: &[CloudView]) -> CloudAccess {
    let words = |cloud: &CloudView| {
        let refusal = cloud.refusal.as_ref().map(|refusal| refusal.message.clone());
        let trouble = cloud.state.troubles.first().map(|trouble| trouble.message.clone());
        refusal.or(trouble).unwrap_or_default()
    };
    let is_out = |cloud: &CloudView| cloud.is_backend_trouble() || !cloud.state.troubles.is_empty();
    match clouds.first() {
        Some(first) if clouds.iter().all(CloudView::is_locked_out) => CloudAccess::Refused(words(first)),
        Some(first) if clouds.iter().all(|cloud| is_out(cloud) || cloud.is_locked_out()) => {
            CloudAccess::Unreachable(words(first))
        }
        _ => CloudAccess::Open,
    }
}
