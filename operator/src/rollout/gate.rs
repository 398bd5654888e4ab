//! May the driver be brought to this version now, and what has to wait until it may?

use std::collections::BTreeMap;

use cinder_csi_crds::{RolloutState, Update, UpdatePolicy};
use jiff::Timestamp;
use semver::Version;
use serde_json::Value;

use super::window::Window;
use crate::{
    objects::{Key, Owner, is_snapshot_controller, kind},
    operands::VERSION_LABEL,
    plan::{Action, Plan},
};

/// Why an update of the version waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// Nobody has approved it.
    Approval,
    /// The window is closed until then; `None`: it never opens.
    Window(Option<Timestamp>),
    /// It would lead back to an older version.
    Downgrade,
}

impl Hold {
    /// As in the status.
    pub fn state(&self) -> RolloutState {
        match self {
            Self::Approval => RolloutState::WaitingForApproval,
            Self::Window(_) => RolloutState::WaitingForWindow,
            Self::Downgrade => RolloutState::DowngradeRefused,
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
            live.iter()
                .find(|(key, object)| key.kind == kind && owner.owns(object) && !is_snapshot_controller(object))
                .and_then(|(_, object)| object["metadata"]["labels"][VERSION_LABEL].as_str())
                .map(str::to_owned)
        };
        Self {
            controller: version(kind::DEPLOYMENT),
            node: version(kind::DAEMON_SET),
            target: target.to_owned(),
            hold: None,
        }
    }

    /// The version that an update comes from, when there is one.
    pub fn from(&self) -> Option<&str> {
        let mut installed = self.node.iter().chain(&self.controller);
        installed
            .find(|version| !is_same(version, &self.target))
            .map(String::as_str)
    }
}

/// Decides whether an update may begin. One that has begun goes on: a driver of two versions is worse than either.
pub fn gate(mut gate: Gate, update: &Update, window: Option<&Window>, now: Timestamp) -> Gate {
    gate.hold = hold(&gate, update, window, now);
    gate
}

fn hold(gate: &Gate, update: &Update, window: Option<&Window>, now: Timestamp) -> Option<Hold> {
    let mut installed = gate.controller.iter().chain(&gate.node).peekable();
    installed.peek()?;
    if installed.clone().any(|version| is_same(version, &gate.target)) {
        return None;
    }
    if installed.any(|version| is_newer(version, &gate.target)) && !update.allow_downgrade {
        return Some(Hold::Downgrade);
    }
    let approved = update.approved_version.as_deref();
    if update.policy == UpdatePolicy::Manual && !approved.is_some_and(|approved| is_same(approved, &gate.target)) {
        return Some(Hold::Approval);
    }
    match window?.is_open(now) {
        Ok(()) => None,
        Err(next) => Some(Hold::Window(next)),
    }
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
/// While an update is held everything stays as it is but the Secret: credentials must go on to be renewed, and what the
/// objects of another version should look like, this program cannot know. While the controller is on its way to another
/// version the nodes keep theirs.
pub fn hold_back(plan: &mut Plan, gate: &Gate, is_controller_done: bool) -> bool {
    let before = plan.actions.len();
    if gate.hold.is_some() {
        plan.actions.retain(|action| {
            let is_change = matches!(action, Action::Update { .. } | Action::Repair { .. });
            is_change && action.key().kind == kind::SECRET
        });
    } else if gate.node.as_ref().is_some_and(|node| !is_same(node, &gate.target)) {
        let is_controller_due = plan.actions.iter().any(|action| action.key().kind == kind::DEPLOYMENT);
        // One that cannot be brought to the target now, such as for want of credentials, is due without a write.
        let is_left_behind = gate
            .controller
            .as_ref()
            .is_some_and(|version| !is_same(version, &gate.target));
        if is_controller_due || is_left_behind || !is_controller_done {
            plan.actions
                .retain(|action| action.key().kind != kind::DAEMON_SET || matches!(action, Action::Create(_)));
        }
    }
    plan.actions.len() < before
}

#[cfg(test)]
mod tests {
    use cinder_csi_crds::UpdateWindow;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{operands::Stage, plan::Desired};

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

    fn mk_window(schedule: &str) -> Window {
        Window::new(&UpdateWindow {
            schedule: schedule.to_owned(),
            duration: "1h".to_owned(),
            time_zone: "UTC".to_owned(),
        })
        .expect("a window")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[rstest]
    #[case::nothing_is_installed(mk_gate("", "", "0.2.0"), manual(None), None)]
    #[case::automatic(mk_gate("0.1.0", "0.1.0", "0.2.0"), Update::default(), None)]
    #[case::the_same_version(mk_gate("0.2.0", "0.2.0", "0.2.0"), manual(None), None)]
    #[case::not_approved(mk_gate("0.1.0", "0.1.0", "0.2.0"), manual(None), Some(Hold::Approval))]
    #[case::another_one_approved(mk_gate("0.1.0", "0.1.0", "0.2.0"), manual(Some("0.3.0")), Some(Hold::Approval))]
    #[case::approved(mk_gate("0.1.0", "0.1.0", "0.2.0"), manual(Some("v0.2.0")), None)]
    #[case::begun(mk_gate("0.2.0", "0.1.0", "0.2.0"), manual(None), None)]
    #[case::a_later_one_while_one_is_under_way(mk_gate("0.2.0", "0.1.0", "0.3.0"), manual(None), Some(Hold::Approval))]
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
        let decided = gate(versions, &update, None, at("2026-01-01T00:00:00Z"));
        assert_eq!(decided.hold, expected);
    }

    #[test]
    fn an_update_waits_for_its_window_and_goes_on_after_it() {
        let window = mk_window("0 2 * * *");
        let decide = |versions, now| gate(versions, &Update::default(), Some(&window), at(now)).hold;
        let waits = Some(Hold::Window(Some(at("2026-01-01T02:00:00Z"))));
        assert_eq!(
            decide(mk_gate("0.1.0", "0.1.0", "0.2.0"), "2026-01-01T01:00:00Z"),
            waits
        );
        assert_eq!(decide(mk_gate("0.1.0", "0.1.0", "0.2.0"), "2026-01-01T02:30:00Z"), None);
        assert_eq!(decide(mk_gate("0.2.0", "0.1.0", "0.2.0"), "2026-01-01T04:00:00Z"), None);
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

    #[test]
    fn while_an_update_is_held_only_credentials_are_renewed() {
        let mut plan = mk_plan();
        let held = Gate {
            hold: Some(Hold::Approval),
            ..mk_gate("0.1.0", "0.1.0", "0.2.0")
        };
        assert!(hold_back(&mut plan, &held, true));
        assert_eq!(kinds(&plan), [kind::SECRET]);
    }

    #[rstest]
    #[case::the_controller_is_due(mk_plan(), true, false)]
    #[case::the_controller_is_on_its_way(Plan { actions: mk_plan().actions.split_off(3), ..Plan::default() }, false, false)]
    #[case::the_controller_is_done(Plan { actions: mk_plan().actions.split_off(3), ..Plan::default() }, true, true)]
    fn the_nodes_follow_when_the_controller_is_done(#[case] mut plan: Plan, #[case] done: bool, #[case] follow: bool) {
        let mut of_old = plan.clone();
        hold_back(&mut of_old, &mk_gate("0.1.0", "0.1.0", "0.2.0"), done);
        assert!(
            !kinds(&of_old).contains(&kind::DAEMON_SET),
            "the controller cannot be updated now"
        );
        hold_back(&mut plan, &mk_gate("0.2.0", "0.1.0", "0.2.0"), done);
        assert_eq!(kinds(&plan).contains(&kind::DAEMON_SET), follow);
    }

    #[test]
    fn a_change_of_the_spec_within_a_version_waits_for_nothing() {
        let mut plan = mk_plan();
        assert!(!hold_back(&mut plan, &mk_gate("0.2.0", "0.2.0", "0.2.0"), false));
        assert_eq!(kinds(&plan).len(), 4);
    }
}
