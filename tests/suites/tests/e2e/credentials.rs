//! Credentials that are replaced, and a Keystone whose certificate an authority of its own has signed.

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use suites::cluster::credentials::{ROTATION, cloud, controllers, failed_calls};
use suites::cluster::{Login, NAMESPACE, OpenStack, SECRET, SECURE_KEYSTONE, World};

const AUTHORITY: &str = "keystone-authority";

pub(crate) async fn a_credential_is_replaced_and_the_old_one_revoked(world: &World) -> Result<()> {
    let member = Member::log_in(world.openstack()?).await?;
    world.start_pod("writer", None).await?;
    world.ready("writer").await?;
    let (pods, failed) = (controllers(world).await?, failed_calls(world).await?);
    let first = member.credential(world, "first").await?;
    take_over(world, &first).await?;
    let second = member.credential(world, "second").await?;
    take_over(world, &second).await?;
    member.revoke(&first).await?;

    world.start_pod("later", None).await?;
    world.ready("later").await?;
    ensure!(
        controllers(world).await? == pods,
        "a pod of the controller was restarted"
    );
    ensure!(failed_calls(world).await? == failed, "a call failed");
    world.delete_all().await?;
    take_over(world, &world.login()?).await?;
    member.revoke(&second).await?;
    world.healthy().await
}

/// Writes a Secret and waits until the driver uses it.
async fn take_over(world: &World, login: &Login) -> Result<()> {
    let before = cloud(world, ROTATION, |cloud| cloud["loaded"] == true).await?;
    world.secret("clouds.yaml", &login.clouds_yaml()).await?;
    cloud(world, ROTATION, |cloud| {
        cloud["secretHash"] != before["secretHash"] && cloud["loaded"] == true
    })
    .await
    .map(drop)
}

pub(crate) async fn keystone_behind_tls_is_trusted_by_its_own_authority(world: &World) -> Result<()> {
    let openstack = world.openstack()?;
    let login = Login {
        auth_url: openstack.secure_auth_url(),
        ..world.login()?
    };
    let known = cloud(world, ROTATION, |cloud| cloud["loaded"] == true).await?["secretHash"].clone();
    // Nobody on the pods' side knows the authority: what runs goes on with what it has.
    world.secret("clouds.yaml", &login.clouds_yaml()).await?;
    let refused =
        |found: &Value| found["reason"] == "CloudUnreachable" && found["message"].to_string().contains("CA bundle");
    world.condition("Degraded", "True", refused).await?;
    world.condition("Available", "True", |_| true).await?;

    let authority = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": AUTHORITY, "namespace": NAMESPACE},
        "data": {"ca.crt": openstack.authority()},
    });
    world.cluster.apply(&authority.to_string()).await?;
    let reference = json!({"kind": "ConfigMap", "name": AUTHORITY, "key": "ca.crt"});
    let secret = json!({"name": SECRET, "key": "clouds.yaml"});
    let entry =
        json!({"name": "default", "credentialsSecretRef": secret, "cloudName": "openstack", "caBundleRef": reference});
    world.patch_spec(&json!({ "clouds": [entry] })).await?;
    world.healthy().await?;
    cloud(world, ROTATION, |cloud| {
        cloud["secretHash"] != known && cloud["loaded"] == true
    })
    .await?;
    world.start_pod("trusting", None).await?;
    world.ready("trusting").await?;
    world.delete_pod_and_volume("trusting").await?;
    ensure!(logins(openstack) > 0, "the driver has not logged in with TLS");

    world.ask_for_driver().await?;
    cloud(world, ROTATION, |cloud| {
        cloud["secretHash"] == known && cloud["loaded"] == true
    })
    .await?;
    world
        .cluster
        .kubectl(&["delete", "configmap", AUTHORITY, "-n", NAMESPACE])
        .await
        .map(drop)
}

/// How often the driver has logged in with TLS.
fn logins(openstack: &OpenStack) -> usize {
    let calls = openstack.calls();
    let is_login = |call: &&suites::gateway::Exchange| {
        call.port == SECURE_KEYSTONE && call.status == 201 && !call.user_agent.contains("operator")
    };
    calls.iter().filter(is_login).count()
}

/// The project's member, who makes application credentials.
struct Member {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Member {
    async fn log_in(openstack: &OpenStack) -> Result<Self> {
        let keys = openstack.member()?;
        let key = |name: &str| keys.get(name).with_context(|| format!("member.conf has no {name}"));
        let domain = json!({ "name": key("domain-name")? });
        let user = json!({ "name": key("username")?, "password": key("password")?, "domain": domain });
        let body = json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user": user } },
            "scope": { "project": { "name": key("tenant-name")?, "domain": domain } },
        }});
        let http = reqwest::Client::builder()
            .no_proxy()
            .build()
            .context("cannot make a client")?;
        let auth = key("auth-url")?;
        let answer = http.post(format!("{auth}/auth/tokens")).json(&body).send().await?;
        let answer = answer.error_for_status().context("the member cannot log in")?;
        let token = answer
            .headers()
            .get("X-Subject-Token")
            .context("no token")?
            .to_str()?
            .to_owned();
        let document: Value = answer.json().await.context("the token is no JSON")?;
        let user = document["token"]["user"]["id"]
            .as_str()
            .context("a token without a user")?;
        let url = format!("{auth}/users/{user}/application_credentials");
        Ok(Self { http, url, token })
    }

    /// A new application credential.
    async fn credential(&self, world: &World, name: &str) -> Result<Login> {
        let name = format!("e2e-{name}-{}", std::process::id());
        let body = json!({ "application_credential": { "name": name } });
        let request = self.http.request(Method::POST, &self.url).json(&body);
        let answer = request.header("X-Auth-Token", &self.token).send().await?;
        let made: Value = answer
            .error_for_status()
            .context("no application credential")?
            .json()
            .await?;
        let field = |name: &str| made["application_credential"][name].as_str().map(str::to_owned);
        Ok(Login {
            id: field("id").context("a credential without an id")?,
            secret: field("secret").context("a credential without a secret")?,
            ..world.login()?
        })
    }

    async fn revoke(&self, login: &Login) -> Result<()> {
        let request = self.http.request(Method::DELETE, format!("{}/{}", self.url, login.id));
        let answer = request.header("X-Auth-Token", &self.token).send().await?;
        answer
            .error_for_status()
            .context("the credential is not revoked")
            .map(drop)
    }
}
