// SPDX-License-Identifier: Apache-2.0
//! Lookups of the driver's volumes.

use rstest::rstest;

use super::*;

#[tokio::test(start_paused = true)]
async fn volumes_are_requested_only_without_recorded_project() {
    let same = || mk_login("p", "one", None);
    let (_, requests) = judged(Some(mk_place("p", "one")), same(), &mk_project_change(&USED)).await;
    assert_eq!(
        requests,
        [LoginQueries {
            services: true,
            ..LoginQueries::default()
        }]
    );
    let (_, requests) = judged(None, same(), &mk_project_change(&USED)).await;
    assert_eq!(
        requests[1..],
        [LoginQueries {
            services: false,
            volumes: vec![VolumeId::new(VOLUME)],
            ..LoginQueries::default()
        }]
    );
}

#[tokio::test(start_paused = true)]
async fn all_volumes_are_listed_after_failed_lookups() {
    let usage = Fixed(LazyLock::new(|| Usage {
        volumes: Arc::new((0..10).map(|number| format!("volume-{number}")).collect()),
        ..USED.0.clone()
    }));
    for (existing, is_accepted) in [("volume-9", true), ("another", false)] {
        let none = mk_login("q", "one", Some(false));
        let keystone = Scripted::of([Ok(none.clone()), Ok(none)]);
        keystone.existing.lock().0 = vec![existing];
        let installed = mk_installed(None, mk_recorded(None));
        let decision = mk_login_check(&keystone)
            .check(
                "d",
                &mk_source(),
                mk_candidate("other"),
                installed,
                &mk_project_change(&usage),
                5 * MINUTE,
            )
            .await;
        assert_eq!(decision.refusal.is_none(), is_accepted);
    }
}

#[rstest]
#[case::has_a_volume(&[VOLUME], Some(Degraded::CloudInUse))]
#[case::has_none(&[], None)]
#[case::has_those_of_others(&["another"], None)]
#[tokio::test(start_paused = true)]
async fn cloud_with_volumes_is_retained(#[case] existing: &[&'static str], #[case] reason: Option<Degraded>) {
    let keystone = Scripted::default();
    keystone.existing.lock().0 = existing.to_vec();
    let login_check = mk_login_check(&keystone);
    let accepted = mk_candidate("own").expect("credentials").credentials;
    let project_change = mk_project_change(&USED);
    for _ in 0..3 {
        let refusal = login_check
            .refuse_removal("d", "west", &accepted, &USED.0, &project_change)
            .await;
        assert_eq!(refusal.as_ref().map(|refusal| refusal.reason), reason);
        if let Some(refusal) = refusal {
            let text = refusal.message;
            assert!(
                text.contains("west") && text.contains(VOLUME) && text.contains(MOVE_PROJECT),
                "{text}"
            );
        }
    }
    assert_eq!(keystone.existing.lock().1, 1, "the list is long");
    tokio::time::advance(LOOKUP_LIFETIME).await;
    login_check
        .refuse_removal("d", "west", &accepted, &USED.0, &project_change)
        .await;
    assert_eq!(keystone.existing.lock().1, 2);
}
