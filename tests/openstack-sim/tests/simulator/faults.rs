// SPDX-License-Identifier: Apache-2.0
//! Tests of fault rules and of the request log.

use std::time::Duration;

use openstack_sim::{Effect, Fault, Latencies, VolumeStatus, When};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, NEVER, PATIENCE};

#[tokio::test]
async fn rule_affects_configured_number_of_requests() {
    let client = Client::new(|_| {}).await;
    let busy = Effect::status(503).retry_after(7).message("busy");
    client
        .sim
        .fault(Fault::on("list_volumes").skip(1).times(2).effect(busy))
        .unwrap();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(client.get("/volumes").await.status);
    }
    assert_eq!(statuses, [200, 503, 503, 200]);
}

#[tokio::test]
async fn faults_use_format_of_their_service() {
    let client = Client::new(|_| {}).await;
    for (status, name) in [
        (503, "serviceUnavailable"),
        (429, "overLimit"),
        (500, "computeFault"),
        (403, "forbidden"),
    ] {
        client
            .sim
            .fault(
                Fault::on("list_volumes")
                    .times(1)
                    .effect(Effect::status(status).retry_after(3)),
            )
            .unwrap();
        let answer = client.get("/volumes").await.expect(status);
        assert_eq!(answer.fault().0, name);
        assert_eq!(answer.header("retry-after"), "3");
        assert!(answer.header("x-openstack-request-id").starts_with("req-"));
    }
    client
        .sim
        .fault(Fault::on("issue_token").times(1).effect(Effect::status(500)))
        .unwrap();
    assert_eq!(client.authenticate(&json!({})).await.expect(500).fault().0, "error");
    client
        .sim
        .fault(Fault::on("list_volumes").times(1).effect(Effect::status(502)))
        .unwrap();
    let proxy = client.get("/volumes").await.expect(502);
    assert!(
        proxy.text.starts_with("<html>") && proxy.header("content-type") == "text/html",
        "{}",
        proxy.text
    );
}

#[tokio::test]
async fn fault_timing_determines_effect() {
    let client = Client::new(|_| {}).await;
    let wish = || json!({"size": 1});
    client
        .sim
        .fault(Fault::on("create_volume").times(1).effect(Effect::status(500)))
        .unwrap();
    client.create(wish()).await.expect(500);
    assert_eq!(client.sim.state().volumes.len(), 0);
    client
        .sim
        .fault(Fault::on("create_volume").times(1).effect(Effect::status_after(500)))
        .unwrap();
    client.create(wish()).await.expect(500);
    assert_eq!(client.sim.state().volumes.len(), 1);

    for (when, volumes) in [(When::Before, 1), (When::After, 2)] {
        client
            .sim
            .fault(Fault::on("create_volume").times(1).effect(Effect::cut(when)))
            .unwrap();
        let body = json!({"volume": wish()});
        let lost = client
            .send(Method::POST, &client.volume_path("/volumes"), None, Some(&body))
            .await;
        assert!(lost.is_err(), "there is no answer");
        assert_eq!(client.sim.state().volumes.len(), volumes);
    }
    assert_eq!(client.sim.log().iter().filter(|entry| entry.status == 0).count(), 2);
}

#[tokio::test]
async fn path_rule_matches_regular_expression() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    client
        .sim
        .fault(Fault::on_path(Some("get"), "/volumes/[0-9a-f-]{36}$").effect(Effect::status(401)))
        .unwrap();
    let refused = client.get(&format!("/volumes/{id}")).await.expect(401);
    assert!(
        refused.header("www-authenticate").starts_with("Keystone uri="),
        "as the services' middleware does"
    );
    client.get("/volumes").await.expect(200);
    client.sim.clear_faults();
    client.get(&format!("/volumes/{id}")).await.expect(200);
    assert!(
        client.sim.fault(Fault::on_path(None, "(")).is_err(),
        "a bad expression is refused"
    );
}

#[tokio::test]
async fn delay_defers_response() {
    let client = Client::new(|_| {}).await;
    let wait = Duration::from_millis(60);
    client
        .sim
        .fault(Fault::on("list_volumes").times(1).effect(Effect::delay(wait)))
        .unwrap();
    let started = Instant::now();
    client.get("/volumes").await.expect(200);
    assert!(started.elapsed() >= wait);
    assert!(client.sim.log().last().unwrap().elapsed_ms >= 60);
}

#[tokio::test]
async fn delayed_request_is_listed_until_disconnect() {
    let client = Client::new(|_| {}).await;
    let for_ever = Effect::Delay {
        millis: 3_600_000,
        when: When::After,
    };
    client
        .sim
        .fault(Fault::on("create_volume").times(1).effect(for_ever))
        .unwrap();
    let found = async {
        loop {
            if let [request] = client.sim.held().as_slice() {
                return request.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    let held = tokio::select! {
        answer = client.create(json!({"size": 1})) => panic!("{}", answer.text),
        found = found => found,
    };
    assert_eq!(
        (held.method.as_str(), held.operation, held.when),
        ("POST", "create_volume", When::After)
    );
    assert!(held.path.ends_with("/volumes"), "{}", held.path);
    assert_eq!(client.sim.state().volumes.len(), 1);
    let gone = async {
        while !client.sim.held().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("nobody waits for the answer any more");
}

#[tokio::test]
async fn changed_latency_affects_work_in_progress() {
    let client = Client::new(|config| config.latencies.create = NEVER).await;
    client.create(json!({"size": 1})).await.expect(202);
    assert_eq!(client.sim.state().volumes[0].status, VolumeStatus::Creating);
    client.sim.set_latencies(Latencies::default());
    assert!(client.sim.settled(PATIENCE).await);
    assert_eq!(client.sim.state().volumes[0].status, VolumeStatus::Available);
}

#[tokio::test]
async fn log_records_operation_of_every_request() {
    let client = Client::new(|_| {}).await;
    client.sim.clear_log();
    let answer = client
        .cinder(Method::GET, "/volumes/detail?name=x", Some("3.34"), None)
        .await
        .expect(200);
    client.nova(Method::GET, "/nonsense", None, None).await.expect(404);
    let log = client.sim.log();
    assert_eq!(log.len(), 2);
    assert_eq!(
        (log[0].service, log[0].operation, log[0].status),
        ("cinder", "list_volumes_detail", 200)
    );
    assert_eq!(log[0].path, client.volume_path("/volumes/detail?name=x"));
    assert_eq!(log[0].micro_version.as_deref(), Some("3.34"));
    assert_eq!(log[0].request_id, answer.header("x-openstack-request-id"));
    assert_eq!(
        (log[1].service, log[1].operation, log[1].status),
        ("nova", "unknown", 404)
    );
    assert_eq!(client.sim.count("list_volumes_detail"), 1);
}

#[tokio::test]
async fn admin_interface_matches_library() {
    let client = Client::new(|_| {}).await;
    let id = client.volume("data").await;
    let sim = async |method: Method, path: &str, body: Option<Value>| {
        client
            .send(method, &format!("/_sim{path}"), None, body.as_ref())
            .await
            .expect("the simulator answers")
    };
    let log = sim(Method::GET, "/log", None).await.expect(200);
    let last = log.body.as_array().unwrap().last().unwrap();
    for field in [
        "at",
        "service",
        "method",
        "path",
        "operation",
        "status",
        "request_id",
        "micro_version",
    ] {
        assert!(last.get(field).is_some(), "the log has {field}");
    }
    sim(Method::DELETE, "/log", None).await.expect(204);
    assert_eq!(client.sim.log().len(), 0);

    let rule = json!({"operation": "get_volume", "times": 1, "effect": {"status": {"status": 503, "retry_after": 1}}});
    sim(Method::POST, "/faults", Some(rule)).await.expect(204);
    client.get(&format!("/volumes/{id}")).await.expect(503);
    let cut = json!({"operation": "get_volume", "effect": {"cut": {"when": "after"}}});
    sim(Method::POST, "/faults", Some(cut)).await.expect(204);
    sim(Method::DELETE, "/faults", None).await.expect(204);
    client.get(&format!("/volumes/{id}")).await.expect(200);
    sim(
        Method::POST,
        "/faults",
        Some(json!({"operation": "x", "effect": {"nonsense": {}}})),
    )
    .await
    .expect(400);

    sim(Method::POST, "/latency", Some(json!({"delete": "1h", "attach": 5})))
        .await
        .expect(204);
    assert_eq!(sim(Method::GET, "/latency", None).await.body["delete"], 3_600_000);
    sim(Method::POST, "/latency", Some(json!({"nonsense": "1s"})))
        .await
        .expect(400);
    client.delete(&id).await.expect(202);
    let state = sim(Method::GET, "/state", None).await.expect(200);
    assert_eq!(state.body["volumes"][0]["status"], "deleting");
    assert_eq!(state.body["loop_devices"], json!([]));
    sim(
        Method::POST,
        &format!("/volumes/{id}/status"),
        Some(json!({"status": "error"})),
    )
    .await
    .expect(204);
    assert_eq!(client.sim.state().volumes[0].status, VolumeStatus::Error);

    sim(Method::POST, "/tokens/revoke", None).await.expect(204);
    client.get("/volumes").await.expect(401);
}

#[tokio::test]
async fn connection_is_reset_before_or_after_effect() {
    let client = Client::new(|_| {}).await;
    for (when, volumes) in [(When::Before, 0), (When::After, 1)] {
        let reset = Fault::on("create_volume").times(1).effect(Effect::reset(when));
        client.sim.fault(reset).unwrap();
        let body = json!({"volume": {"size": 1}});
        let path = client.volume_path("/volumes");
        let error = client.send(Method::POST, &path, None, Some(&body)).await.unwrap_err();
        assert!(causes(&error).contains("reset"), "{}", causes(&error));
        assert_eq!(client.sim.state().volumes.len(), volumes);
    }
}

#[tokio::test]
async fn silence_lasts_until_client_disconnects() {
    let client = Client::new(|_| {}).await;
    let silence = Fault::on("create_volume").times(1).effect(Effect::silence(When::After));
    client.sim.fault(silence).unwrap();
    let url = format!("{}{}", client.sim.base_url(), client.volume_path("/volumes"));
    let request = client.http.post(url).header("X-Auth-Token", &client.token);
    let request = request
        .timeout(Duration::from_millis(100))
        .json(&json!({"volume": {"size": 1}}));
    assert!(request.send().await.unwrap_err().is_timeout());
    assert_eq!(client.sim.state().volumes.len(), 1);
}

#[tokio::test]
async fn responses_are_truncated_or_html() {
    let client = Client::new(|_| {}).await;
    client
        .sim
        .fault(Fault::on("list_volumes").times(1).effect(Effect::Truncated))
        .unwrap();
    let cut = client.get("/volumes").await.expect(200);
    assert!(cut.body.is_null() && cut.text.starts_with('{'), "{}", cut.text);
    for status in [200, 503] {
        let page = Fault::on("list_volumes").times(1).effect(Effect::html(status));
        client.sim.fault(page).unwrap();
        let page = client.get("/volumes").await.expect(status);
        assert_eq!(page.header("content-type"), "text/html");
        assert_eq!(page.header("x-openstack-request-id"), "", "a gateway knows none");
    }
}

#[tokio::test]
async fn policy_quota_and_rate_errors_differ() {
    let client = Client::new(|_| {}).await;
    for (effect, status, name, text) in [
        (
            Effect::policy("volume:get_all"),
            403,
            "forbidden",
            "Policy doesn't allow volume:get_all to be performed.",
        ),
        (
            Effect::quota(),
            413,
            "overLimit",
            "VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota 'volumes'.",
        ),
        (
            Effect::over_limit(4),
            413,
            "overLimit",
            "This request was rate-limited.",
        ),
        (
            Effect::status(429).retry_after(4),
            429,
            "overLimit",
            "This request was rate-limited.",
        ),
    ] {
        client
            .sim
            .fault(Fault::on("list_volumes").times(1).effect(effect))
            .unwrap();
        let answer = client.get("/volumes").await.expect(status);
        assert_eq!(answer.fault(), (name, text));
        let retry = if status == 403 {
            ""
        } else if name == "overLimit" && text.starts_with("Vol") {
            "0"
        } else {
            "4"
        };
        assert_eq!(answer.header("retry-after"), retry);
    }
}

/// Formats an error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}
