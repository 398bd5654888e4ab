// SPDX-License-Identifier: Apache-2.0
//! Stale attachments.

use rstest::rstest;

use super::*;

/// Issue 2553: an attachment that failed half way leaves the volume `reserved`.
#[rstest]
fn stale_attachment_is_removed_after_recheck_issue_2553(
    #[values(ATTACH, DesiredAttachment::Detach)] desired: DesiredAttachment,
    #[values("reserved", "attaching")] status: &str,
) {
    let otherwise = || {
        if desired == DesiredAttachment::Detach {
            Step::Done(None)
        } else {
            Step::WaitForTransition
        }
    };
    let known = |attachments: Vec<Attachment>, stale, stale_candidates| KnownFacts {
        attachments: Some(attachments),
        stale,
        stale_candidates,
        ..KnownFacts::volume(status, false, &[])
    };
    let stray = ids;
    let ours = || vec![attachment(OURS, "reserved", Some(HERE))];
    // Nova is creating the server.
    assert_eq!(
        known(ours(), Vec::new(), ids(OURS)).next(desired),
        Step::WaitForTransition
    );
    assert_eq!(
        known(ours(), stray(OURS), Vec::new()).next(desired),
        Step::RecheckStale(ids(OURS))
    );
    assert_eq!(
        known(ours(), stray(OURS), ids(THEIRS)).next(desired),
        Step::RecheckStale(ids(OURS))
    );
    assert_eq!(
        known(ours(), stray(OURS), ids(OURS)).next(desired),
        Step::DeleteStale(ids(OURS))
    );
    // An attachment without a server.
    let theirs = attachment(THEIRS, "attaching", None);
    assert_eq!(
        known(vec![theirs], stray(THEIRS), ids(THEIRS)).next(desired),
        otherwise()
    );
    // A stale attachment of another server blocks an attachment, and does not concern a detachment.
    let theirs = || vec![attachment(THEIRS, "reserved", Some(THERE))];
    let expected = match desired {
        DesiredAttachment::Attach { .. } => Step::DeleteStale(ids(THEIRS)),
        DesiredAttachment::Detach => Step::Done(None),
    };
    assert_eq!(known(theirs(), stray(THEIRS), ids(THEIRS)).next(desired), expected);
    // Nova has a record of it here, so it is pending.
    let recorded = KnownFacts {
        recorded: true,
        ..known(ours(), stray(OURS), ids(OURS))
    };
    assert_eq!(recorded.next(desired), Step::WaitForTransition);
    // A Cinder that does not list attachments removes none.
    let unlisted = KnownFacts {
        attachments: None,
        ..known(Vec::new(), Vec::new(), Vec::new())
    };
    assert_eq!(unlisted.next(desired), otherwise());
}

#[test]
fn attachment_is_removed_only_when_server_was_deleted() {
    let gone = |attachments: Vec<Attachment>, stale_candidates: Vec<AttachmentId>| KnownFacts {
        refusal: Some(Refusal::NotFound),
        nova_server: None,
        attachments: Some(attachments),
        stale_candidates,
        ..KnownFacts::volume("in-use", true, &[HERE, THERE])
    };
    let both = || {
        vec![
            attachment(OURS, "attached", Some(HERE)),
            attachment(THEIRS, "attached", Some(THERE)),
        ]
    };
    assert_eq!(
        gone(both(), Vec::new()).next(DesiredAttachment::Detach),
        Step::RecheckStale(ids(OURS))
    );
    assert_eq!(
        gone(both(), ids(OURS)).next(DesiredAttachment::Detach),
        Step::DeleteStale(ids(OURS))
    );
    let there = KnownFacts {
        nova_server: Some(server("ACTIVE", None)),
        ..gone(both(), ids(OURS))
    };
    assert_eq!(
        there.next(DesiredAttachment::Detach),
        Step::Obstructed(Obstacle::Disagreement)
    );
}

#[rstest]
#[case("in-use", false)]
#[case("in-use", true)]
#[case("detaching", false)]
fn complete_attachment_of_deleted_server_is_removed(#[case] status: &str, #[case] multiattach: bool) {
    let known = |stale, stale_candidates| KnownFacts {
        attachments: Some(vec![attachment(THEIRS, "attached", Some(THERE))]),
        stale,
        stale_candidates,
        ..KnownFacts::volume(status, multiattach, &[THERE])
    };
    let first = known(ids(THEIRS), Vec::new());
    assert_eq!(first.next(ALONE), Step::RecheckStale(ids(THEIRS)));
    let second = known(ids(THEIRS), ids(THEIRS));
    assert_eq!(second.next(ALONE), Step::DeleteStale(ids(THEIRS)));
    let live = known(Vec::new(), ids(THEIRS));
    assert!(!matches!(
        live.next(ALONE),
        Step::RecheckStale(_) | Step::DeleteStale(_)
    ));
}

#[rstest]
fn attachments_of_ironic_stay(#[values(ALONE, DesiredAttachment::Detach)] desired: DesiredAttachment) {
    let there = if desired == ALONE { THERE } else { HERE };
    let mut known = KnownFacts {
        attachments: Some(vec![attachment(OURS, "attached", Some(there))]),
        stale: ids(OURS),
        stale_candidates: ids(OURS),
        nova_server: (desired == ALONE).then(|| server("ACTIVE", None)),
        ..KnownFacts::volume("in-use", false, &[there])
    };
    assert_eq!(known.next(desired), Step::DeleteStale(ids(OURS)));
    let metadata = (format!("ironic_node_{there}"), "{}".to_owned());
    known.volume.as_mut().expect("a volume").metadata.extend([metadata]);
    assert!(!matches!(
        known.next(desired),
        Step::DeleteStale(_) | Step::RecheckStale(_) | Step::Done(_)
    ));
}
