// SPDX-License-Identifier: Apache-2.0
//! May the driver be brought to this version now, and what has to wait until it may?

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::{RolloutState, Update, UpdatePolicy};
use semver::Version;
use serde_json::Value;

use crate::{
    cluster::{Key, Owner, VERSION_LABEL, kind},
    plan::{Action, Desired, Plan, differences},
};

/// Annotation on a workload that was made again while an update waits, and of which no earlier revision was left: the version that
/// it stands for. It counts as of that version, so that the update of the rest goes on to wait.
pub const STANDS_FOR: &str = "csi.openstack.org/stands-for-version";

/// Kinds that give pods their rights.
const RIGHTS: [&str; 5] = [
    "ServiceAccount",
    ROLE,
    CLUSTER_ROLE,
    kind::ROLE_BINDING,
    kind::CLUSTER_ROLE_BINDING,
];
const ROLE: &str = "Role";
const CLUSTER_ROLE: &str = "ClusterRole";

/// Why an update of the version waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// Nobody has approved it.
    Approval,
    /// It would lead back to an older version.
    Downgrade,
    /// It would skip a minor version.
    Skip,
}

impl Hold {
    /// As in the status.
    pub fn state(&self) -> RolloutState {
        match self {
            Self::Approval => RolloutState::WaitingForApproval,
            Self::Downgrade => RolloutState::DowngradeRefused,
            Self::Skip => RolloutState::SkipRefused,
        }
    }
}

/// Which versions the controller and the nodes were made for, and where they are to go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gate {
    /// The version of the controller's Deployment.
    pub controller: Option<String>,
    /// The version of the nodes' DaemonSet.
    pub node: Option<String>,
    /// The version of this operator.
    pub target: String,
    /// Why the way there is closed.
    pub hold: Option<Hold>,
}

impl Gate {
    /// Reads the versions of what exists and is the owner's.
    pub fn of(owner: &Owner, live: &BTreeMap<Key, Value>, target: &str) -> Self {
        let version = |kind: &str| {
            let is_meant = |(key, object): &(&Key, &Value)| key.kind == kind && owner.owns(object);
            let metadata = &live.iter().find(is_meant)?.1["metadata"];
            let stands_for = metadata["annotations"][STANDS_FOR].as_str();
            stands_for
                .or_else(|| metadata["labels"][VERSION_LABEL].as_str())
                .map(str::to_owned)
        };
        Self {
            controller: version(kind::DEPLOYMENT),
            node: version(kind::DAEMON_SET),
            target: target.to_owned(),
            hold: None,
        }
    }

    /// Whether an update of the version would begin: something is installed, and none of it has the target's version.
    pub fn is_start(&self) -> bool {
        let mut installed = self.controller.iter().chain(&self.node).peekable();
        installed.peek().is_some() && !installed.any(|version| is_same(version, &self.target))
    }

    /// The version that an update comes from, when there is one.
    pub fn from(&self) -> Option<&str> {
        let mut installed = self.node.iter().chain(&self.controller);
        installed
            .find(|version| !is_same(version, &self.target))
            .map(String::as_str)
    }
}

impl Gate {
    /// The version from which an update would skip a minor version, and the first version between.
    pub fn find_skip(&self) -> Option<(&str, String)> {
        let mut installed = self.node.iter().chain(&self.controller);
        installed.find_map(|version| Some((version.as_str(), skipped_version(version, &self.target)?)))
    }
}

/// The first version between two, without its patch. A release reads what the minor version before it wrote. The first release of a
/// major version follows each minor version of the one before it. Text that is not a version follows everything.
fn skipped_version(from: &str, to: &str) -> Option<String> {
    let (from, to) = (parse(from)?, parse(to)?);
    let next_minor = (from.major, from.minor.saturating_add(1));
    let next_major = (from.major.saturating_add(1), 0);
    let next = if to.major == from.major { next_minor } else { next_major };
    ((to.major, to.minor) > next).then(|| format!("{}.{}", next.0, next.1))
}

/// Decides whether an update may begin. One that has begun goes on: a driver of two versions is worse than either.
pub fn gate(mut gate: Gate, update: &Update) -> Gate {
    gate.hold = hold(&gate, update);
    gate
}

fn hold(gate: &Gate, update: &Update) -> Option<Hold> {
    if !gate.is_start() {
        return None;
    }
    let mut installed = gate.controller.iter().chain(&gate.node);
    if installed.any(|version| is_newer(version, &gate.target)) && !update.allow_downgrade {
        return Some(Hold::Downgrade);
    }
    if gate.find_skip().is_some() {
        return Some(Hold::Skip);
    }
    let approved = update.approved_version.as_deref();
    let is_approved = approved.is_some_and(|approved| is_same(approved, &gate.target));
    (update.policy == UpdatePolicy::Manual && !is_approved).then_some(Hold::Approval)
}

fn parse(version: &str) -> Option<Version> {
    Version::parse(version.strip_prefix('v').unwrap_or(version)).ok()
}

/// Whether two versions are the same release. What is no version is compared as text.
fn is_same(one: &str, other: &str) -> bool {
    match (parse(one), parse(other)) {
        (Some(one), Some(other)) => one.cmp_precedence(&other).is_eq(),
        _ => one == other,
    }
}

/// Whether the first is a later release. What is no version is not later than anything.
fn is_newer(one: &str, other: &str) -> bool {
    matches!((parse(one), parse(other)), (Some(one), Some(other)) if one.cmp_precedence(&other).is_gt())
}

/// Takes out of a plan what must wait; says whether anything was.
///
/// While an update is held, workloads that exist are restored to their content of that version where it is among `recorded`, and
/// otherwise stay as they are. All else is made and repaired, because pods of either version need it. While the controller is on its way to
/// another version the nodes keep theirs. In both cases pods of two versions or specs are there, and no right is taken from them.
pub fn withhold_updates(
    plan: &mut Plan,
    gate: &Gate,
    live: &BTreeMap<Key, Value>,
    recorded: &BTreeSet<Key>,
    is_controller_done: bool,
) -> bool {
    let before = plan.actions.len();
    let is_controller_due = plan.actions.iter().any(|action| action.key().kind == kind::DEPLOYMENT);
    // One that cannot be brought to the target now, such as for want of credentials, is due without a write.
    let is_left_behind = gate
        .controller
        .as_ref()
        .is_some_and(|version| !is_same(version, &gate.target));
    let is_on_its_way = is_controller_due || is_left_behind || !is_controller_done;
    if gate.hold.is_some() {
        plan.actions.retain(|action| match action {
            Action::Create(_) => true,
            Action::Update { desired, .. } | Action::Repair { desired, .. } => {
                !is_workload(&desired.key) || recorded.contains(&desired.key)
            }
            Action::Recreate { .. } | Action::Prune { .. } => false,
        });
    } else if is_on_its_way && gate.node.as_ref().is_some_and(|node| !is_same(node, &gate.target)) {
        plan.actions.retain(|action| {
            let key = action.key();
            key.kind != kind::DAEMON_SET || matches!(action, Action::Create(_)) || recorded.contains(key)
        });
    }
    if gate.hold.is_some() || is_on_its_way {
        keep_rights(plan, live);
    }
    plan.actions.len() < before
}

/// Whether an object makes pods.
pub fn is_workload(key: &Key) -> bool {
    [kind::DEPLOYMENT, kind::DAEMON_SET].contains(&key.kind)
}

/// Retains the rights of pods that may still lead: roles and bindings are only widened, and no object with rights is deleted.
fn keep_rights(plan: &mut Plan, live: &BTreeMap<Key, Value>) {
    plan.actions.retain_mut(|action| match action {
        Action::Prune { key, .. } => !RIGHTS.contains(&key.kind),
        Action::Update { desired, .. } | Action::Repair { desired, .. } if RIGHTS.contains(&desired.key.kind) => {
            let Some(there) = live.get(&desired.key) else {
                return true;
            };
            *desired = match desired.key.kind {
                ROLE | CLUSTER_ROLE => widened(desired, there, "rules", covers),
                kind::ROLE_BINDING | kind::CLUSTER_ROLE_BINDING => widened(desired, there, "subjects", is_subject),
                _ => return true,
            };
            !differences(&desired.object, there, 1).is_empty()
        }
        _ => true,
    });
}

/// Adds missing rules to a role, or missing subjects to a binding. Rules that cover the desired ones remain: the API server lets no client
/// write a right into a role that the client does not have itself.
fn widened(desired: &Desired, there: &Value, field: &str, covers: fn(&Value, &Value) -> bool) -> Desired {
    let entries = |object: &Value| object[field].as_array().cloned().unwrap_or_default();
    let mut all = entries(there);
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

/// Whether a rule gives all that another one gives.
fn covers(rule: &Value, other: &Value) -> bool {
    let words = |rule: &Value, field: &str| rule[field].as_array().cloned().unwrap_or_default();
    let has_all = |field: &str| {
        let known = words(rule, field);
        words(other, field).iter().all(|word| known.contains(word))
    };
    let names = words(rule, "resourceNames");
    // A list that is empty allows every name.
    let allows_names = names.is_empty() || (!words(other, "resourceNames").is_empty() && has_all("resourceNames"));
    allows_names
        && ["apiGroups", "resources", "nonResourceURLs", "verbs"]
            .into_iter()
            .all(has_all)
}

/// A workload that is missing while an update waits: as its newest revision was where one is left, else as this version makes it.
pub fn stand_in(desired: &Desired, gate: &Gate, template: Option<Value>) -> Desired {
    let Some(version) = gate.from() else {
        return desired.clone();
    };
    let mut object = desired.object.clone();
    if let Some(template) = template {
        object["spec"]["template"] = template;
        object["metadata"]["labels"][VERSION_LABEL] = Value::from(version);
    } else {
        object["metadata"]["annotations"][STANDS_FOR] = Value::from(version);
    }
    desired.with(object)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::manifests::Stage;

    fn mk_gate(controller: &str, node: &str, target: &str) -> Gate {
        let version = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Gate {
            controller: version(controller),
            node: version(node),
            target: target.to_owned(),
            hold: None,
        }
    }

    fn manual(approved: Option<&str>) -> Update {
        Update {
            policy: UpdatePolicy::Manual,
            approved_version: approved.map(str::to_owned),
            ..Update::default()
        }
    }

    #[rstest]
    #[case::nothing_is_installed(mk_gate("", "", "0.2.0"), manual(None), None)]
    #[case::automatic(mk_gate("0.1.0", "0.1.0", "0.2.0"), Update::default(), None)]
    #[case::the_same_version(mk_gate("0.2.0", "0.2.0", "0.2.0"), manual(None), None)]
    #[case::not_approved(mk_gate("0.1.0", "0.1.0", "0.2.0"), manual(None), Some(Hold::Approval))]
    #[case::another_one_approved(mk_gate("0.1.0", "0.1.0", "0.2.0"), manual(Some("0.3.0")), Some(Hold::Approval))]
    #[case::approved(mk_gate("0.1.0", "0.1.0", "0.2.0"), manual(Some("v0.2.0")), None)]
    #[case::approved_skip(mk_gate("0.1.0", "0.1.0", "0.3.0"), manual(Some("0.3.0")), Some(Hold::Skip))]
    #[case::begun(mk_gate("0.2.0", "0.1.0", "0.2.0"), manual(None), None)]
    #[case::a_later_one_while_one_is_under_way(mk_gate("0.2.1", "0.2.0", "0.3.0"), manual(None), Some(Hold::Approval))]
    #[case::back(mk_gate("0.10.0", "0.10.0", "0.9.0"), Update::default(), Some(Hold::Downgrade))]
    #[case::forth_though_the_text_sorts_before(mk_gate("0.9.0", "0.9.0", "0.10.0"), Update::default(), None)]
    #[case::from_a_candidate_to_the_release(mk_gate("0.2.0-rc.1", "0.2.0-rc.1", "0.2.0"), Update::default(), None)]
    #[case::from_the_release_to_a_candidate(
        mk_gate("0.2.0", "0.2.0", "0.2.0-rc.1"),
        Update::default(),
        Some(Hold::Downgrade)
    )]
    #[case::back_when_allowed_and_approved(
        mk_gate("0.2.0", "0.2.0", "0.1.0"), Update { allow_downgrade: true, ..manual(Some("0.1.0")) }, None)]
    #[case::back_when_allowed_and_not_approved(
        mk_gate("0.2.0", "0.2.0", "0.1.0"), Update { allow_downgrade: true, ..manual(None) }, Some(Hold::Approval))]
    fn an_update_begins_when_it_may(#[case] versions: Gate, #[case] update: Update, #[case] expected: Option<Hold>) {
        assert_eq!(gate(versions, &update).hold, expected);
    }

    #[rstest]
    #[case::patch("0.1.0", "0.1.9", None)]
    #[case::next("0.1.0", "0.2.3", None)]
    #[case::next_from_candidate("0.1.0-rc.1", "0.2.0", None)]
    #[case::one_between("0.1.4", "0.3.0", Some("0.2"))]
    #[case::many_between("1.2.0", "1.10.0", Some("1.3"))]
    #[case::candidate("0.1.0", "0.3.0-rc.1", Some("0.2"))]
    #[case::first_of_major("0.7.0", "1.0.2", None)]
    #[case::second_of_major("0.7.0", "1.1.0", Some("1.0"))]
    #[case::major_between("0.7.0", "2.0.0", Some("1.0"))]
    #[case::back("0.3.0", "0.1.0", None)]
    #[case::back_over_major("1.0.0", "0.1.0", None)]
    #[case::prefixed("v0.1.0", "0.3.0", Some("0.2"))]
    #[case::invalid("latest", "0.3.0", None)]
    fn update_skips_no_minor_version(#[case] from: &str, #[case] to: &str, #[case] expected: Option<&str>) {
        assert_eq!(skipped_version(from, to).as_deref(), expected);
        let gate = gate(mk_gate(from, from, to), &Update::default());
        assert_eq!(gate.hold == Some(Hold::Skip), expected.is_some(), "{gate:?}");
    }

    #[rstest]
    #[case::half_updated("0.2.0", "0.1.0", Some("0.1.0"))]
    #[case::begun("0.3.0", "0.1.0", None)]
    fn oldest_workload_decides_about_skip(
        #[case] controller: &str,
        #[case] node: &str,
        #[case] expected: Option<&str>,
    ) {
        let gate = gate(mk_gate(controller, node, "0.3.0"), &Update::default());
        let from = gate.hold.as_ref().and(gate.find_skip());
        assert_eq!(from.map(|(from, _)| from), expected);
    }

    fn mk_plan() -> Plan {
        let update = |kind| Action::Update {
            desired: Desired::new(Key::new(kind, None, "x"), Stage::Base, json!({"metadata": {}})),
            uid: "u".to_owned(),
        };
        Plan {
            actions: [kind::SECRET, "ClusterRole", kind::DEPLOYMENT, kind::DAEMON_SET]
                .map(update)
                .into(),
            ..Plan::default()
        }
    }

    fn kinds(plan: &Plan) -> Vec<&'static str> {
        plan.actions.iter().map(|action| action.key().kind).collect()
    }

    fn mk_held() -> Gate {
        Gate {
            hold: Some(Hold::Approval),
            ..mk_gate("0.1.0", "0.1.0", "0.2.0")
        }
    }

    #[test]
    fn while_an_update_is_held_what_has_no_pods_is_repaired_and_what_is_missing_is_made() {
        let mut plan = mk_plan();
        plan.actions
            .extend(plan.actions.clone().into_iter().map(|action| match action {
                Action::Update { desired, .. } => Action::Create(desired),
                other => other,
            }));
        plan.actions.push(Action::Prune {
            key: Key::new(kind::STORAGE_CLASS, None, "x"),
            uid: "u".to_owned(),
        });
        assert!(withhold_updates(
            &mut plan,
            &mk_held(),
            &BTreeMap::new(),
            &BTreeSet::new(),
            true
        ));
        let all = [kind::SECRET, CLUSTER_ROLE, kind::DEPLOYMENT, kind::DAEMON_SET];
        assert_eq!(kinds(&plan), [&all[..2], &all].concat());
    }

    fn mk_role(rules: &Value) -> Value {
        json!({"metadata": {"name": "x"}, "rules": rules})
    }

    fn mk_rule(verbs: &str) -> Value {
        let verbs: Vec<&str> = verbs.split(' ').collect();
        json!({"apiGroups": [""], "resources": ["nodes"], "verbs": verbs})
    }

    #[rstest]
    #[case::it_lacks_a_right(json!([mk_rule("get")]), json!([mk_rule("get list")]), json!([mk_rule("get"), mk_rule("get list")]))]
    #[case::it_is_missing_all(json!([]), json!([mk_rule("get")]), json!([mk_rule("get")]))]
    #[case::it_has_more(json!([mk_rule("get list")]), json!([mk_rule("get")]), json!([mk_rule("get list")]))]
    fn pods_of_two_versions_keep_the_rights_of_both(#[case] has: Value, #[case] needs: Value, #[case] becomes: Value) {
        let key = Key::new(CLUSTER_ROLE, None, "x");
        let desired = Desired::new(key.clone(), Stage::Base, mk_role(&needs));
        let mut there = desired.object.clone();
        there["rules"] = has;
        let live = BTreeMap::from([(key, there)]);
        let planned = Plan {
            actions: vec![Action::Repair {
                desired,
                uid: "u".to_owned(),
                fields: vec!["rules".to_owned()],
            }],
            ..Plan::default()
        };
        for (gate, is_done) in [(mk_held(), true), (mk_gate("0.2.0", "0.2.0", "0.2.0"), false)] {
            let mut plan = planned.clone();
            withhold_updates(&mut plan, &gate, &live, &BTreeSet::new(), is_done);
            let Some(Action::Repair { desired, .. }) = plan.actions.first() else {
                panic!("{plan:?}")
            };
            assert_eq!(desired.object["rules"], becomes);
        }
        let mut plan = planned.clone();
        withhold_updates(
            &mut plan,
            &mk_gate("0.2.0", "0.2.0", "0.2.0"),
            &live,
            &BTreeSet::new(),
            true,
        );
        assert_eq!(plan, planned, "where only one version is left it has its own rights");
    }

    #[test]
    fn rollout_only_adds_subjects_to_bindings() {
        let subject = |name: &str| json!({"kind": "ServiceAccount", "namespace": "cinder-csi", "name": name});
        let key = Key::new(kind::CLUSTER_ROLE_BINDING, None, "x");
        let binding = |subjects: Value| json!({"metadata": {"name": "x"}, "subjects": subjects});
        let desired = Desired::new(key.clone(), Stage::Base, binding(json!([subject("new")])));
        let mut there = desired.object.clone();
        there["subjects"] = json!([subject("old")]);
        let live = BTreeMap::from([(key, there)]);
        let subjects_after = |is_done: bool| {
            let mut plan = Plan {
                actions: vec![Action::Update {
                    desired: desired.clone(),
                    uid: "u".to_owned(),
                }],
                ..Plan::default()
            };
            withhold_updates(
                &mut plan,
                &mk_gate("0.2.0", "0.2.0", "0.2.0"),
                &live,
                &BTreeSet::new(),
                is_done,
            );
            let Some(Action::Update { desired, .. }) = plan.actions.pop() else {
                panic!("no update")
            };
            desired.object["subjects"].clone()
        };
        assert_eq!(subjects_after(false), json!([subject("old"), subject("new")]));
        assert_eq!(subjects_after(true), json!([subject("new")]));
    }

    #[rstest]
    #[case::a_rollout(false, 1)]
    #[case::none(true, 2)]
    fn rights_go_when_no_pod_leads_with_them(#[case] is_controller_done: bool, #[case] left: usize) {
        let prune = |kind| Action::Prune {
            key: Key::new(kind, None, "x"),
            uid: "u".to_owned(),
        };
        let mut plan = Plan {
            actions: vec![prune(CLUSTER_ROLE), prune(kind::STORAGE_CLASS)],
            ..Plan::default()
        };
        let gate = mk_gate("0.2.0", "0.2.0", "0.2.0");
        withhold_updates(&mut plan, &gate, &BTreeMap::new(), &BTreeSet::new(), is_controller_done);
        assert_eq!(plan.actions.len(), left);
    }

    #[test]
    fn what_stands_in_for_a_missing_workload_is_of_the_version_that_waits() {
        let key = Key::new(kind::DEPLOYMENT, None, "x");
        let made = json!({"metadata": {"labels": {(VERSION_LABEL): "0.2.0"}}, "spec": {"template": {"spec": "new"}}});
        let desired = Desired::new(key.clone(), Stage::Controller, made);
        let owner = Owner {
            name: "d".to_owned(),
            uid: "u".to_owned(),
        };
        let held = Gate {
            controller: None,
            ..mk_held()
        };
        for (template, image) in [(Some(json!({"spec": "old"})), "old"), (None, "new")] {
            let mut stand_in = stand_in(&desired, &held, template).object;
            assert_eq!(stand_in["spec"]["template"]["spec"], image);
            stand_in["metadata"]["ownerReferences"] = json!([{"uid": "u"}]);
            let live = BTreeMap::from([(key.clone(), stand_in)]);
            assert_eq!(Gate::of(&owner, &live, "0.2.0").controller.as_deref(), Some("0.1.0"));
        }
    }

    #[rstest]
    #[case::the_controller_is_due(mk_plan(), true, false)]
    #[case::the_controller_is_on_its_way(Plan { actions: mk_plan().actions.split_off(3), ..Plan::default() }, false, false)]
    #[case::the_controller_is_done(Plan { actions: mk_plan().actions.split_off(3), ..Plan::default() }, true, true)]
    fn the_nodes_follow_when_the_controller_is_done(#[case] mut plan: Plan, #[case] done: bool, #[case] follow: bool) {
        let mut of_old = plan.clone();
        withhold_updates(
            &mut of_old,
            &mk_gate("0.1.0", "0.1.0", "0.2.0"),
            &BTreeMap::new(),
            &BTreeSet::new(),
            done,
        );
        assert!(
            !kinds(&of_old).contains(&kind::DAEMON_SET),
            "the controller cannot be updated now"
        );
        withhold_updates(
            &mut plan,
            &mk_gate("0.2.0", "0.1.0", "0.2.0"),
            &BTreeMap::new(),
            &BTreeSet::new(),
            done,
        );
        assert_eq!(kinds(&plan).contains(&kind::DAEMON_SET), follow);
    }

    #[test]
    fn a_change_of_the_spec_within_a_version_waits_for_nothing() {
        let mut plan = mk_plan();
        assert!(!withhold_updates(
            &mut plan,
            &mk_gate("0.2.0", "0.2.0", "0.2.0"),
            &BTreeMap::new(),
            &BTreeSet::new(),
            false
        ));
        assert_eq!(kinds(&plan).len(), 4);
    }
}
