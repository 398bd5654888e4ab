// SPDX-License-Identifier: Apache-2.0
//! Tests of logins.

use std::time::Duration;

use csi_sources::Sources;
use jiff::{SignedDuration, Timestamp};
use openstack_sim::Identity;
use serde_json::{Value, json};

use crate::client::Client;

fn password(user: &Value, scope: &Value) -> Value {
    json!({"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}})
}

fn credential(credential: &Value) -> Value {
    json!({"auth": {"identity": {"methods": ["application_credential"], "application_credential": credential}}})
}

fn project() -> Value {
    json!({"project": {"name": "cluster", "domain": {"id": "default"}}})
}

#[tokio::test]
async fn all_login_methods_return_project_token() {
    let client = Client::new(|_| {}).await;
    let identity = Identity::default();
    let ways = [
        password(
            &json!({"name": "csi", "domain": {"name": "Default"}, "password": identity.password}),
            &project(),
        ),
        password(
            &json!({"id": identity.user_id, "password": identity.password}),
            &json!({"project": {"id": identity.project_id}}),
        ),
        credential(
            &json!({"id": identity.application_credential_id, "secret": identity.application_credential_secret}),
        ),
        credential(&json!({
            "name": identity.application_credential_name,
            "secret": identity.application_credential_secret,
            "user": {"name": "csi", "domain": {"name": "Default"}},
        })),
        json!({"auth": {"identity": {"methods": ["token"], "token": {"id": client.token}}, "scope": project()}}),
    ];
    for way in ways {
        let answer = client.authenticate(&way).await.expect(201);
        assert!(!answer.header("x-subject-token").is_empty());
        assert!(answer.header("x-openstack-request-id").starts_with("req-"));
        let token = &answer.body["token"];
        assert_eq!(token["project"]["id"], identity.project_id);
        assert_eq!(token["user"]["name"], "csi");
        let types: Vec<_> = token["catalog"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["type"].clone())
            .collect();
        assert_eq!(types, ["identity", "block-storage", "compute"]);
        let expires = token["expires_at"].as_str().unwrap();
        assert!(
            expires.ends_with('Z') && expires.len() == "2026-01-01T00:00:00.000000Z".len(),
            "{expires}"
        );
    }
}

#[tokio::test]
async fn login_errors_match_keystone() {
    let client = Client::new(|_| {}).await;
    let identity = Identity::default();
    let user = |password: &str| json!({"name": "csi", "domain": {"name": "Default"}, "password": password});
    let elsewhere = json!({"name": "csi", "domain": {"name": "Elsewhere"}, "password": identity.password});
    let unauthorized = "The request you have made requires authentication.";
    let mut scoped_credential = credential(
        &json!({"id": identity.application_credential_id, "secret": identity.application_credential_secret}),
    );
    scoped_credential["auth"]["scope"] = project();
    for (body, status, message) in [
        (password(&user("wrong"), &project()), 401, unauthorized),
        (password(&elsewhere, &project()), 401, unauthorized),
        (
            password(&user(&identity.password), &json!({"project": {"id": "no-such"}})),
            401,
            unauthorized,
        ),
        (
            credential(&json!({"id": identity.application_credential_id, "secret": "wrong"})),
            401,
            unauthorized,
        ),
        (
            credential(&json!({"id": "none", "secret": "x"})),
            404,
            "Could not find Application Credential: none.",
        ),
        (
            scoped_credential,
            401,
            "Application credentials cannot request a scope.",
        ),
    ] {
        let answer = client.authenticate(&body).await.expect(status);
        assert_eq!(answer.fault(), ("error", message));
    }
}

#[tokio::test]
async fn services_refuse_unscoped_token() {
    let mut client = Client::new(|_| {}).await;
    let user = json!({"name": "csi", "domain": {"name": "Default"}, "password": "secret-of-csi"});
    let answer = client.authenticate(&password(&user, &Value::Null)).await.expect(201);
    assert!(answer.body["token"].get("catalog").is_none());
    answer.header("x-subject-token").clone_into(&mut client.token);
    client.get("/volumes").await.expect(401);
}

#[tokio::test]
async fn expired_and_revoked_tokens_are_refused() {
    let mut client = Client::new(|_| {}).await;
    client.get("/volumes").await.expect(200);

    client.sim.revoke_tokens();
    let refused = client.get("/volumes").await.expect(401);
    assert!(refused.header("www-authenticate").starts_with("Keystone uri="));
    client.login().await;
    client.get("/volumes").await.expect(200);

    client.sim.set_token_lifetime(Duration::ZERO);
    client.login().await;
    client.get("/volumes").await.expect(401);
}

#[tokio::test]
async fn owner_reads_and_revokes_token() {
    let client = Client::new(|_| {}).await;
    let url = format!("{}/auth/tokens", client.sim.auth_url());
    let show = || {
        client
            .http
            .get(&url)
            .header("x-auth-token", &client.token)
            .header("x-subject-token", &client.token)
    };
    let shown: Value = show().send().await.unwrap().json().await.unwrap();
    assert_eq!(shown["token"]["methods"], json!(["password"]));
    let revoke = client
        .http
        .delete(&url)
        .header("x-auth-token", &client.token)
        .header("x-subject-token", &client.token);
    assert_eq!(revoke.send().await.unwrap().status(), 204);
    assert_eq!(show().send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn credential_expiry_limits_tokens() {
    let soon = Sources::system().now() + SignedDuration::from_mins(5);
    let secret = Identity::default().application_credential_secret;
    let wish = credential(&json!({"id": Identity::default().application_credential_id, "secret": secret}));
    let client = Client::new(|config| config.identity.application_credential_expires_at = Some(soon)).await;
    let issued = client.authenticate(&wish).await.expect(201);
    let until: Timestamp = issued.body["token"]["expires_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(until.as_second(), soon.as_second());
    let past = Sources::system().now() - SignedDuration::from_secs(1);
    let client = Client::new(|config| config.identity.application_credential_expires_at = Some(past)).await;
    client.authenticate(&wish).await.expect(401);
}

#[tokio::test]
async fn token_from_token_expires_no_later() {
    let client = Client::new(|_| {}).await;
    let shown = |answer: &crate::client::Answer| answer.body["token"]["expires_at"].clone();
    let first = client
        .authenticate(&password(
            &json!({"id": Identity::default().user_id, "password": Identity::default().password}),
            &Value::Null,
        ))
        .await
        .expect(201);
    let token = json!({"id": first.header("x-subject-token")});
    let wish = json!({"auth": {"identity": {"methods": ["token"], "token": token}, "scope": project()}});
    client.sim.set_token_lifetime(Duration::from_hours(9));
    let second = client.authenticate(&wish).await.expect(201);
    assert_eq!(shown(&second), shown(&first));
}

#[tokio::test]
async fn trust_lets_only_trustee_act_as_trustor() {
    let client = Client::new(|_| {}).await;
    let identity = Identity::default();
    let trust = json!({"OS-TRUST:trust": {"id": identity.trust_id}});
    let trustee = json!({"id": identity.admin_id, "password": identity.admin_password});
    let issued = client.authenticate(&password(&trustee, &trust)).await.expect(201);
    let token = &issued.body["token"];
    assert_eq!(token["user"]["id"], identity.user_id.as_str());
    assert_eq!(token["OS-TRUST:trust"]["id"], identity.trust_id.as_str());
    assert_eq!(token["roles"].as_array().unwrap().len(), 2, "the trustor's roles alone");
    let trustor = json!({"id": identity.user_id, "password": identity.password});
    client.authenticate(&password(&trustor, &trust)).await.expect(403);
    let unknown = json!({"OS-TRUST:trust": {"id": "none"}});
    client.authenticate(&password(&trustee, &unknown)).await.expect(404);
    let subject = json!({"id": issued.header("x-subject-token")});
    let again = json!({"auth": {"identity": {"methods": ["token"], "token": subject}, "scope": project()}});
    client.authenticate(&again).await.expect(403);
}

#[tokio::test]
async fn other_regions_are_listed_first_and_fail() {
    let client = Client::new(|config| config.other_regions = vec!["RegionZero".to_owned()]).await;
    let identity = Identity::default();
    let user = json!({"id": identity.user_id, "password": identity.password});
    let issued = client.authenticate(&password(&user, &project())).await.expect(201);
    let endpoints = issued.body["token"]["catalog"][1]["endpoints"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(endpoints.len(), 6);
    assert_eq!(
        (&endpoints[0]["region"], &endpoints[3]["region"]),
        (&json!("RegionZero"), &json!("RegionOne"))
    );
    let url = endpoints[0]["url"].as_str().unwrap();
    assert_eq!(client.http.get(url).send().await.unwrap().status(), 503);
}
