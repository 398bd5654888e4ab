// SPDX-License-Identifier: Apache-2.0

mod detach;
mod stale;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const HERE: &str = "11111111-2222-4333-8444-555555555555";
const THERE: &str = "99999999-2222-4333-8444-555555555555";
const OURS: &str = "aaaaaaaa-0000-4333-8444-555555555555";
const THEIRS: &str = "bbbbbbbb-0000-4333-8444-555555555555";

const ATTACH: DesiredAttachment = DesiredAttachment::Attach { exclusive: false };
const ALONE: DesiredAttachment = DesiredAttachment::Attach { exclusive: true };

fn volume(status: &str, multiattach: bool, servers: &[&str]) -> Volume {
    let attachments: Vec<Value> = servers
        .iter()
        .map(|id| json!({"server_id": id, "device": "/dev/vdb"}))
        .collect();
    serde_json::from_value(json!({
        "id": "aaaaaaaa-2222-4333-8444-555555555555", "name": null, "size": 1, "status": status,
        "multiattach": multiattach, "attachments": attachments, "metadata": null,
    }))
    .expect("volume")
}

fn server(status: &str, task: Option<&str>) -> Server {
    serde_json::from_value(json!({"id": HERE, "status": status, "OS-EXT-STS:task_state": task})).expect("server")
}

fn attachment(id: &str, status: &str, server: Option<&str>) -> Attachment {
    serde_json::from_value(json!({"id": id, "status": status, "instance": server})).expect("attachment")
}

fn done() -> Step {
    Step::Done(Some("/dev/vdb".to_owned()))
}

fn ids(id: &str) -> Vec<AttachmentId> {
    vec![AttachmentId::new(id)]
}

/// A test case. The defaults are the state of an idle cloud.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct KnownFacts {
    rounds_left: u32,
    refusal: Option<Refusal>,
    volume: Option<Volume>,
    recorded: bool,
    attachments: Option<Vec<Attachment>>,
    stale: Vec<AttachmentId>,
    offloaded: Vec<ServerId>,
    nova_server: Option<Server>,
    stuck: bool,
    stale_candidates: Vec<AttachmentId>,
    several: bool,
    shelved: bool,
}

impl KnownFacts {
    fn volume(status: &str, multiattach: bool, servers: &[&str]) -> Self {
        Self {
            rounds_left: 1,
            refusal: Some(Refusal::Bad),
            volume: Some(volume(status, multiattach, servers)),
            recorded: false,
            attachments: Some(Vec::new()),
            stale: Vec::new(),
            offloaded: Vec::new(),
            nova_server: Some(server("ACTIVE", None)),
            stuck: false,
            stale_candidates: Vec::new(),
            several: multiattach,
            shelved: false,
        }
    }

    fn next(&self, desired: DesiredAttachment) -> Step {
        let here = ServerId::new(HERE);
        let state = CloudState {
            volume: self.volume.clone(),
            attachments: self.attachments.clone(),
            stale: self.stale.clone(),
            offloaded: self.offloaded.clone(),
            recorded: self.recorded,
            nova_server: self.nova_server.clone(),
        };
        let view = StepInput {
            server: &here,
            rounds_left: self.rounds_left,
            refusal: self.refusal,
            state: &state,
            age: Duration::ZERO,
            stuck: self.stuck,
            stale_candidates: &self.stale_candidates,
            multiattach_requested: self.several,
            shelved_version: if self.shelved {
                ShelvedVersion::Used
            } else {
                ShelvedVersion::Needed
            },
        };
        next_step(desired, &view)
    }
}

#[test]
fn first_step_is_a_request() {
    let nothing = KnownFacts {
        refusal: None,
        volume: None,
        ..KnownFacts::volume("available", false, &[])
    };
    for desired in [ATTACH, ALONE, DesiredAttachment::Detach] {
        assert_eq!(nothing.next(desired), Step::Request);
    }
}

#[rstest]
#[case("available", false, &[], false, ATTACH, Step::Refused)]
#[case("in-use", false, &[HERE], true, ALONE, done())]
// Nova has no record of Cinder's attachment: the guest has no disk.
#[case("in-use", false, &[HERE], false, ALONE, Step::Obstructed(Obstacle::Disagreement))]
#[case("in-use", false, &[THERE], false, ATTACH, Step::Elsewhere)]
#[case("in-use", true, &[THERE], false, ATTACH, Step::Refused)]
#[case("in-use", true, &[THERE], false, ALONE, Step::Elsewhere)]
#[case("attaching", true, &[THERE, HERE], true, ALONE, done())]
#[case("extending", false, &[HERE], true, ATTACH, done())]
#[case("error_extending", false, &[HERE], true, ATTACH, done())]
#[case("reserved", false, &[], true, ATTACH, Step::WaitForTransition)]
#[case("attaching", false, &[], true, ATTACH, Step::WaitForTransition)]
#[case("attaching", false, &[], false, ATTACH, Step::WaitForTransition)]
#[case("creating", false, &[], false, ATTACH, Step::WaitForTransition)]
#[case("backing-up", false, &[], false, ATTACH, Step::WaitForTransition)]
#[case("maintenance", false, &[], false, ATTACH, Step::WaitForTransition)]
#[case("detaching", false, &[HERE], true, ATTACH, Step::WaitForTransition)]
#[case("detaching", false, &[THERE], false, ATTACH, Step::WaitForTransition)]
#[case("deleting", false, &[], false, ATTACH, Step::WaitForTransition)]
#[case("error", false, &[], false, ATTACH, Step::Broken)]
#[case("error_extending", false, &[], false, ATTACH, Step::Broken)]
#[case("awaiting-transfer", false, &[], false, ATTACH, Step::Obstructed(Obstacle::Busy))]
// An administrator reset the status of an attached volume.
#[case("available", false, &[THERE], false, ATTACH, Step::Elsewhere)]
#[case("available", false, &[HERE], true, DesiredAttachment::Detach, Step::Obstructed(Obstacle::Disagreement))]
// Nova still has the record of a detachment.
#[case("available", false, &[], true, ATTACH, Step::Pause)]
#[case("available", false, &[], false, DesiredAttachment::Detach, Step::Done(None))]
#[case("in-use", false, &[THERE], false, DesiredAttachment::Detach, Step::Done(None))]
#[case("detaching", false, &[THERE], false, DesiredAttachment::Detach, Step::Done(None))]
#[case("detaching", false, &[HERE], true, DesiredAttachment::Detach, Step::WaitForDetach)]
#[case("detaching", false, &[HERE], false, DesiredAttachment::Detach, Step::WaitForTransition)]
#[case("in-use", false, &[HERE], false, DesiredAttachment::Detach, Step::Obstructed(Obstacle::Disagreement))]
#[case("in-use", false, &[HERE], true, DesiredAttachment::Detach, Step::Refused)]
#[case("available", false, &[], true, DesiredAttachment::Detach, Step::WaitForDetach)]
#[case("reserved", false, &[], true, DesiredAttachment::Detach, Step::WaitForTransition)]
#[case("attaching", false, &[], true, DesiredAttachment::Detach, Step::WaitForTransition)]
#[case("reserved", false, &[], false, DesiredAttachment::Detach, Step::Done(None))]
#[case("extending", false, &[HERE], true, DesiredAttachment::Detach, Step::WaitForTransition)]
#[case("retyping", false, &[HERE], true, DesiredAttachment::Detach, Step::WaitForTransition)]
#[case("error_extending", false, &[HERE], true, DesiredAttachment::Detach, Step::Broken)]
fn each_state_has_one_next_step(
    #[case] status: &str,
    #[case] multiattach: bool,
    #[case] servers: &[&str],
    #[case] recorded: bool,
    #[case] desired: DesiredAttachment,
    #[case] expected: Step,
) {
    let known = KnownFacts {
        recorded,
        ..KnownFacts::volume(status, multiattach, servers)
    };
    assert_eq!(known.next(desired), expected);
}

#[rstest]
#[case("ACTIVE", None, None)]
#[case("SHUTOFF", None, None)]
#[case("PAUSED", None, None)]
#[case("VERIFY_RESIZE", None, None)]
#[case("SOFT_DELETED", None, None)]
#[case("SHELVED", None, Some(Step::Request))]
#[case("SHELVED_OFFLOADED", None, Some(Step::Request))]
#[case("ERROR", None, Some(Step::Obstructed(Obstacle::Server)))]
#[case("SUSPENDED", None, Some(Step::Obstructed(Obstacle::Server)))]
#[case("RESCUE", None, Some(Step::Obstructed(Obstacle::Server)))]
#[case("BUILD", None, Some(Step::Obstructed(Obstacle::Server)))]
#[case("MIGRATING", Some("migrating"), Some(Step::Pause))]
#[case("ACTIVE", Some("image_snapshot"), Some(Step::Pause))]
fn server_state_decides_about_unexplained_refusal(
    #[case] status: &str,
    #[case] task: Option<&str>,
    #[case] expected: Option<Step>,
) {
    let attach = KnownFacts {
        nova_server: Some(server(status, task)),
        ..KnownFacts::volume("available", false, &[])
    };
    let detach = KnownFacts {
        nova_server: Some(server(status, task)),
        recorded: true,
        ..KnownFacts::volume("in-use", false, &[HERE])
    };
    for (known, desired) in [(attach, ATTACH), (detach, DesiredAttachment::Detach)] {
        assert_eq!(
            known.next(desired),
            expected.clone().unwrap_or(Step::Refused),
            "{desired:?}"
        );
        // The version for a shelved server was used already.
        let mut again = KnownFacts { shelved: true, ..known };
        let expected = expected.clone().filter(|step| *step != Step::Request);
        assert_eq!(again.next(desired), expected.unwrap_or(Step::Refused), "{desired:?}");
        for refusal in [Refusal::Locked, Refusal::HostDown] {
            again.refusal = Some(refusal);
            assert_eq!(again.next(desired), Step::Obstructed(Obstacle::Server), "{refusal:?}");
        }
    }
}

#[test]
fn stuck_attachment_is_reported() {
    for (status, desired, recorded) in [
        ("reserved", ATTACH, true),
        ("attaching", ATTACH, false),
        ("detaching", ATTACH, false),
        ("reserved", DesiredAttachment::Detach, true),
    ] {
        let known = |stuck| KnownFacts {
            recorded,
            stuck,
            ..KnownFacts::volume(status, false, &[])
        };
        assert_eq!(known(false).next(desired), Step::WaitForTransition, "{status}");
        assert_eq!(known(true).next(desired), Step::Obstructed(Obstacle::Stuck), "{status}");
    }
}

#[test]
fn error_names_kind_of_missing_object() {
    let no_server = KnownFacts {
        refusal: Some(Refusal::NotFound),
        nova_server: None,
        ..KnownFacts::volume("available", false, &[])
    };
    assert_eq!(no_server.next(ATTACH), Step::Missing(ObjectKind::Server));
    assert_eq!(no_server.next(DesiredAttachment::Detach), Step::Done(None));
    let no_volume = KnownFacts {
        volume: None,
        ..KnownFacts::volume("available", false, &[])
    };
    assert_eq!(no_volume.next(ATTACH), Step::Missing(ObjectKind::Volume));
    assert_eq!(no_volume.next(DesiredAttachment::Detach), Step::Done(None));
}

#[test]
fn multiattach_request_uses_required_version() {
    let learned = KnownFacts {
        several: false,
        ..KnownFacts::volume("in-use", true, &[THERE])
    };
    assert_eq!(learned.next(ATTACH), Step::Request);
    assert_eq!(learned.next(ALONE), Step::Elsewhere);
}

#[rstest]
#[case(Refusal::Uncertain, false, ATTACH, Step::Refused)]
#[case(Refusal::Uncertain, true, ATTACH, Step::Pause)]
#[case(Refusal::Busy, false, ATTACH, Step::Pause)]
#[case(Refusal::Bad, false, ATTACH, Step::Refused)]
#[case(Refusal::NotFound, false, ATTACH, Step::Refused)]
#[case(Refusal::Outdated, false, ATTACH, Step::Request)]
fn attach_retries_when_state_may_change(
    #[case] refusal: Refusal,
    #[case] recorded: bool,
    #[case] desired: DesiredAttachment,
    #[case] expected: Step,
) {
    let known = KnownFacts {
        refusal: Some(refusal),
        recorded,
        ..KnownFacts::volume("available", false, &[])
    };
    assert_eq!(known.next(desired), expected);
}

#[rstest]
fn resting_server_obstructs_before_volume(
    #[values("SUSPENDED", "RESCUE", "ERROR")] state: &str,
    #[values(ATTACH, DesiredAttachment::Detach)] desired: DesiredAttachment,
    #[values("reserved", "attaching")] status: &str,
) {
    let known = KnownFacts {
        recorded: desired == DesiredAttachment::Detach,
        nova_server: Some(server(state, None)),
        ..KnownFacts::volume(status, false, &[])
    };
    assert_eq!(known.next(desired), Step::Obstructed(Obstacle::Server));
}

#[test]
fn attach_to_offloaded_server_names_the_server() {
    let known = |stuck| KnownFacts {
        recorded: true,
        stuck,
        nova_server: Some(server("SHELVED_OFFLOADED", None)),
        ..KnownFacts::volume("reserved", false, &[])
    };
    assert_eq!(known(false).next(ATTACH), Step::WaitForTransition);
    assert_eq!(known(true).next(ATTACH), Step::Obstructed(Obstacle::Server));
    let shared = KnownFacts {
        shelved: true,
        nova_server: Some(server("SHELVED_OFFLOADED", None)),
        ..KnownFacts::volume("in-use", true, &[THERE])
    };
    assert_eq!(shared.next(ATTACH), Step::Obstructed(Obstacle::Server));
}

#[test]
fn volume_of_offloaded_server_is_elsewhere() {
    let known = KnownFacts {
        attachments: Some(vec![attachment(THEIRS, "reserved", Some(THERE))]),
        offloaded: vec![ServerId::new(THERE)],
        ..KnownFacts::volume("reserved", false, &[])
    };
    assert_eq!(known.next(ATTACH), Step::Elsewhere);
    assert_eq!(known.next(DesiredAttachment::Detach), Step::Done(None));
}

#[test]
fn pending_operation_precedes_clean_up() {
    for status in ["extending", "retyping", "backing-up"] {
        let known = KnownFacts {
            nova_server: None,
            attachments: Some(vec![attachment(OURS, "attached", Some(HERE))]),
            stale_candidates: ids(OURS),
            ..KnownFacts::volume(status, false, &[HERE])
        };
        assert_eq!(
            known.next(DesiredAttachment::Detach),
            Step::WaitForTransition,
            "{status}"
        );
    }
}

/// Checks every combination of known facts against the decisions that are never allowed.
#[test]
fn no_combination_reaches_an_unsafe_step() {
    let statuses = [
        "available",
        "reserved",
        "attaching",
        "in-use",
        "detaching",
        "creating",
        "deleting",
        "extending",
        "retyping",
        "backing-up",
        "maintenance",
        "awaiting-transfer",
        "error",
        "error_extending",
        "error_deleting",
        "unheard-of",
    ];
    let servers: [&[&str]; 4] = [&[], &[HERE], &[THERE], &[HERE, THERE]];
    let refusals = [
        Refusal::NotFound,
        Refusal::Uncertain,
        Refusal::Locked,
        Refusal::HostDown,
        Refusal::Busy,
        Refusal::Recorded,
        Refusal::Bad,
        Refusal::Outdated,
    ];
    let lists = || {
        [
            None,
            Some(Vec::new()),
            Some(vec![
                attachment(OURS, "reserved", Some(HERE)),
                attachment(THEIRS, "reserved", Some(THERE)),
            ]),
            Some(vec![
                attachment(OURS, "attached", Some(HERE)),
                attachment(THEIRS, "attached", None),
            ]),
        ]
    };
    let hosts = || {
        [
            None,
            Some(server("ACTIVE", None)),
            Some(server("ERROR", None)),
            Some(server("SHELVED_OFFLOADED", None)),
            Some(server("ACTIVE", Some("migrating"))),
        ]
    };
    let mut count = 0;
    for ((status, attached), (refusal, multiattach)) in
        iproduct(iproduct(statuses, servers), iproduct(refusals, [false, true]))
    {
        for ((attachments, nova_server), (recorded, (stuck, stale))) in iproduct(
            iproduct(lists(), hosts()),
            iproduct(
                [false, true],
                [(false, Vec::new()), (true, Vec::new()), (false, ids(OURS))],
            ),
        ) {
            let known = KnownFacts {
                refusal: Some(refusal),
                recorded,
                attachments,
                nova_server,
                stuck,
                stale,
                stale_candidates: ids(OURS),
                ..KnownFacts::volume(status, multiattach, attached)
            };
            for desired in [ATTACH, ALONE, DesiredAttachment::Detach] {
                check(&known, desired, attached);
                count += 1;
            }
        }
    }
    assert!(count > 300_000, "{count}");
}

/// All pairs.
fn iproduct<A: Clone, B: Clone>(
    some: impl IntoIterator<Item = A>,
    others: impl IntoIterator<Item = B>,
) -> impl Iterator<Item = (A, B)> {
    let others: Vec<B> = others.into_iter().collect();
    some.into_iter()
        .flat_map(move |one| others.clone().into_iter().map(move |other| (one.clone(), other)))
}

fn check(known: &KnownFacts, desired: DesiredAttachment, attached: &[&str]) {
    let step = known.next(desired);
    let here = attached.contains(&HERE);
    let context = || {
        format!(
            "{desired:?}, {:?}, recorded {:?}, attachments {:?}, host {:?}: {step:?}",
            known.volume, known.recorded, known.attachments, known.nova_server
        )
    };
    match &step {
        // Both services agree, or the volume is not attached.
        Step::Done(_) if desired != DesiredAttachment::Detach => assert!(here && known.recorded, "{}", context()),
        Step::Done(_) => assert!(!here && !known.recorded, "{}", context()),
        Step::DeleteStale(which) | Step::RecheckStale(which) => {
            assert_eq!(*which, ids(OURS), "{}", context());
            assert!(!known.recorded, "{}", context());
            let Some(all) = &known.attachments else {
                panic!("{}", context())
            };
            assert!(all.iter().any(|one| one.id == which[0]), "{}", context());
            // Only attachments without a server, or the remains of a detachment from a server without a host.
            let is_off_host =
                (known.nova_server.as_ref()).is_none_or(|nova_server| nova_server.status == "SHELVED_OFFLOADED");
            let is_left = is_off_host && desired == DesiredAttachment::Detach;
            assert!(is_left || known.stale == ids(OURS), "{}", context());
        }
        Step::WaitForTransition => assert!(!known.stuck, "{}", context()),
        Step::Elsewhere => assert!(!here && desired != DesiredAttachment::Detach, "{}", context()),
        Step::Missing(_)
        | Step::Request
        | Step::WaitForDetach
        | Step::Pause
        | Step::Broken
        | Step::Obstructed(_)
        | Step::Refused => {}
    }
}
