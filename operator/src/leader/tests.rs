// SPDX-License-Identifier: Apache-2.0

use csi_sources::Sources;
use rstest::rstest;

use super::*;

fn lease(holder: &str, seconds: i32) -> Lease {
    Lease {
        metadata: ObjectMeta::default(),
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            ..LeaseSpec::default()
        }),
    }
}

#[rstest]
#[case::there_is_none(None, 0, LeaseDecision::Create)]
#[case::it_is_mine(Some(lease("me", 30)), 0, LeaseDecision::Renew)]
#[case::it_is_mine_however_old(Some(lease("me", 30)), 999, LeaseDecision::Renew)]
#[case::somebody_holds_it(Some(lease("you", 30)), 30, LeaseDecision::Wait)]
#[case::it_was_seen_unchanged_too_long(Some(lease("you", 30)), 31, LeaseDecision::TakeOver)]
#[case::it_was_released(Some(lease("", 1)), 0, LeaseDecision::TakeOver)]
#[case::it_has_no_spec(Some(Lease::default()), 0, LeaseDecision::TakeOver)]
#[case::its_duration_is_absurd(Some(lease("you", i32::MAX)), 301, LeaseDecision::TakeOver)]
#[case::its_duration_is_long(Some(lease("you", i32::MAX)), 300, LeaseDecision::Wait)]
#[case::its_duration_is_missing(Some(lease("you", -1)), 30, LeaseDecision::Wait)]
fn lease_is_acquired_when_free_or_expired(
    #[case] current: Option<Lease>,
    #[case] unchanged_secs: u64,
    #[case] expected: LeaseDecision,
) {
    let settings = LeaseSettings::new("ns", "lease", "me");
    assert_eq!(
        decide(
            current.as_ref(),
            &settings,
            Duration::from_secs(unchanged_secs),
            Duration::ZERO
        ),
        expected
    );
}

mod with_an_api {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    type Handle = tower_test::mock::Handle<Request<Body>, Response<Body>>;

    fn elector() -> (Elector, Handle) {
        let (service, handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let settings = LeaseSettings::new("ns", "lease", "me");
        (
            Elector::new(Client::new(service, "ns"), settings, Sources::system()),
            handle,
        )
    }

    async fn answer(handle: &mut Handle, method: &str, code: u16, body: Value) -> Value {
        let (request, responder) = handle.next_request().await.expect("a request");
        assert_eq!(request.method().as_str(), method);
        let sent = request.into_body().collect_bytes().await.expect("a body");
        let response = Response::builder()
            .status(code)
            .body(Body::from(body.to_string().into_bytes()));
        responder.send_response(response.expect("a response"));
        serde_json::from_slice(&sent).unwrap_or_default()
    }

    fn held(holder: &str, version: &str) -> Value {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "lease", "namespace": "ns", "resourceVersion": version},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 30, "leaseTransitions": 4}})
    }

    fn failure(code: u16, reason: &str) -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": reason})
    }

    #[tokio::test(start_paused = true)]
    async fn expired_lease_is_taken_with_observed_version() {
        let (elector, mut api) = elector();
        let stop = CancellationToken::new();
        let candidate = tokio::spawn(async move { elector.acquire(&stop).await });
        for _ in 0..4 {
            answer(&mut api, "GET", 200, held("you", "7")).await;
        }
        // The Lease has a duration of 30 s and was observed unchanged for 40 s: the candidate takes it, with the
        // version that was read.
        answer(&mut api, "GET", 200, held("you", "7")).await;
        let sent = answer(&mut api, "PUT", 200, held("me", "8")).await;
        assert_eq!(sent["metadata"]["resourceVersion"], "7");
        assert_eq!(sent["spec"]["holderIdentity"], "me");
        assert_eq!(sent["spec"]["leaseTransitions"], 5);
        assert!(candidate.await.expect("no panic").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn holder_stops_after_write_of_other_candidate() {
        let (elector, mut api) = elector();
        let stop = CancellationToken::new();
        let holder = tokio::spawn(async move {
            let mut leader = elector.acquire(&stop).await.expect("the lease");
            leader.renew_until_stopped(&stop).await
        });
        answer(&mut api, "GET", 404, failure(404, "NotFound")).await;
        answer(&mut api, "POST", 201, held("me", "1")).await;
        answer(&mut api, "PUT", 409, failure(409, "Conflict")).await;
        answer(&mut api, "GET", 200, held("you", "2")).await;
        let lost = holder.await.expect("no panic").expect_err("lost");
        assert!(matches!(lost, LeadershipLost::Taken { holder } if holder == "you"));
    }

    #[tokio::test(start_paused = true)]
    async fn holder_continues_after_label_change() {
        let (elector, mut api) = elector();
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let holder = tokio::spawn(async move {
            let mut leader = elector.acquire(&stop).await.expect("the lease");
            leader.renew_until_stopped(&stop).await
        });
        answer(&mut api, "GET", 404, failure(404, "NotFound")).await;
        answer(&mut api, "POST", 201, held("me", "1")).await;
        answer(&mut api, "PUT", 409, failure(409, "Conflict")).await;
        answer(&mut api, "GET", 200, held("me", "2")).await;
        let sent = answer(&mut api, "PUT", 200, held("me", "3")).await;
        assert_eq!(sent["metadata"]["resourceVersion"], "2");
        stopping.cancel();
        assert_eq!(holder.await.expect("no panic"), Ok(()));
    }

    #[rstest]
    #[case::that_refuses(true)]
    #[case::that_hangs(false)]
    #[tokio::test(start_paused = true)]
    async fn holder_survives_short_outage(#[case] refuses: bool) {
        const AWAY: Duration = Duration::from_secs(28);
        let (elector, mut api) = elector();
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let holder = tokio::spawn(async move {
            let mut leader = elector.acquire(&stop).await.expect("the lease");
            leader.renew_until_stopped(&stop).await
        });
        answer(&mut api, "GET", 404, failure(404, "NotFound")).await;
        answer(&mut api, "POST", 201, held("me", "1")).await;
        // The outage starts just before the next renewal.
        let mut unanswered = Vec::new();
        let mut begun = None;
        let (back, responder) = loop {
            let (request, responder) = api.next_request().await.expect("it is tried again");
            let since = *begun.get_or_insert_with(Instant::now);
            if since.elapsed() >= AWAY {
                break (request, responder);
            }
            if refuses {
                responder.send_error(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
            } else {
                unanswered.push(responder);
            }
        };
        assert_eq!(back.method(), "GET");
        let body = Body::from(held("me", "1").to_string().into_bytes());
        responder.send_response(Response::builder().status(200).body(body).expect("a response"));
        answer(&mut api, "PUT", 200, held("me", "2")).await;
        stopping.cancel();
        assert_eq!(holder.await.expect("no panic"), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn holder_stops_before_expiry_during_outage() {
        let (elector, mut api) = elector();
        let stop = CancellationToken::new();
        let (duration, begun) = (elector.settings.duration, Instant::now());
        let holder = tokio::spawn(async move {
            let mut leader = elector.acquire(&stop).await.expect("the lease");
            leader.renew_until_stopped(&stop).await
        });
        answer(&mut api, "GET", 404, failure(404, "NotFound")).await;
        answer(&mut api, "POST", 201, held("me", "1")).await;
        // The API server does not respond from here on.
        let lost = holder.await.expect("no panic").expect_err("lost");
        assert!(matches!(lost, LeadershipLost::NotRenewed { .. }), "{lost}");
        assert!(begun.elapsed() < duration, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn validity_starts_with_request() {
        let (elector, mut api) = elector();
        let candidate = tokio::spawn(async move { elector.acquire(&CancellationToken::new()).await });
        answer(&mut api, "GET", 404, failure(404, "NotFound")).await;
        let slow = Duration::from_secs(8);
        tokio::time::advance(slow).await;
        answer(&mut api, "POST", 201, held("me", "1")).await;
        let leader = candidate.await.expect("no panic").expect("the lease");
        assert!(leader.renewed.borrow().elapsed() >= slow, "{:?}", leader.renewed);
    }
}
