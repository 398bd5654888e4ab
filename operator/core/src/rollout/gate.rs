// SPDX-License-Identifier: Apache-2.0
//! Decides whether the pod templates may change now, and which writes wait for that.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::{RolloutState, Update, UpdatePolicy};
use semver::Version;
use serde_json::Value;

use crate::{
    cluster::{Key, Owner, VERSION_LABEL, kind},
    plan::{Action, Desired, LastApplied, Plan, differences},
    releases::{TEMPLATE_INPUTS, TemplateInputs},
};

/// Annotation on a workload that was recreated without a known revision while an update waits. Its value is the
/// version that the workload represents. The workload counts as of that version, so the update of the others
/// continues to wait.
pub const STANDS_FOR: &str = "csi.openstack.org/stands-for-version";

/// Kinds with pods, in the order of an update.
pub const WORKLOADS: [&str; 2] = [kind::DEPLOYMENT, kind::DAEMON_SET];

/// Kinds that grant rights to pods.
const RIGHTS: [&str; 5] = [
    "ServiceAccount",
    ROLE,
    CLUSTER_ROLE,
    kind::ROLE_BINDING,
    kind::CLUSTER_ROLE_BINDING,
];
const ROLE: &str = "Role";
const CLUSTER_ROLE: &str = "ClusterRole";

/// Why an update waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// No administrator has approved it.
    Approval,
    /// It would be a downgrade.
    Downgrade,
    /// It would skip a minor version.
    Skip,
}

impl Hold {
    /// The state in the status.
    pub fn state(&self) -> RolloutState {
        match self {
            Self::Approval => RolloutState::WaitingForApproval,
            Self::Downgrade => RolloutState::DowngradeRefused,
            Self::Skip => RolloutState::SkipRefused,
        }
    }
}

/// The causes of a pod template, in addition to the spec and the credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Release {
    /// Version of the operator.
    pub version: String,
    /// The other inputs. `None` if their record is lost.
    pub inputs: Option<TemplateInputs>,
}

impl Release {
    /// Reads the release of a workload.
    fn read(workload: &Value) -> Option<Self> {
        let metadata = &workload["metadata"];
        let stands_for = metadata["annotations"][STANDS_FOR].as_str();
        let version = stands_for.or_else(|| metadata["labels"][VERSION_LABEL].as_str())?;
        Some(Self {
            version: version.to_owned(),
            inputs: TemplateInputs::read(workload),
        })
    }

    /// Whether both have the same version.
    pub fn is_same_version(&self, other: &Self) -> bool {
        is_same(&self.version, &other.version)
    }

    /// Whether both are known to be equal.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is_same_version(other) && self.inputs.is_some() && self.inputs == other.inputs
    }
}

/// The releases of the controller and the nodes, and the target release.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gate {
    /// Release of the controller's Deployment.
    pub controller: Option<Release>,
    /// Release of the nodes' DaemonSet.
    pub node: Option<Release>,
    /// Release of this operator in this cluster.
    pub target: Release,
    /// Workloads whose pod template differs from that of the target for another reason than the spec.
    pub due: BTreeSet<&'static str>,
    /// Workloads that retain their last applied content.
    pub pinned: BTreeSet<&'static str>,
    /// Whether the nodes wait for the controller.
    pub is_node_waiting: bool,
    /// Why the update waits.
    pub hold: Option<Hold>,
}

impl Gate {
    /// Reads the releases of the owner's workloads. If an annotation or all workloads are missing, the record of the
    /// last applied content provides them.
    pub fn of(owner: &Owner, live: &BTreeMap<Key, Value>, last_applied: &LastApplied, target: Release) -> Self {
        let existing = |kind: &str| {
            let is_meant = |(key, object): &(&Key, &Value)| key.kind == kind && owner.owns(object);
            let (key, object) = live.iter().find(is_meant)?;
            let recorded = || TemplateInputs::read(&last_applied.content_for(key, Some(object))?.object);
            let mut release = Release::read(object)?;
            release.inputs = release.inputs.or_else(recorded);
            Some(release)
        };
        let recorded = |kind: &str| {
            let (_, recorded) = last_applied.iter().find(|(key, _)| key.kind == kind)?;
            Release::read(&recorded.desired.object)
        };
        let mut releases = WORKLOADS.map(existing);
        if releases.iter().all(Option::is_none) {
            releases = WORKLOADS.map(recorded);
        }
        let [controller, node] = releases;
        Self {
            controller,
            node,
            target,
            ..Self::default()
        }
    }

    /// Returns the release of a workload.
    pub fn release(&self, kind: &str) -> Option<&Release> {
        match kind {
            kind::DEPLOYMENT => self.controller.as_ref(),
            kind::DAEMON_SET => self.node.as_ref(),
            _ => None,
        }
    }

    fn installed(&self) -> impl Iterator<Item = &Release> {
        self.controller.iter().chain(&self.node)
    }

    /// Whether an update would begin: a pod template would change, and none has the target release.
    fn is_start(&self) -> bool {
        !self.due.is_empty() && !self.installed().any(|release| release.is_same(&self.target))
    }

    /// Returns the different version that an update starts from.
    pub fn from(&self) -> Option<&str> {
        let mut installed = self.node.iter().chain(&self.controller);
        installed
            .find(|release| !is_same(&release.version, &self.target.version))
            .map(|release| release.version.as_str())
    }

    /// Returns the name of the target, which approves the update: the version, with a token if the update does not
    /// change the version.
    pub fn target_name(&self) -> String {
        let version = &self.target.version;
        match &self.target.inputs {
            Some(inputs) if !self.due.is_empty() && self.from().is_none() => format!("{version}+{}", inputs.token()),
            _ => version.clone(),
        }
    }

    /// Describes the causes of an update that does not change the version.
    pub fn changed_inputs(&self) -> Vec<String> {
        let mut due = self.due.iter().filter_map(|kind| self.release(kind)?.inputs.as_ref());
        let before = due.next();
        let changes = self.target.inputs.as_ref().zip(before);
        changes
            .map(|(target, before)| target.changes_since(before))
            .unwrap_or_default()
    }

    /// Returns the inputs of a release, if this operator can render it again.
    fn inputs_of<'a>(&self, release: Option<&'a Release>) -> Option<&'a TemplateInputs> {
        let release = release.filter(|release| is_same(&release.version, &self.target.version));
        release.and_then(|release| release.inputs.as_ref())
    }

    /// Returns the inputs of a workload that remains at its release. `None` if this operator cannot render it again.
    pub fn own_inputs(&self, kind: &str) -> Option<&TemplateInputs> {
        self.inputs_of(self.release(kind))
    }

    /// Whether the DaemonSet has a template of the operator's version, and does not wait for the controller.
    pub fn has_current_nodes(&self, owner: &Owner, live: &BTreeMap<Key, Value>) -> bool {
        let nodes = Self::of(owner, live, &LastApplied::default(), Release::default()).node;
        !self.is_node_waiting && nodes.is_some_and(|nodes| nodes.is_same_version(&self.target))
    }

    /// Returns the inputs that a workload receives when its update begins. While an update waits, the nodes follow
    /// the controller. `None` if this operator cannot render such a template.
    pub fn goal(&self, kind: &str) -> Option<&TemplateInputs> {
        if self.hold.is_none() {
            return self.target.inputs.as_ref();
        }
        let (controller, node) = (self.own_inputs(kind::DEPLOYMENT), self.own_inputs(kind::DAEMON_SET));
        match kind {
            kind::DEPLOYMENT if self.controller.is_some() => controller,
            _ => controller.or(node),
        }
    }
}

impl Gate {
    /// Returns the version from which an update would skip a minor version, and the first version between.
    pub fn find_skip(&self) -> Option<(&str, String)> {
        let mut installed = self
            .node
            .iter()
            .chain(&self.controller)
            .map(|release| release.version.as_str());
        installed.find_map(|version| Some((version, skipped_version(version, &self.target.version)?)))
    }
}

/// Returns the first version between two, without its patch. A release can read the records of the previous minor
/// version. The first release of a major version follows each minor version of the previous one. Text that is not a
/// version follows everything.
fn skipped_version(from: &str, to: &str) -> Option<String> {
    let (from, to) = (parse(from)?, parse(to)?);
    let next_minor = (from.major, from.minor.saturating_add(1));
    let next_major = (from.major.saturating_add(1), 0);
    let next = if to.major == from.major { next_minor } else { next_major };
    ((to.major, to.minor) > next).then(|| format!("{}.{}", next.0, next.1))
}

/// Decides whether an update may begin. An update that has begun continues, because a mix of two releases is worse
/// than either.
pub fn gate(mut gate: Gate, update: &Update) -> Gate {
    gate.hold = hold(&gate, update);
    gate
}

fn hold(gate: &Gate, update: &Update) -> Option<Hold> {
    if !gate.is_start() {
        return None;
    }
    let is_newer = |release: &Release| is_newer(&release.version, &gate.target.version);
    if gate.installed().any(is_newer) && !update.allow_downgrade {
        return Some(Hold::Downgrade);
    }
    if gate.find_skip().is_some() {
        return Some(Hold::Skip);
    }
    let approved = update.approved_version.as_deref();
    let is_approved = approved.is_some_and(|approved| approves(approved, gate));
    (update.policy == UpdatePolicy::Manual && !is_approved).then_some(Hold::Approval)
}

/// Whether an approval is for the target. A version without a token approves only an update from other versions.
fn approves(approved: &str, gate: &Gate) -> bool {
    let token = approved.split_once('+').map(|(_, token)| token);
    let target = &gate.target;
    let is_approved = match (token, &target.inputs) {
        (Some(token), Some(inputs)) => token == inputs.token(),
        (Some(_), None) => false,
        (None, _) => !gate
            .installed()
            .any(|release| is_same(&release.version, &target.version)),
    };
    is_approved && is_same(approved, &target.version)
}

fn parse(version: &str) -> Option<Version> {
    Version::parse(version.strip_prefix('v').unwrap_or(version)).ok()
}

/// Whether two versions are the same release. Invalid versions are compared as text.
fn is_same(one: &str, other: &str) -> bool {
    match (parse(one), parse(other)) {
        (Some(one), Some(other)) => one.cmp_precedence(&other).is_eq(),
        _ => one == other,
    }
}

/// Whether the first is a later release. An invalid version is not later than any other.
fn is_newer(one: &str, other: &str) -> bool {
    matches!((parse(one), parse(other)), (Some(one), Some(other)) if one.cmp_precedence(&other).is_gt())
}

/// Removes from a plan the writes that wait for the workloads. Workloads already have their content from
/// [`Gate::goal`].
///
/// While an update to another version is held, nothing is deleted or recreated. Until the controller is updated,
/// classes with parameters for it are not recreated. In both cases pods of two releases exist, and their rights
/// remain.
pub fn withhold_updates(plan: &mut Plan, gate: &Gate, live: &BTreeMap<Key, Value>, is_controller_done: bool) {
    let is_controller_planned = plan.actions.iter().any(|action| action.key().kind == kind::DEPLOYMENT);
    // A controller without credentials is due without a write.
    let is_controller_due = gate.due.contains(kind::DEPLOYMENT);
    let is_on_its_way = is_controller_planned || is_controller_due || !is_controller_done;
    let is_version_held = gate.hold.is_some() && gate.from().is_some();
    let is_behind = gate.hold.is_none() && !gate.due.is_empty() && is_on_its_way;
    plan.actions.retain(|action| match action {
        Action::Recreate { desired, .. } => !(is_version_held || is_behind && is_class(desired.key.kind)),
        Action::Prune { .. } => !is_version_held,
        Action::Create(_) | Action::Update { .. } | Action::Repair { .. } => true,
    });
    if gate.hold.is_some() || is_on_its_way {
        retain_rights(plan, live);
    }
}

/// Whether volumes or snapshots are created with the parameters of a kind.
fn is_class(kind: &str) -> bool {
    [kind::STORAGE_CLASS, kind::ATTRIBUTES_CLASS, kind::GROUP_SNAPSHOT_CLASS].contains(&kind)
}

/// Whether an object creates pods.
pub fn is_workload(key: &Key) -> bool {
    WORKLOADS.contains(&key.kind)
}

/// Retains the rights of pods that may still lead. Roles and bindings are only extended, and no object with rights is
/// deleted.
fn retain_rights(plan: &mut Plan, live: &BTreeMap<Key, Value>) {
    plan.actions.retain_mut(|action| match action {
        Action::Prune { key, .. } => !RIGHTS.contains(&key.kind),
        Action::Update { desired, .. } | Action::Repair { desired, .. } if RIGHTS.contains(&desired.key.kind) => {
            let Some(live_object) = live.get(&desired.key) else {
                return true;
            };
            *desired = match desired.key.kind {
                ROLE | CLUSTER_ROLE => extend_rights(desired, live_object, "rules", covers),
                kind::ROLE_BINDING | kind::CLUSTER_ROLE_BINDING => {
                    extend_rights(desired, live_object, "subjects", is_subject)
                }
                _ => return true,
            };
            !differences(&desired.object, live_object, 1).is_empty()
        }
        _ => true,
    });
}

/// Adds missing rules to a role, or missing subjects to a binding. Rules that cover the desired ones remain. The API
/// server does not let a client add a right to a role that the client does not have.
fn extend_rights(desired: &Desired, live_object: &Value, field: &str, covers: fn(&Value, &Value) -> bool) -> Desired {
    let entries = |object: &Value| object[field].as_array().cloned().unwrap_or_default();
    let mut all = entries(live_object);
    let lacking: Vec<Value> = entries(&desired.object)
        .into_iter()
        .filter(|entry| !all.iter().any(|known| covers(known, entry)))
        .collect();
    all.extend(lacking);
    let mut object = desired.object.clone();
    object[field] = Value::from(all);
    desired.with(object)
}

/// Whether two subjects are the same account.
fn is_subject(known: &Value, other: &Value) -> bool {
    ["kind", "namespace", "name"]
        .into_iter()
        .all(|field| known[field] == other[field])
}

/// Whether a rule grants all rights of another rule.
fn covers(rule: &Value, other: &Value) -> bool {
    let words = |rule: &Value, field: &str| rule[field].as_array().cloned().unwrap_or_default();
    let has_all = |field: &str| {
        let known = words(rule, field);
        words(other, field).iter().all(|word| known.contains(word))
    };
    let names = words(rule, "resourceNames");
    // An empty list allows every name.
    let allows_names = names.is_empty() || (!words(other, "resourceNames").is_empty() && has_all("resourceNames"));
    allows_names
        && ["apiGroups", "resources", "nonResourceURLs", "verbs"]
            .into_iter()
            .all(has_all)
}

/// Returns a replacement for a workload that is missing while an update waits. It has the template of the newest
/// revision, or the current one if no revision is known. Its inputs are unknown.
pub fn stand_in(desired: &Desired, gate: &Gate, template: Option<Value>) -> Desired {
    let mut object = desired.object.clone();
    let metadata = &mut object["metadata"];
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.remove(TEMPLATE_INPUTS);
    }
    match (gate.from(), &template) {
        (Some(version), Some(_)) => metadata["labels"][VERSION_LABEL] = Value::from(version),
        (Some(version), None) => metadata["annotations"][STANDS_FOR] = Value::from(version),
        (None, _) => {}
    }
    if let Some(template) = template {
        object["spec"]["template"] = template;
    }
    desired.with(object)
}

#[cfg(test)]
mod tests;
