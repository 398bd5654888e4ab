//! Keystone, where a test needs more of it than the driver does.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use suites::openstack::keys;
use suites::real_cloud::RealCloud;

use crate::STATE_TIMEOUT;

/// Keystone as the project's member sees it.
pub(crate) struct Keystone {
    http: reqwest::Client,
    pub(crate) token: String,
    user: String,
    pub(crate) project: String,
    /// The id of the user on whom a trust is bestowed.
    pub(crate) trustee: String,
}

impl Keystone {
    pub(crate) async fn login(cloud: &RealCloud, member: &BTreeMap<String, String>) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(STATE_TIMEOUT).build()?;
        let domain = json!({ "name": member["domain-name"] });
        let scope = json!({ "project": { "name": member["tenant-name"], "domain": domain } });
        let (token, document) = token(&http, cloud, member, Some(&scope)).await?;
        let trustee = keys(cloud.trustee_conf())?;
        let (_, of_trustee) = self::token(&http, cloud, &trustee, None).await?;
        let id = |value: &Value| value.as_str().map(str::to_owned).context("no id");
        Ok(Self {
            http,
            token,
            user: id(&document["user"]["id"])?,
            project: id(&document["project"]["id"])?,
            trustee: id(&of_trustee["user"]["id"])?,
        })
    }

    /// The member's role in its project, for the trustee.
    pub(crate) async fn trust(&self, cloud: &RealCloud) -> Result<String> {
        let body = json!({ "trust": {
            "trustor_user_id": self.user, "trustee_user_id": self.trustee, "project_id": self.project,
            "impersonation": true, "roles": [{ "name": "member" }],
        }});
        let made = self.post(cloud, "OS-TRUST/trusts", &body).await?;
        Ok(made["trust"]["id"].as_str().context("no trust")?.to_owned())
    }

    /// An application credential that may do what these rules say: its id and its secret.
    pub(crate) async fn application_credential(
        &self,
        cloud: &RealCloud,
        name: &str,
        rules: &[Value],
    ) -> Result<(String, String)> {
        let body = json!({ "application_credential": { "name": name, "access_rules": rules } });
        let path = format!("users/{}/application_credentials", self.user);
        let made = self.post(cloud, &path, &body).await?;
        let text = |key: &str| made["application_credential"][key].as_str().map(str::to_owned);
        text("id").zip(text("secret")).context("no application credential")
    }

    async fn post(&self, cloud: &RealCloud, path: &str, body: &Value) -> Result<Value> {
        let url = format!("{}/{path}", cloud.auth_url());
        let request = self.http.post(&url).header("X-Auth-Token", &self.token).json(body);
        let answer = request.send().await?;
        let status = answer.status();
        // What Keystone answers to a success may hold a secret.
        ensure!(status.is_success(), "{url}: {status} {}", answer.text().await?);
        Ok(answer.json().await?)
    }
}

/// A token by password, and what Keystone says about it.
async fn token(
    http: &reqwest::Client,
    cloud: &RealCloud,
    who: &BTreeMap<String, String>,
    scope: Option<&Value>,
) -> Result<(String, Value)> {
    let domain = json!({ "name": who["domain-name"] });
    let user = json!({ "name": who["username"], "password": who["password"], "domain": domain });
    let mut auth = json!({ "identity": { "methods": ["password"], "password": { "user": user } } });
    if let Some(scope) = scope {
        auth["scope"] = scope.clone();
    }
    let url = format!("{}/auth/tokens", cloud.auth_url());
    let answer = http
        .post(&url)
        .json(&json!({ "auth": auth }))
        .send()
        .await?
        .error_for_status()?;
    let token = answer
        .headers()
        .get("X-Subject-Token")
        .context("no token")?
        .to_str()?
        .to_owned();
    let body: Value = answer.json().await?;
    Ok((token, body["token"].clone()))
}
