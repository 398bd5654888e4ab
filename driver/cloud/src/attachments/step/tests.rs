use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const HERE: &str = "11111111-2222-4333-8444-555555555555";
const THERE: &str = "99999999-2222-4333-8444-555555555555";
const OURS: &str = "aaaaaaaa-0000-4333-8444-555555555555";
const THEIRS: &str = "bbbbbbbb-0000-4333-8444-555555555555";

const ATTACH: Wish = Wish::Attach { exclusive: false };
const ALONE: Wish = Wish::Attach { exclusive: true };

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

/// A case whose views are all there unless a test says otherwise.
struct Known {
    rounds_left: u32,
    refusal: Option<Refusal>,
    volume: Seen<Volume>,
    record: Seen<()>,
    attachments: Seen<Vec<Attachment>>,
    strays: Seen<Vec<AttachmentId>>,
    host: Seen<Server>,
    stuck: bool,
    suspects: Vec<AttachmentId>,
    several: bool,
    shelved: bool,
}

impl Known {
    fn volume(status: &str, multiattach: bool, servers: &[&str]) -> Self {
        Self {
            rounds_left: 1,
            refusal: Some(Refusal::Bad),
            volume: Seen::There(volume(status, multiattach, servers)),
            record: Seen::Missing,
            attachments: Seen::There(Vec::new()),
            strays: Seen::Not,
            host: Seen::There(server("ACTIVE", None)),
            stuck: false,
            suspects: Vec::new(),
            several: multiattach,
            shelved: false,
        }
    }

    fn next(&self, wish: Wish) -> Step {
        let here = ServerId::new(HERE);
        let view = View {
            server: &here,
            rounds_left: self.rounds_left,
            refusal: self.refusal,
            volume: seen(&self.volume),
            record: self.record,
            attachments: match &self.attachments {
                Seen::Not => Seen::Not,
                Seen::Missing => Seen::Missing,
                Seen::There(all) => Seen::There(all),
            },
            strays: match &self.strays {
                Seen::Not => Seen::Not,
                Seen::Missing => Seen::Missing,
                Seen::There(all) => Seen::There(all),
            },
            host: seen(&self.host),
            age: Duration::ZERO,
            stuck: self.stuck,
            suspects: &self.suspects,
            asked_for_several: self.several,
            asked_for_shelved: self.shelved,
        };
        next_step(wish, &view)
    }
}

fn seen<T>(seen: &Seen<T>) -> Seen<&T> {
    match seen {
        Seen::Not => Seen::Not,
        Seen::Missing => Seen::Missing,
        Seen::There(thing) => Seen::There(thing),
    }
}

#[test]
fn nova_is_asked_before_anything_is_looked_at() {
    let nothing = Known {
        refusal: None,
        volume: Seen::Not,
        record: Seen::Not,
        attachments: Seen::Not,
        host: Seen::Not,
        ..Known::volume("available", false, &[])
    };
    for wish in [ATTACH, ALONE, Wish::Detach] {
        assert_eq!(nothing.next(wish), Step::Request);
    }
}

#[rstest]
#[case("available", false, &[], Seen::Missing, ATTACH, Step::Refused)]
#[case("in-use", false, &[HERE], Seen::There(()), ALONE, done())]
// Nova knows nothing of what Cinder shows: the guest has no disk.
#[case("in-use", false, &[HERE], Seen::Missing, ALONE, Step::Obstructed(Obstacle::Disagreement))]
#[case("in-use", false, &[HERE], Seen::Not, ALONE, Step::Look(Source::Record))]
#[case("in-use", false, &[THERE], Seen::Missing, ATTACH, Step::Elsewhere)]
#[case("in-use", true, &[THERE], Seen::Missing, ATTACH, Step::Refused)]
#[case("in-use", true, &[THERE], Seen::Missing, ALONE, Step::Elsewhere)]
#[case("attaching", true, &[THERE, HERE], Seen::There(()), ALONE, done())]
#[case("extending", false, &[HERE], Seen::There(()), ATTACH, done())]
#[case("error_extending", false, &[HERE], Seen::There(()), ATTACH, done())]
#[case("reserved", false, &[], Seen::There(()), ATTACH, Step::Settle)]
#[case("reserved", false, &[], Seen::Not, ATTACH, Step::Look(Source::Record))]
#[case("attaching", false, &[], Seen::There(()), ATTACH, Step::Settle)]
#[case("attaching", false, &[], Seen::Missing, ATTACH, Step::Settle)]
#[case("creating", false, &[], Seen::Missing, ATTACH, Step::Settle)]
#[case("backing-up", false, &[], Seen::Missing, ATTACH, Step::Settle)]
#[case("maintenance", false, &[], Seen::Missing, ATTACH, Step::Settle)]
#[case("detaching", false, &[HERE], Seen::There(()), ATTACH, Step::Settle)]
#[case("detaching", false, &[THERE], Seen::Missing, ATTACH, Step::Settle)]
#[case("deleting", false, &[], Seen::Missing, ATTACH, Step::Settle)]
#[case("error", false, &[], Seen::Missing, ATTACH, Step::Broken)]
#[case("error_extending", false, &[], Seen::Missing, ATTACH, Step::Broken)]
#[case("awaiting-transfer", false, &[], Seen::Missing, ATTACH, Step::Refused)]
// Nova has not yet forgotten a detachment.
#[case("available", false, &[], Seen::There(()), ATTACH, Step::Pause)]
#[case("available", false, &[], Seen::Missing, Wish::Detach, Step::Done(None))]
#[case("in-use", false, &[THERE], Seen::Missing, Wish::Detach, Step::Done(None))]
#[case("detaching", false, &[THERE], Seen::Missing, Wish::Detach, Step::Done(None))]
#[case("detaching", false, &[HERE], Seen::Not, Wish::Detach, Step::Follow)]
#[case("detaching", false, &[HERE], Seen::There(()), Wish::Detach, Step::Follow)]
#[case("detaching", false, &[HERE], Seen::Missing, Wish::Detach, Step::Settle)]
#[case("in-use", false, &[HERE], Seen::Missing, Wish::Detach, Step::Obstructed(Obstacle::Disagreement))]
#[case("in-use", false, &[HERE], Seen::Not, Wish::Detach, Step::Look(Source::Record))]
#[case("in-use", false, &[HERE], Seen::There(()), Wish::Detach, Step::Refused)]
#[case("available", false, &[], Seen::There(()), Wish::Detach, Step::Follow)]
#[case("reserved", false, &[], Seen::There(()), Wish::Detach, Step::Settle)]
#[case("attaching", false, &[], Seen::There(()), Wish::Detach, Step::Settle)]
#[case("reserved", false, &[], Seen::Missing, Wish::Detach, Step::Done(None))]
#[case("extending", false, &[HERE], Seen::There(()), Wish::Detach, Step::Settle)]
#[case("retyping", false, &[HERE], Seen::There(()), Wish::Detach, Step::Settle)]
#[case("error_extending", false, &[HERE], Seen::There(()), Wish::Detach, Step::Broken)]
fn each_state_has_one_next_step(
    #[case] status: &str,
    #[case] multiattach: bool,
    #[case] servers: &[&str],
    #[case] record: Seen<()>,
    #[case] wish: Wish,
    #[case] expected: Step,
) {
    let known = Known {
        record,
        ..Known::volume(status, multiattach, servers)
    };
    assert_eq!(known.next(wish), expected);
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
fn a_servers_state_decides_about_a_refusal_that_the_volume_does_not_explain(
    #[case] status: &str,
    #[case] task: Option<&str>,
    #[case] expected: Option<Step>,
) {
    let attach = Known {
        host: Seen::There(server(status, task)),
        ..Known::volume("available", false, &[])
    };
    let detach = Known {
        host: Seen::There(server(status, task)),
        record: Seen::There(()),
        ..Known::volume("in-use", false, &[HERE])
    };
    for (known, wish) in [(attach, ATTACH), (detach, Wish::Detach)] {
        assert_eq!(known.next(wish), expected.clone().unwrap_or(Step::Refused), "{wish:?}");
        // The version that a shelved server takes was used already.
        let mut again = Known { shelved: true, ..known };
        let expected = expected.clone().filter(|step| *step != Step::Request);
        assert_eq!(again.next(wish), expected.unwrap_or(Step::Refused), "{wish:?}");
        for refusal in [Refusal::Locked, Refusal::HostDown] {
            again.refusal = Some(refusal);
            assert_eq!(again.next(wish), Step::Obstructed(Obstacle::Server), "{refusal:?}");
        }
    }
}

#[rstest]
fn what_the_servers_deletion_cut_short_is_not_taken_for_detached(#[values("attaching", "detaching")] status: &str) {
    let left = |attachments, host| Known {
        attachments,
        host,
        // The server cannot be seen, as one that Nova is about to make: such a one is passed over.
        strays: Seen::There(Vec::new()),
        ..Known::volume(status, false, &[])
    };
    let next = |known: &Known| known.next(Wish::Detach);
    let ours = || Seen::There(vec![attachment(OURS, status, Some(HERE))]);
    assert_eq!(next(&left(Seen::Not, Seen::Missing)), Step::Look(Source::Attachments));
    assert_eq!(next(&left(ours(), Seen::Not)), Step::Look(Source::Server));
    assert_eq!(next(&left(ours(), Seen::Missing)), Step::Doubt(ids(OURS)));
    let there = Seen::There(server("ACTIVE", None));
    assert_eq!(next(&left(ours(), there)), Step::Settle, "Nova may be about to end it");
    let theirs = Seen::There(vec![attachment(THEIRS, status, Some(THERE))]);
    assert_eq!(next(&left(theirs, Seen::Missing)), Step::Done(None));
}

#[test]
fn after_a_lost_answer_a_single_look_does_not_say_that_there_is_nothing_to_detach() {
    for (refusal, rounds_left, step) in [
        (Refusal::Uncertain, 1, Step::Pause),
        (Refusal::Uncertain, 0, Step::Done(None)),
        (Refusal::NotFound, 1, Step::Done(None)),
    ] {
        let known = Known {
            rounds_left,
            refusal: Some(refusal),
            record: Seen::Missing,
            ..Known::volume("available", false, &[])
        };
        assert_eq!(known.next(Wish::Detach), step, "{refusal:?}");
    }
}

#[test]
fn what_is_stuck_is_named_and_not_waited_for_without_end() {
    for (status, wish, record) in [
        ("reserved", ATTACH, Seen::There(())),
        ("attaching", ATTACH, Seen::Missing),
        ("detaching", ATTACH, Seen::Missing),
        ("reserved", Wish::Detach, Seen::There(())),
    ] {
        let known = |stuck| Known {
            record,
            stuck,
            ..Known::volume(status, false, &[])
        };
        assert_eq!(known(false).next(wish), Step::Settle, "{status}");
        assert_eq!(known(true).next(wish), Step::Obstructed(Obstacle::Stuck), "{status}");
    }
}

/// Issue 2553: an attachment that failed half way leaves the volume `reserved`.
#[rstest]
fn a_half_made_attachment_is_removed_only_when_it_is_a_stray_that_was_seen_twice_issue_2553(
    #[values(ATTACH, Wish::Detach)] wish: Wish,
    #[values("reserved", "attaching")] status: &str,
) {
    let otherwise = || {
        if wish == Wish::Detach {
            Step::Done(None)
        } else {
            Step::Settle
        }
    };
    let known = |attachments: Vec<Attachment>, strays, suspects| Known {
        attachments: Seen::There(attachments),
        strays,
        suspects,
        ..Known::volume(status, false, &[])
    };
    let stray = |id| Seen::There(ids(id));
    let ours = || vec![attachment(OURS, "reserved", Some(HERE))];
    assert_eq!(
        known(ours(), Seen::Not, Vec::new()).next(wish),
        Step::Look(Source::Strays)
    );
    // The server is being made.
    assert_eq!(
        known(ours(), Seen::There(Vec::new()), ids(OURS)).next(wish),
        Step::Settle
    );
    assert_eq!(
        known(ours(), stray(OURS), Vec::new()).next(wish),
        Step::Doubt(ids(OURS))
    );
    assert_eq!(
        known(ours(), stray(OURS), ids(THEIRS)).next(wish),
        Step::Doubt(ids(OURS))
    );
    assert_eq!(known(ours(), stray(OURS), ids(OURS)).next(wish), Step::Clear(ids(OURS)));
    // Nobody's, or complete: whatever else is said about it.
    for (theirs, expected) in [
        (attachment(THEIRS, "attaching", None), otherwise()),
        (attachment(THEIRS, "attached", Some(HERE)), Step::Settle),
    ] {
        assert_eq!(known(vec![theirs], stray(THEIRS), ids(THEIRS)).next(wish), expected);
    }
    // A stray of another server stands in the way of an attachment, and is none of a detachment's business.
    let theirs = || vec![attachment(THEIRS, "reserved", Some(THERE))];
    let expected = match wish {
        Wish::Attach { .. } => Step::Clear(ids(THEIRS)),
        Wish::Detach => Step::Done(None),
    };
    assert_eq!(known(theirs(), stray(THEIRS), ids(THEIRS)).next(wish), expected);
    // Nova has a record of it here: it is under way.
    let recorded = Known {
        record: Seen::There(()),
        ..known(ours(), stray(OURS), ids(OURS))
    };
    assert_eq!(recorded.next(wish), Step::Settle);
    // A Cinder that does not list attachments removes none.
    let unlisted = Known {
        attachments: Seen::Missing,
        ..known(Vec::new(), Seen::Not, Vec::new())
    };
    assert_eq!(unlisted.next(wish), otherwise());
}

#[test]
fn what_a_server_left_behind_is_removed_only_when_nova_says_that_it_is_gone() {
    let gone = |attachments: Vec<Attachment>, suspects: Vec<AttachmentId>| Known {
        refusal: Some(Refusal::NotFound),
        host: Seen::Missing,
        attachments: Seen::There(attachments),
        suspects,
        ..Known::volume("in-use", true, &[HERE, THERE])
    };
    let both = || {
        vec![
            attachment(OURS, "attached", Some(HERE)),
            attachment(THEIRS, "attached", Some(THERE)),
        ]
    };
    assert_eq!(gone(both(), Vec::new()).next(Wish::Detach), Step::Doubt(ids(OURS)));
    assert_eq!(gone(both(), ids(OURS)).next(Wish::Detach), Step::Clear(ids(OURS)));
    let not_asked = Known {
        host: Seen::Not,
        ..gone(both(), ids(OURS))
    };
    assert_eq!(not_asked.next(Wish::Detach), Step::Look(Source::Server));
    let there = Known {
        host: Seen::There(server("ACTIVE", None)),
        ..gone(both(), ids(OURS))
    };
    assert_eq!(there.next(Wish::Detach), Step::Obstructed(Obstacle::Disagreement));
}

#[test]
fn a_missing_thing_is_told_by_its_kind() {
    let no_server = Known {
        refusal: Some(Refusal::NotFound),
        host: Seen::Missing,
        ..Known::volume("available", false, &[])
    };
    assert_eq!(no_server.next(ATTACH), Step::Missing(ObjectKind::Server));
    assert_eq!(no_server.next(Wish::Detach), Step::Done(None));
    let no_volume = Known {
        volume: Seen::Missing,
        ..Known::volume("available", false, &[])
    };
    assert_eq!(no_volume.next(ATTACH), Step::Missing(ObjectKind::Volume));
    assert_eq!(no_volume.next(Wish::Detach), Step::Done(None));
}

#[test]
fn a_multiattach_volume_is_asked_for_in_the_version_that_allows_it() {
    let learned = Known {
        several: false,
        ..Known::volume("in-use", true, &[THERE])
    };
    assert_eq!(learned.next(ATTACH), Step::Request);
    assert_eq!(learned.next(ALONE), Step::Elsewhere);
}

#[rstest]
#[case(Refusal::Uncertain, Seen::Missing, ATTACH, Step::Refused)]
#[case(Refusal::Uncertain, Seen::There(()), ATTACH, Step::Pause)]
#[case(Refusal::Uncertain, Seen::Not, ATTACH, Step::Look(Source::Record))]
#[case(Refusal::Busy, Seen::Missing, ATTACH, Step::Pause)]
#[case(Refusal::Bad, Seen::Missing, ATTACH, Step::Refused)]
#[case(Refusal::NotFound, Seen::Missing, ATTACH, Step::Refused)]
#[case(Refusal::Outdated, Seen::Missing, ATTACH, Step::Request)]
fn what_cinder_would_allow_is_asked_again_where_that_can_help(
    #[case] refusal: Refusal,
    #[case] record: Seen<()>,
    #[case] wish: Wish,
    #[case] expected: Step,
) {
    let known = Known {
        refusal: Some(refusal),
        record,
        ..Known::volume("available", false, &[])
    };
    assert_eq!(known.next(wish), expected);
}

/// Every combination of what can be known, against what may never be decided.
#[test]
fn no_combination_reports_what_is_uncertain_or_touches_what_is_not_ours() {
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
        Refusal::Bad,
        Refusal::Outdated,
    ];
    let lists = || {
        [
            Seen::Not,
            Seen::Missing,
            Seen::There(Vec::new()),
            Seen::There(vec![
                attachment(OURS, "reserved", Some(HERE)),
                attachment(THEIRS, "reserved", Some(THERE)),
            ]),
            Seen::There(vec![
                attachment(OURS, "attached", Some(HERE)),
                attachment(THEIRS, "attached", None),
            ]),
        ]
    };
    let hosts = || {
        [
            Seen::Not,
            Seen::Missing,
            Seen::There(server("ACTIVE", None)),
            Seen::There(server("ERROR", None)),
            Seen::There(server("SHELVED_OFFLOADED", None)),
            Seen::There(server("ACTIVE", Some("migrating"))),
        ]
    };
    let mut count = 0;
    for status in statuses {
        for attached in servers {
            for multiattach in [false, true] {
                for refusal in refusals {
                    for record in [Seen::Not, Seen::Missing, Seen::There(())] {
                        for attachments in lists() {
                            for host in hosts() {
                                for (stuck, strays) in [
                                    (false, Seen::Not),
                                    (true, Seen::Not),
                                    (false, Seen::There(Vec::new())),
                                    (false, Seen::There(ids(OURS))),
                                ] {
                                    let known = Known {
                                        refusal: Some(refusal),
                                        record,
                                        attachments: attachments.clone(),
                                        host: host.clone(),
                                        stuck,
                                        strays,
                                        suspects: ids(OURS),
                                        ..Known::volume(status, multiattach, attached)
                                    };
                                    for wish in [ATTACH, ALONE, Wish::Detach] {
                                        check(&known, wish, attached);
                                        count += 1;
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(count > 400_000, "{count}");
}

fn check(known: &Known, wish: Wish, attached: &[&str]) {
    let step = known.next(wish);
    let here = attached.contains(&HERE);
    let context = || {
        format!(
            "{wish:?}, {:?}, record {:?}, attachments {:?}, host {:?}: {step:?}",
            known.volume, known.record, known.attachments, known.host
        )
    };
    match &step {
        // Both agree, or it is not attached.
        Step::Done(_) if wish != Wish::Detach => assert!(here && known.record == Seen::There(()), "{}", context()),
        Step::Done(_) => assert!(!here && known.record == Seen::Missing, "{}", context()),
        Step::Clear(which) | Step::Doubt(which) => {
            assert_eq!(*which, ids(OURS), "{}", context());
            assert_eq!(known.record, Seen::Missing, "{}", context());
            let Seen::There(all) = &known.attachments else {
                panic!("{}", context())
            };
            // A complete one only of a server that is gone, and never for an attachment's sake.
            let complete = all.iter().any(|one| one.id == which[0] && one.is_complete());
            let gone = known.host == Seen::Missing && wish == Wish::Detach;
            let stray = matches!(&known.strays, Seen::There(strays) if *strays == ids(OURS));
            assert!(if complete { gone } else { gone || stray }, "{}", context());
        }
        // No look is asked for twice.
        Step::Look(Source::Volume) => panic!("{}", context()),
        Step::Look(Source::Record) => assert_eq!(known.record, Seen::Not, "{}", context()),
        Step::Look(Source::Attachments) => assert!(matches!(known.attachments, Seen::Not), "{}", context()),
        Step::Look(Source::Strays) => assert_eq!(known.strays, Seen::Not, "{}", context()),
        Step::Look(Source::Server) => assert_eq!(known.host, Seen::Not, "{}", context()),
        Step::Settle => assert!(!known.stuck, "{}", context()),
        Step::Elsewhere => assert!(!here && wish != Wish::Detach, "{}", context()),
        Step::Missing(_)
        | Step::Request
        | Step::Follow
        | Step::Pause
        | Step::Broken
        | Step::Obstructed(_)
        | Step::Refused => {}
    }
}
