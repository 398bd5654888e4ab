// SPDX-License-Identifier: Apache-2.0

use std::{cell::RefCell, time::Instant};

use cinder_csi_crds::{
    AdoptionMode, AdoptionStatus, AdoptionStep, CinderCSIDriverStatus, INSTANCE_LABEL, UpdatePolicy,
};
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    cluster::{AttachedNodes, Installation, Owner, VERSION_LABEL},
    manifests::DriverCredentials,
    plan::{Desired, LastApplied, Unapplied},
    problem::Problem,
    reasons::Degraded,
    resolve::tests::{mk_driver, mk_environment},
    rollout::{Hold, is_workload},
};

const NAME: &str = "cinder.csi.openstack.org";

fn mk_owner() -> Owner {
    Owner {
        name: NAME.to_owned(),
        uid: "owner-uid".to_owned(),
    }
}

fn intent_of(driver: &CinderCSIDriver) -> Intent {
    let existing = Existing {
        owner: &mk_owner(),
        live: &BTreeMap::new(),
        last_applied: &LastApplied::default(),
    };
    resolve_intent(driver, &mk_environment(), Some(&mk_credentials()), existing).expect("manifests")
}

fn mk_credentials() -> DriverCredentials {
    DriverCredentials::new("[Global]\n".to_owned().into(), None)
}

/// The facts about a driver with these objects, and answers to no query.
#[expect(clippy::disallowed_methods, reason = "the clock is not read again")]
fn mk_facts(live: &BTreeMap<Key, Value>) -> DriverFacts {
    DriverFacts {
        live: live.clone(),
        last_applied: LastApplied::default(),
        unlisted: BTreeMap::new(),
        served: mk_environment().apis,
        environment: mk_environment(),
        credentials: CredentialFacts {
            desired: Some(mk_credentials()),
            ..CredentialFacts::default()
        },
        blockers: None,
        has_lease: true,
        unapplied: Unapplied::new(),
        known_objects: Some(BTreeSet::new()),
        is_migration_settled: false,
        instant: Instant::now(),
        answers: QueryAnswers::default(),
    }
}

/// Decides with these facts. Objects that are not among them do not exist.
fn decide_with(
    driver: &CinderCSIDriver,
    mut facts: DriverFacts,
    answer: impl Fn(&Queries, &mut QueryAnswers),
) -> Decision {
    for _ in 0..5 {
        let all = Facts {
            driver: Some(Box::new(facts.clone())),
            ..Facts::default()
        };
        match decide(driver, &all).expect("manifests") {
            DecisionStep::Decided(decision) => return *decision,
            DecisionStep::Need(queries) => {
                facts.answers.objects.extend(queries.objects.iter().cloned());
                if queries.attached_nodes.is_some() {
                    facts.answers.attached_nodes = Some(AttachedNodes::Known(Vec::new()));
                }
                answer(&queries, &mut facts.answers);
            }
        }
    }
    panic!("not decided");
}

fn answer_unused(queries: &Queries, answers: &mut QueryAnswers) {
    answers.uses.extend(queries.uses.iter().map(|key| (key.clone(), None)));
}

/// The objects in the API server after all desired objects were applied.
fn mk_live(intent: &Intent) -> BTreeMap<Key, Value> {
    let object = |desired: &Desired| {
        let mut object = desired.object.clone();
        object["metadata"]["labels"][INSTANCE_LABEL] = json!(NAME);
        object["metadata"]["uid"] = json!("live-uid");
        object["metadata"]["resourceVersion"] = json!("7");
        object["metadata"]["managedFields"] = json!([{"manager": "cinder-csi-operator", "operation": "Apply"}]);
        (desired.key.clone(), object)
    };
    intent.desired.iter().map(object).collect()
}

fn key_of(intent: &Intent, kind: &str) -> Key {
    let desired = intent.desired.iter().find(|desired| desired.key.kind == kind);
    desired.expect("an object of the kind").key.clone()
}

#[test]
fn rest_writes_and_reports_nothing() {
    let driver = mk_driver(NAME);
    let decision = decide_with(&driver, mk_facts(&mk_live(&intent_of(&driver))), answer_unused);
    assert_eq!(decision.plan, Plan::default());
    assert!(decision.drift.is_empty() && decision.notices.is_empty() && decision.pending.is_none());
}

#[rstest]
#[case::managed(ManagementState::Managed, true, false)]
#[case::paused(ManagementState::Paused, false, false)]
#[case::dry_run(ManagementState::DryRun, false, true)]
fn read_only_decision_reports_drift_without_repair(
    #[case] state: ManagementState,
    #[case] is_written: bool,
    #[case] is_pending: bool,
) {
    let mut driver = mk_driver(NAME);
    driver.spec.management_state = state;
    let mut live = mk_live(&intent_of(&driver));
    let key = key_of(&intent_of(&driver), kind::CSI_DRIVER);
    live.get_mut(&key).expect("it")["spec"]["storageCapacity"] = json!("changed");

    let decision = decide_with(&driver, mk_facts(&live), answer_unused);

    assert_eq!(decision.read_only(), !is_written);

    assert_eq!(!decision.plan.actions.is_empty(), is_written);
    assert_eq!(decision.drift.changed.len(), 1, "{:?}", decision.drift);
    assert_eq!(decision.pending.is_some(), is_pending);
}

#[rstest]
#[case::known(true)]
#[case::unknown(false)]
fn missing_object_counts_as_deleted_if_known(#[case] is_known: bool) {
    let driver = mk_driver(NAME);
    let mut live = mk_live(&intent_of(&driver));
    let key = key_of(&intent_of(&driver), kind::SECRET);
    live.remove(&key);

    let facts = DriverFacts {
        known_objects: Some(is_known.then(|| key.clone()).into_iter().collect()),
        ..mk_facts(&live)
    };
    let decision = decide_with(&driver, facts, answer_unused);

    assert_eq!(decision.drift.deleted.len(), usize::from(is_known));
    assert!(matches!(&decision.plan.actions[..], [Action::Create(desired)] if desired.key == key));
}

#[test]
fn object_in_use_is_not_recreated() {
    let driver = mk_driver(NAME);
    let mut live = mk_live(&intent_of(&driver));
    let key = key_of(&intent_of(&driver), kind::CSI_DRIVER);
    live.get_mut(&key).expect("it")["spec"]["volumeLifecycleModes"] = json!(["Ephemeral"]);

    let free = decide_with(&driver, mk_facts(&live), answer_unused);
    assert!(
        matches!(&free.plan.actions[..], [Action::Recreate { .. }]),
        "{:?}",
        free.plan.actions
    );
    let in_use = decide_with(&driver, mk_facts(&live), |queries, answers| {
        assert_eq!(queries.uses.iter().filter(|used| **used != key).count(), 0);
        let users = "VolumeAttachments are under way: a".to_owned();
        answers.uses = [(key.clone(), Some(users))].into();
    });

    assert_eq!(in_use.plan.actions, []);
    assert!(
        matches!(&in_use.plan.obstacles[..], [Obstacle::Waiting { what, .. }] if what.ends_with(": a")),
        "{:?}",
        in_use.plan.obstacles
    );
}

#[test]
fn unread_object_is_not_recreated() {
    let driver = mk_driver(NAME);
    let mut live = mk_live(&intent_of(&driver));
    let key = key_of(&intent_of(&driver), kind::CSI_DRIVER);
    live.get_mut(&key).expect("it")["spec"]["volumeLifecycleModes"] = json!(["Ephemeral"]);
    let mut plan = decide_with(&driver, mk_facts(&live), answer_unused).plan;

    defer_recreations(&mut plan, &BTreeMap::new());

    assert_eq!(plan.actions, []);
    assert!(
        matches!(&plan.obstacles[..], [Obstacle::Waiting { what, .. }] if what == NOT_READ),
        "{:?}",
        plan.obstacles
    );
}

#[test]
fn missing_recorded_object_is_read_once() {
    let (driver, mut live, last_applied) = mk_waiting();
    let key = key_of(&intent_of(&driver), kind::CSI_DRIVER);
    live.remove(&key);
    let facts = DriverFacts {
        last_applied,
        ..mk_facts(&live)
    };
    let reads = RefCell::new(Vec::new());

    decide_with(&driver, facts, |queries, answers| {
        reads.borrow_mut().extend(queries.objects.iter().cloned());
        answer_unused(queries, answers);
    });

    assert_eq!(reads.into_inner().iter().filter(|read| **read == key).count(), 1);
}

#[rstest]
#[case::as_it_was(Some(json!({"metadata": {"labels": {"of": "old"}}})), 0)]
#[case::as_this_version_has_it(None, 1)]
fn missing_workload_returns_while_update_waits(#[case] template: Option<Value>, #[case] notices: usize) {
    let mut driver = mk_driver(NAME);
    driver.spec.update.policy = UpdatePolicy::Manual;
    let mut live = mk_live(&intent_of(&driver));
    for (_, object) in live.iter_mut().filter(|(key, _)| is_workload(key)) {
        object["metadata"]["labels"][VERSION_LABEL] = json!("0.0.9");
    }
    let key = key_of(&intent_of(&driver), kind::DAEMON_SET);
    live.remove(&key);

    let decision = decide_with(&driver, mk_facts(&live), |queries, answers| {
        if !queries.templates.is_empty() {
            assert_eq!(queries.templates, std::slice::from_ref(&key));
            answers.templates = [(key.clone(), template.clone())].into();
        }
    });

    assert_eq!(decision.gate.hold, Some(Hold::Approval));
    assert_eq!(decision.notices.len(), notices);
    let [Action::Create(desired)] = &decision.plan.actions[..] else {
        panic!("{:?}", decision.plan.actions);
    };
    assert_eq!(
        template.is_some_and(|old| desired.object["spec"]["template"] == old),
        notices == 0
    );
}

#[test]
fn controller_waits_for_credentials() {
    let existing = Existing {
        owner: &mk_owner(),
        live: &BTreeMap::new(),
        last_applied: &LastApplied::default(),
    };
    let intent = resolve_intent(&mk_driver(NAME), &mk_environment(), None, existing).expect("manifests");
    assert!(!intent.is_complete && !intent.has_credentials);
    assert!(intent.keys().iter().all(|key| key.kind != kind::DEPLOYMENT));
    assert!(intent.keys().iter().any(|key| key.kind == kind::DAEMON_SET));
}

/// A driver of version 0.0.9 with its record, and an operator of a later version that waits for approval.
fn mk_waiting() -> (CinderCSIDriver, BTreeMap<Key, Value>, LastApplied) {
    let mut driver = mk_driver(NAME);
    driver.spec.update.policy = UpdatePolicy::Manual;
    let mut intent = intent_of(&driver);
    for desired in &mut intent.desired {
        let mut object = desired.object.clone();
        object["metadata"]["labels"][VERSION_LABEL] = json!("0.0.9");
        *desired = desired.with(object);
    }
    let live = mk_live(&intent);
    let applied = intent.desired.iter().map(|desired| (desired, false));
    let last_applied = LastApplied::default().updated(&mk_owner(), applied, |_| true, &live);
    (driver, live, last_applied)
}

#[rstest]
#[case::controller(kind::DEPLOYMENT)]
#[case::nodes(kind::DAEMON_SET)]
fn waiting_workload_returns_as_recorded(#[case] kind: &str) {
    let (driver, mut live, last_applied) = mk_waiting();
    let key = key_of(&intent_of(&driver), kind);
    let before = live.remove(&key).expect("the workload");
    let facts = DriverFacts {
        last_applied,
        ..mk_facts(&live)
    };
    let decision = decide_with(&driver, facts, |queries, _| {
        assert!(queries.templates.is_empty(), "no revision is needed");
    });
    let created = decision.plan.actions.iter().find(|action| *action.key() == key);
    let Some(Action::Create(desired)) = created else {
        panic!("{:?}", decision.plan.actions)
    };
    assert_eq!(desired.object["spec"], before["spec"]);
    assert_eq!(desired.object["metadata"]["labels"][VERSION_LABEL], "0.0.9");
    assert!(decision.notices.is_empty(), "{:?}", decision.notices);
}

#[test]
fn waiting_workload_is_repaired_to_its_record() {
    let (driver, mut live, last_applied) = mk_waiting();
    let key = key_of(&intent_of(&driver), kind::DAEMON_SET);
    live.get_mut(&key).expect("the DaemonSet")["spec"]["template"]["spec"]["hostNetwork"] = json!(false);
    let facts = DriverFacts {
        last_applied,
        ..mk_facts(&live)
    };
    let decision = decide_with(&driver, facts, answer_unused);
    let repaired = decision.plan.actions.iter().find(|action| *action.key() == key);
    let Some(Action::Repair { desired, fields, .. }) = repaired else {
        panic!("{:?}", decision.plan.actions)
    };
    assert_eq!(fields[..], ["spec.template.spec.hostNetwork"]);
    assert_eq!(desired.object["metadata"]["labels"][VERSION_LABEL], "0.0.9");
}

#[test]
fn migration_requires_other_installation() {
    let mut driver = mk_driver(NAME);
    driver.spec.adoption.mode = AdoptionMode::Migrate;
    let mut facts = Facts {
        driver: Some(Box::new(mk_facts(&mk_live(&intent_of(&driver))))),
        ..Facts::default()
    };
    let step = decide(&driver, &facts).expect("manifests");
    assert!(
        matches!(&step, DecisionStep::Need(queries) if queries.installation && queries.objects.is_empty()),
        "{step:?}"
    );
    let observed = facts.driver.as_mut().expect("the driver");
    observed.answers.installation = Some(Ok(Installation::default()));
    let step = decide(&driver, &facts).expect("manifests");
    assert!(
        matches!(&step, DecisionStep::Decided(decision) if decision.is_migration_settled),
        "{step:?}"
    );
}

/// The controller of an installation that cannot be read may run.
#[rstest]
#[case::before_the_first_step(None, false, false)]
#[case::before_any_change(Some(AdoptionStep::Preparing), false, false)]
#[case::after_the_other_is_stopped(Some(AdoptionStep::StoppingController), false, false)]
#[case::while_ours_starts(Some(AdoptionStep::StartingController), true, false)]
#[case::while_nodes_are_replaced(Some(AdoptionStep::ReplacingNodes), true, false)]
#[case::after_the_migration(Some(AdoptionStep::Done), false, true)]
#[case::without_migration(None, true, true)]
fn nothing_starts_next_to_unknown_installation(
    #[case] step: Option<AdoptionStep>,
    #[case] has_controller: bool,
    #[case] expected: bool,
) {
    let mut driver = mk_driver(NAME);
    driver.spec.adoption.mode = AdoptionMode::Migrate;
    driver.status = Some(CinderCSIDriverStatus {
        adoption: Some(AdoptionStatus {
            step,
            leftovers: Vec::new(),
        }),
        ..CinderCSIDriverStatus::default()
    });
    let mut live = mk_live(&intent_of(&driver));
    live.retain(|key, _| match key.kind {
        kind::DEPLOYMENT => has_controller,
        kind::CSI_DRIVER => true,
        kind => kind != kind::DAEMON_SET,
    });
    let mut facts = mk_facts(&live);
    let problem = Problem {
        reason: Degraded::AdoptionForbidden,
        message: "Forbidden: pods".to_owned(),
    };
    facts.answers.installation = Some(Err(problem.clone()));
    let decision = decide_with(&driver, facts, answer_unused);
    assert!(
        decision.migration_problems.contains(&problem),
        "{:?}",
        decision.migration_problems
    );
    let workloads = decision.plan.actions.iter().filter(|action| is_workload(action.key()));
    let workloads: Vec<&Key> = workloads.map(Action::key).collect();
    assert_eq!(!workloads.is_empty(), expected, "{workloads:?}");
}

#[test]
fn decision_without_lease_is_read_only() {
    let driver = mk_driver(NAME);
    let facts = DriverFacts {
        has_lease: false,
        ..mk_facts(&BTreeMap::new())
    };
    let decision = decide_with(&driver, facts, answer_unused);
    assert!(decision.read_only() && decision.plan.actions.is_empty());
    let decision = decide_with(&driver, mk_facts(&BTreeMap::new()), answer_unused);
    assert!(!decision.read_only() && !decision.plan.actions.is_empty());
}

/// The signatures of the public functions in a source text, without names of parameters.
fn signatures(source: &str) -> BTreeMap<String, String> {
    let declarations = source
        .split("\npub fn ")
        .skip(1)
        .filter_map(|text| text.split_once(" {\n"));
    let parse = |(declaration, _): (&str, &str)| {
        let (name, rest) = declaration.split_once('(')?;
        let (parameters, result) = rest.rsplit_once(") -> ").or_else(|| rest.rsplit_once(')'))?;
        let types = parameters.split(',').filter_map(|parameter| parameter.split_once(": "));
        let types: Vec<&str> = types.map(|(_, type_)| type_.trim()).collect();
        Some((name.to_owned(), format!("({}) -> {result}", types.join(", "))))
    };
    declarations.filter_map(parse).collect()
}

/// docs/architecture.md, "From the object to the manifests", describes a reconcile by these functions.
#[test]
fn entry_functions_take_only_the_four_values() {
    let decide = signatures(include_str!("../decide.rs"));
    let expected = "(&CinderCSIDriver, &Facts) -> Result<DecisionStep, RenderError>";
    assert_eq!(decide, [("decide".to_owned(), expected.to_owned())].into());

    let status = signatures(include_str!("../status.rs"));
    let expected = "(Option<&CinderCSIDriverStatus>, &Facts, &Decision, &Outcome, Timestamp) -> CinderCSIDriverStatus";
    assert_eq!(status["status"], expected);
    for (name, signature) in &status {
        let has_facts = signature.contains("Facts") && !signature.contains("ObjectFacts");
        let is_complete = signature.contains("&Facts, &Decision");
        assert!(!has_facts || is_complete, "{name}: {signature}");
        assert!(!signature.contains("Report"), "{name}: {signature}");
    }
}
