// SPDX-License-Identifier: Apache-2.0
//! A simple HTTP client with a token.

use std::time::Duration;

use openstack_sim::{CloudState, ServerSpec, Sim, SimConfig, VolumeStatus};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

pub(crate) const NODE: &str = "7c0d4f5e-1b2a-4c3d-8e9f-0a1b2c3d4e5f";
pub(crate) const OTHER_NODE: &str = "8d1e5a6f-2c3b-4d4e-9fa0-1b2c3d4e5f60";
/// A latency longer than any test, for work that never ends.
pub(crate) const NEVER: Duration = Duration::from_hours(1);
/// Timeout of all waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A response with its complete body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn from_response(response: reqwest::Response) -> Self {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = response.text().await.expect("the answer has a body");
        let body = serde_json::from_str(&text).unwrap_or_default();
        Self {
            status,
            headers,
            body,
            text,
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("headers are text"))
            .unwrap_or_default()
    }

    /// Returns error name and message, for example `("itemNotFound", "Volume x could not be found.")`.
    pub(crate) fn fault(&self) -> (&str, &str) {
        let (name, fault) = self
            .body
            .as_object()
            .and_then(|body| body.iter().next())
            .expect("the answer is a fault");
        assert_eq!(fault["code"], self.status, "{}", self.text);
        (name, fault["message"].as_str().expect("a fault has a message"))
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }
}

/// A cloud and a client with a token.
pub(crate) struct Client {
    pub(crate) sim: Sim,
    pub(crate) http: reqwest::Client,
    pub(crate) token: String,
}

impl Client {
    /// Starts a cloud with two servers.
    pub(crate) async fn new(change: impl FnOnce(&mut SimConfig)) -> Self {
        let mut config = SimConfig {
            servers: vec![ServerSpec::new(NODE), ServerSpec::new(OTHER_NODE)],
            ..SimConfig::default()
        };
        change(&mut config);
        let sim = Sim::start(config).await.expect("the simulator starts");
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(PATIENCE)
            .build()
            .expect("a client is made");
        let mut client = Self {
            sim,
            http,
            token: String::new(),
        };
        client.login().await;
        client
    }

    pub(crate) async fn login(&mut self) {
        let access = self.sim.access().clone();
        self.login_as(&access.username, &access.password).await;
    }

    pub(crate) async fn login_as(&mut self, user: &str, password: &str) {
        let access = self.sim.access();
        let domain = json!({"name": access.domain_name});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": user, "domain": domain, "password": password}}},
            "scope": {"project": {"name": access.project_name, "domain": domain}},
        }});
        let answer = self.authenticate(&body).await.expect(201);
        answer.header("x-subject-token").clone_into(&mut self.token);
    }

    pub(crate) async fn authenticate(&self, body: &Value) -> Answer {
        let url = format!("{}/auth/tokens", self.sim.auth_url());
        Answer::from_response(self.http.post(url).json(body).send().await.expect("Keystone answers")).await
    }

    /// Sends a request with the token and, if `version` is set, a microversion such as `volume 3.60`.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        version: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer, reqwest::Error> {
        let mut request = self.http.request(method, format!("{}{path}", self.sim.base_url()));
        request = request.header("X-Auth-Token", &self.token);
        if let Some(version) = version {
            request = request.header("OpenStack-API-Version", version);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        Ok(Answer::from_response(request.send().await?).await)
    }

    pub(crate) fn volume_path(&self, path: &str) -> String {
        format!("/volume/v3/{}{path}", self.sim.access().project_id)
    }

    pub(crate) async fn cinder(
        &self,
        method: Method,
        path: &str,
        version: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let version = version.map(|version| format!("volume {version}"));
        let path = self.volume_path(path);
        self.send(method, &path, version.as_deref(), body.as_ref())
            .await
            .expect("Cinder answers")
    }

    pub(crate) async fn nova(&self, method: Method, path: &str, version: Option<&str>, body: Option<Value>) -> Answer {
        let version = version.map(|version| format!("compute {version}"));
        let path = format!("/compute/v2.1{path}");
        self.send(method, &path, version.as_deref(), body.as_ref())
            .await
            .expect("Nova answers")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.cinder(Method::GET, path, None, None).await
    }

    pub(crate) async fn create(&self, body: Value) -> Answer {
        self.cinder(Method::POST, "/volumes", None, Some(json!({"volume": body})))
            .await
    }

    /// Creates a volume of 1 GiB and waits until it is `available`.
    pub(crate) async fn volume(&self, name: &str) -> String {
        let answer = self.create(json!({"name": name, "size": 1})).await.expect(202);
        let id = answer.body["volume"]["id"]
            .as_str()
            .expect("a volume has an id")
            .to_owned();
        self.reaches(&id, VolumeStatus::Available).await;
        id
    }

    pub(crate) async fn attach(&self, server: &str, volume: &str) -> Answer {
        let body = json!({"volumeAttachment": {"volumeId": volume}});
        self.nova(
            Method::POST,
            &format!("/servers/{server}/os-volume_attachments"),
            None,
            Some(body),
        )
        .await
    }

    pub(crate) async fn detach(&self, server: &str, volume: &str) -> Answer {
        let path = format!("/servers/{server}/os-volume_attachments/{volume}");
        self.nova(Method::DELETE, &path, None, None).await
    }

    pub(crate) async fn attached(&self, server: &str, volume: &str) {
        self.attach(server, volume).await.expect(200);
        self.reaches(volume, VolumeStatus::InUse).await;
    }

    #[track_caller]
    pub(crate) fn reaches(&self, volume: &str, status: VolumeStatus) -> impl Future<Output = ()> {
        let is_so = move |state: &CloudState| state.volume(volume).is_some_and(|volume| volume.status == status);
        async move { assert!(self.sim.wait_until(PATIENCE, is_so).await, "{volume} is not {status}") }
    }

    pub(crate) async fn is_gone(&self, volume: &str) {
        assert!(
            self.sim
                .wait_until(PATIENCE, |state| state.volume(volume).is_none())
                .await,
            "{volume} is still there"
        );
    }

    pub(crate) async fn delete(&self, volume: &str) -> Answer {
        self.cinder(Method::DELETE, &format!("/volumes/{volume}"), None, None)
            .await
    }

    pub(crate) fn latency(&self, change: impl FnOnce(&mut openstack_sim::Latencies)) {
        let mut latencies = openstack_sim::Latencies::default();
        change(&mut latencies);
        self.sim.set_latencies(latencies);
    }
}

/// Status 200 as a number, for comparisons.
pub(crate) const OK: u16 = StatusCode::OK.as_u16();
