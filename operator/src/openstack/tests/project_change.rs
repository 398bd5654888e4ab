// SPDX-License-Identifier: Apache-2.0
//! Credentials of another project or region.

use rstest::rstest;

use super::*;

#[rstest]
#[case::the_same(Some(mk_place("p", "one")), mk_login("p", "one", None), None)]
#[case::another_project(
    Some(mk_place("p", "one")),
    mk_login("q", "one", None),
    Some(Refusal::ProjectChanged)
)]
#[case::another_region(
    Some(mk_place("p", "one")),
    mk_login("p", "two", None),
    Some(Refusal::ProjectChanged)
)]
#[case::never_recorded_and_a_volume_is_there(None, mk_login("q", "one", Some(true)), None)]
#[case::never_recorded_and_no_volume_is_there(None, mk_login("q", "one", Some(false)), Some(Refusal::ProjectChanged))]
#[case::never_recorded_and_lookup_without_answer(None, mk_login("q", "one", None), Some(Refusal::ProjectChanged))]
#[tokio::test(start_paused = true)]
async fn rejects_credentials_of_other_project_with_volumes(
    #[case] recorded: Option<Place>,
    #[case] tried: LoginFacts,
    #[case] refused: Option<Refusal>,
) {
    let (decision, _) = judged(recorded.clone(), tried.clone(), &mk_project_change(&USED)).await;
    assert_eq!(decision.refusal.as_ref().map(|refusal| refusal.reason), refused);
    let used = decision.in_use.expect("something is always in use");
    let is_own = used
        .config()
        .is_some_and(|config| config.to_cloud_conf(None).contains("own"));
    assert_eq!(is_own, refused.is_some());
    if let Some(refusal) = decision.refusal {
        let text = refusal.message;
        assert!(
            text.contains(MOVE_PROJECT) && text.contains("the-uid") && text.contains(&tried.place.project),
            "{text}"
        );
    }

    let confirmed = ProjectChangeCheck {
        may_move: true,
        ..mk_project_change(&USED)
    };
    for project_change in [mk_project_change(&FREE), confirmed] {
        let (decision, _) = judged(recorded.clone(), tried.clone(), &project_change).await;
        let used = decision.in_use.expect("accepted");
        assert_eq!((decision.refusal, used.place()), (None, Some(&tried.place)));
    }
}

#[rstest]
#[case::another_project_beside_snapshot(Some("p"), &SNAPSHOT, false)]
#[case::another_project_beside_unknown_usage(Some("p"), &UNKNOWN, false)]
#[case::lost_record_beside_snapshot(None, &SNAPSHOT, false)]
#[case::lost_record_beside_unknown_usage(None, &UNKNOWN, false)]
#[case::lost_record_of_unused_driver(None, &FREE, true)]
#[tokio::test(start_paused = true)]
async fn unknown_usage_or_project_is_rejected(
    #[case] recorded: Option<&str>,
    #[case] usage: &Fixed,
    #[case] is_accepted: bool,
) {
    let recorded = recorded.map(|project| mk_place(project, "one"));
    let tried = mk_login("q", "one", Some(true));
    let (decision, requests) = judged(recorded, tried, &mk_project_change(usage)).await;
    assert_eq!(decision.refusal.is_none(), is_accepted, "{:?}", decision.refusal);
    assert_eq!(requests.len(), 1, "there is no volume to look up");
}

#[tokio::test(start_paused = true)]
async fn unknown_region_is_confirmed_by_volumes() {
    let recorded = Place {
        project: "p".to_owned(),
        region: None,
    };
    for (knows, is_accepted) in [(true, true), (false, false)] {
        let tried = mk_login("p", "one", Some(knows));
        let (decision, _) = judged(Some(recorded.clone()), tried, &mk_project_change(&USED)).await;
        assert_eq!(decision.refusal.is_none(), is_accepted);
    }
}

#[tokio::test(start_paused = true)]
async fn cached_trial_does_not_admit_after_lost_record() {
    let other = mk_login("q", "one", None);
    let keystone = Scripted::of([Ok(other.clone()), Ok(mk_login("q", "one", Some(false)))]);
    let login_check = mk_login_check(&keystone);
    let project_change = mk_project_change(&USED);
    for place in [Some(mk_place("p", "one")), None, None] {
        let installed = mk_installed(None, mk_recorded(place));
        let decision = login_check
            .check(
                "d",
                &mk_source(),
                mk_candidate("other"),
                installed,
                &project_change,
                5 * MINUTE,
            )
            .await;
        assert_eq!(
            decision.refusal.map(|refusal| refusal.reason),
            Some(Refusal::ProjectChanged)
        );
    }
    assert_eq!(keystone.logins(), 2, "the lookup that found nothing is used again");
}

#[tokio::test(start_paused = true)]
async fn present_credentials_are_checked_and_recorded() {
    let keystone = Scripted::of([Ok(mk_login("p", "renamed", None))]);
    let own = mk_candidate("own").expect("credentials").credentials;
    let login_check = mk_login_check(&keystone);
    let own = own.at(mk_place("p", "one"));
    let decision = login_check
        .check(
            "d",
            &mk_source(),
            mk_candidate("own"),
            mk_installed(Some(own), mk_recorded(Some(mk_place("p", "one")))),
            &mk_project_change(&USED),
            5 * MINUTE,
        )
        .await;
    assert_eq!(
        decision.refusal, None,
        "a region that got another name does not lock the driver out"
    );
    assert_eq!(decision.in_use.expect("its own").place(), Some(&mk_place("p", "one")));
    assert_eq!(
        *keystone.requests.lock(),
        [LoginQueries {
            services: true,
            ..LoginQueries::default()
        }]
    );
}
