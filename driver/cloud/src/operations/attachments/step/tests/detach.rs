// SPDX-License-Identifier: Apache-2.0
//! Detachments.

use rstest::rstest;

use super::*;

#[rstest]
fn interrupted_detachment_is_not_complete(#[values("attaching", "detaching")] status: &str) {
    let left = |attachments, nova_server| KnownFacts {
        attachments,
        nova_server,
        // Nova does not show the server, like a server that it is about to create. Such a server is skipped.
        stale: Vec::new(),
        ..KnownFacts::volume(status, false, &[])
    };
    let next = |known: &KnownFacts| known.next(DesiredAttachment::Detach);
    let ours = || Some(vec![attachment(OURS, status, Some(HERE))]);
    assert_eq!(next(&left(ours(), None)), Step::RecheckStale(ids(OURS)));
    let there = Some(server("ACTIVE", None));
    assert_eq!(
        next(&left(ours(), there)),
        Step::WaitForTransition,
        "Nova may be about to end it"
    );
    let theirs = Some(vec![attachment(THEIRS, status, Some(THERE))]);
    assert_eq!(next(&left(theirs, None)), Step::Done(None));
}

#[test]
fn detach_retries_after_lost_response() {
    for (refusal, rounds_left, step) in [
        (Refusal::Uncertain, 1, Step::Pause),
        (Refusal::Uncertain, 0, Step::Done(None)),
        (Refusal::NotFound, 1, Step::Done(None)),
    ] {
        let known = KnownFacts {
            rounds_left,
            refusal: Some(refusal),
            recorded: false,
            ..KnownFacts::volume("available", false, &[])
        };
        assert_eq!(known.next(DesiredAttachment::Detach), step, "{refusal:?}");
    }
}

/// An API node with a lagging database still shows the record.
#[test]
fn detach_retries_while_deleted_server_has_record() {
    let deleted = KnownFacts {
        refusal: Some(Refusal::NotFound),
        nova_server: None,
        recorded: true,
        ..KnownFacts::volume("in-use", false, &[HERE])
    };
    assert_eq!(deleted.next(DesiredAttachment::Detach), Step::Pause);
}

#[rstest]
fn shelved_server_needs_versioned_detach(
    #[values("SHELVED", "SHELVED_OFFLOADED")] state: &str,
    #[values(
        "in-use",
        "reserved",
        "attaching",
        "detaching",
        "available",
        "extending",
        "error_extending"
    )]
    status: &str,
) {
    let known = KnownFacts {
        refusal: Some(Refusal::Busy),
        recorded: true,
        nova_server: Some(server(state, None)),
        ..KnownFacts::volume(status, false, &[])
    };
    assert_eq!(known.next(DesiredAttachment::Detach), Step::Request);
    let locked = KnownFacts {
        refusal: Some(Refusal::Locked),
        ..known
    };
    assert_eq!(
        locked.next(DesiredAttachment::Detach),
        Step::Obstructed(Obstacle::Server)
    );
}

#[rstest]
#[case(Refusal::Uncertain, Step::Pause)]
#[case(Refusal::Busy, Step::Pause)]
#[case(Refusal::NotFound, Step::Pause)]
#[case(Refusal::Bad, Step::Refused)]
fn offloaded_detach_ignores_volume_status(
    #[case] refusal: Refusal,
    #[case] expected: Step,
    #[values("in-use", "reserved", "detaching", "available")] status: &str,
) {
    let known = KnownFacts {
        refusal: Some(refusal),
        recorded: true,
        shelved: true,
        nova_server: Some(server("SHELVED_OFFLOADED", None)),
        ..KnownFacts::volume(status, false, &[])
    };
    assert_eq!(known.next(DesiredAttachment::Detach), expected);
}

#[rstest]
#[case("ACTIVE", "shelving", "in-use", Step::Pause)]
#[case("SHELVED", "shelving_offloading", "reserved", Step::WaitForTransition)]
#[case("SHELVED_OFFLOADED", "unshelving", "reserved", Step::WaitForTransition)]
#[case("SHELVED_OFFLOADED", "spawning", "attaching", Step::WaitForTransition)]
#[case("SHELVED_OFFLOADED", "unshelving", "in-use", Step::Pause)]
fn detach_waits_for_shelving_tasks(
    #[case] state: &str,
    #[case] task: &str,
    #[case] status: &str,
    #[case] expected: Step,
) {
    let known = |stuck| KnownFacts {
        refusal: Some(Refusal::Busy),
        recorded: true,
        stuck,
        nova_server: Some(server(state, Some(task))),
        ..KnownFacts::volume(status, false, &[])
    };
    assert_eq!(known(false).next(DesiredAttachment::Detach), expected);
    let is_waiting = expected == Step::WaitForTransition;
    let expected = if is_waiting {
        Step::Obstructed(Obstacle::Server)
    } else {
        expected
    };
    assert_eq!(known(true).next(DesiredAttachment::Detach), expected);
}
