// SPDX-License-Identifier: Apache-2.0
//! HTTP client of the API server, as the administrator.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use harness::{ApiServer, wait_for};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::expect::expect_field;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit of every wait for the operator.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// Field manager of the tests' changes.
pub const MANAGER: &str = "kubectl-edit";

/// A client with all permissions.
#[derive(Debug)]
pub struct Api {
    http: reqwest::Client,
    url: String,
    token: String,
}

/// An object of the API server and its path.
#[derive(Debug, Clone)]
pub struct Object {
    pub path: String,
    pub value: Value,
}

impl Object {
    /// Returns kind and name, for messages.
    pub fn label(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}",
            text(&self.value["kind"]),
            text(&self.value["metadata"]["name"])
        )
    }
}

/// A request that the API server refused.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// HTTP status.
    pub status: StatusCode,
    /// Message of the API server.
    pub message: String,
}

impl Api {
    /// Creates the administrator's client.
    pub fn new(server: &ApiServer) -> Result<Self> {
        let pem = fs::read(server.ca_certificate()).context("cannot read the certificate")?;
        let certificate = reqwest::Certificate::from_pem(&pem).context("the certificate is none")?;
        let http = reqwest::Client::builder()
            .add_root_certificate(certificate)
            .timeout(REQUEST_TIMEOUT)
            .no_proxy()
            .build()
            .context("no HTTP client")?;
        Ok(Self {
            http,
            url: server.url(),
            token: server.token().to_owned(),
        })
    }

    /// Sends a request. The outer error means that the server did not respond.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<Result<Value, Refusal>> {
        let mut request = self
            .http
            .request(method.clone(), format!("{}{path}", self.url))
            .bearer_auth(&self.token);
        if let Some((content_type, body)) = body {
            request = request.header("content-type", content_type).body(body.to_string());
        }
        let answer = request.send().await.with_context(|| format!("{method} {path}"))?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| format!("{method} {path}"))?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(Ok(value));
        }
        let message = value["message"].as_str().unwrap_or(&text).to_owned();
        Ok(Err(Refusal { status, message }))
    }

    async fn done(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Value> {
        match self.request(method.clone(), path, body).await? {
            Ok(value) => Ok(value),
            Err(refusal) => bail!("{method} {path}: {} {}", refusal.status, refusal.message),
        }
    }

    /// Returns the response of a path.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.done(Method::GET, path, None).await
    }

    /// Returns an object; `None` if it does not exist.
    pub async fn find(&self, path: &str) -> Result<Option<Value>> {
        match self.request(Method::GET, path, None).await? {
            Ok(value) => Ok(Some(value)),
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => Ok(None),
            Err(refusal) => bail!("GET {path}: {} {}", refusal.status, refusal.message),
        }
    }

    /// Creates an object in a collection.
    pub async fn create(&self, collection: &str, object: &Value) -> Result<Value> {
        self.done(Method::POST, collection, Some(("application/json", object)))
            .await
    }

    /// Creates an object in the collection of its kind.
    pub async fn create_object(&self, object: &Value) -> Result<Value> {
        self.create(&collection_of(object)?, object).await
    }

    /// Sends a merge patch, as a user of kubectl does.
    pub async fn merge(&self, path: &str, change: &Value) -> Result<Value> {
        let path = format!("{path}?fieldManager={MANAGER}");
        self.done(Method::PATCH, &path, Some(("application/merge-patch+json", change)))
            .await
    }

    /// Sends a JSON patch, as a user of kubectl does. `dry` requests a dry run.
    pub async fn patch(&self, path: &str, operations: &[Value], dry: bool) -> Result<Result<Value, Refusal>> {
        let dry = if dry { "&dryRun=All" } else { "" };
        let path = format!("{path}?fieldManager={MANAGER}{dry}");
        let body = json!(operations);
        self.request(Method::PATCH, &path, Some(("application/json-patch+json", &body)))
            .await
    }

    /// Sends a JSON patch of one operation.
    pub async fn change(&self, path: &str, operation: &Value) -> Result<()> {
        match self.patch(path, std::slice::from_ref(operation), false).await? {
            Ok(_) => Ok(()),
            Err(refusal) => bail!("{path}: {}", refusal.message),
        }
    }

    /// Removes the finalizers of an object, as controllers do.
    pub async fn release(&self, path: &str) -> Result<()> {
        let change = json!({"metadata": {"finalizers": null}});
        self.merge(path, &change).await.map(drop)
    }

    /// Deletes an object without a grace period. Succeeds if it does not exist.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        match self
            .request(Method::DELETE, path, Some(("application/json", &options)))
            .await?
        {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => Ok(()),
            Err(refusal) => bail!("DELETE {path}: {} {}", refusal.status, refusal.message),
        }
    }

    /// Fails if an object exists.
    pub async fn expect_missing(&self, path: &str) -> Result<()> {
        ensure!(self.find(path).await?.is_none(), "{path} exists");
        Ok(())
    }

    /// Waits until an object has this value at a JSON pointer, and returns the object.
    pub async fn wait_for_field(&self, path: &str, pointer: &str, expected: impl Into<Value>) -> Result<Value> {
        let expected = expected.into();
        wait_for(&format!("{pointer} of {path}"), PATIENCE, async || {
            let object = self.get(path).await?;
            expect_field(&object, pointer, expected.clone())?;
            Ok(object)
        })
        .await
    }

    /// Returns all objects with a label, of every served kind.
    pub async fn labelled(&self, label: &str) -> Result<Vec<Object>> {
        let mut objects = Vec::new();
        for (base, resource) in self.resources().await? {
            let plural = resource["name"].as_str().unwrap_or_default();
            let list = self.get(&format!("{base}/{plural}?labelSelector={label}")).await?;
            for item in list["items"].as_array().into_iter().flatten() {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                let namespace = item["metadata"]["namespace"]
                    .as_str()
                    .map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
                let mut value = item.clone();
                // Items of a list have no kind.
                value["kind"] = resource["kind"].clone();
                objects.push(Object {
                    path: format!("{base}{namespace}/{plural}/{name}"),
                    value,
                });
            }
        }
        Ok(objects)
    }

    /// Returns every kind that supports list and patch, with the path of its group and version.
    async fn resources(&self) -> Result<Vec<(String, Value)>> {
        let mut bases = vec!["/api/v1".to_owned()];
        let groups = self.get("/apis").await?;
        for group in groups["groups"].as_array().into_iter().flatten() {
            let version = group["preferredVersion"]["groupVersion"].as_str().unwrap_or_default();
            bases.push(format!("/apis/{version}"));
        }
        let mut resources = Vec::new();
        for base in bases {
            let list = self.get(&base).await?;
            for resource in list["resources"].as_array().into_iter().flatten() {
                let has = |verb: &str| {
                    let verbs = resource["verbs"].as_array();
                    verbs.is_some_and(|verbs| verbs.iter().any(|known| known == verb))
                };
                let is_own = resource["name"].as_str().is_some_and(|name| !name.contains('/'));
                if is_own && has("list") && has("patch") {
                    resources.push((base.clone(), resource.clone()));
                }
            }
        }
        Ok(resources)
    }
}

/// Returns the API path of the collection of an object.
pub fn collection_of(object: &Value) -> Result<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let version = text("/apiVersion").context("an object without a version")?;
    let base = if version.contains('/') { "apis" } else { "api" };
    let kind = text("/kind").context("an object without a kind")?.to_lowercase();
    let plural = kind
        .strip_suffix('y')
        .map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    let namespace = text("/metadata/namespace").map_or_else(String::new, |name| format!("namespaces/{name}/"));
    Ok(format!("/{base}/{version}/{namespace}{plural}"))
}

/// Returns the API path of an object.
pub fn path_of(object: &Value) -> Result<String> {
    let name = object["metadata"]["name"]
        .as_str()
        .context("an object without a name")?;
    Ok(format!("{}/{name}", collection_of(object)?))
}
