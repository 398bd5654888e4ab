// SPDX-License-Identifier: Apache-2.0
//! Reads, writes and waits for objects of the API server.

use anyhow::{Context as _, Result};
use harness::wait_for;
use serde_json::{Value, json};

use super::{PATIENCE, USERS, WITHIN, World};
use crate::expect::{expect_field, expect_none};

impl World {
    /// Runs kubectl as the administrator and returns its output.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.cluster.kubectl(arguments).await
    }

    /// Returns the object that `kubectl get` prints for these arguments.
    pub async fn get(&self, arguments: &[&str]) -> Result<Value> {
        self.cluster.get(arguments).await
    }

    /// Returns an object in the users' namespace.
    pub async fn get_of_users(&self, kind: &str, name: &str) -> Result<Value> {
        self.get(&[kind, name, "-n", USERS]).await
    }

    /// Returns the items of the list that `kubectl get` prints for these arguments.
    pub async fn list(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        match self.get(arguments).await?["items"].take() {
            Value::Array(items) => Ok(items),
            other => anyhow::bail!("the items of {arguments:?} are {other}"),
        }
    }

    /// Returns the objects that `kubectl get` selects with these arguments, as `kind/name`.
    pub async fn names(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let names = self.kubectl(&[&["get", "-o", "name"][..], arguments].concat()).await?;
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    /// Fails if `kubectl get` selects an object with these arguments.
    pub async fn expect_no_object(&self, arguments: &[&str]) -> Result<()> {
        expect_none("objects", &self.names(arguments).await?)
    }

    /// Applies an object.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        self.cluster.apply(&object.to_string()).await.map(drop)
    }

    /// Creates a namespace.
    pub async fn create_namespace(&self, name: &str) -> Result<()> {
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await
    }

    /// Merges a change into an object.
    pub async fn patch(&self, object: &[&str], change: &Value) -> Result<()> {
        let patch = change.to_string();
        let arguments = [&["patch", "--type=merge", "-p", &patch][..], object].concat();
        self.kubectl(&arguments).await.map(drop)
    }

    /// Sets an annotation (`name=value`) of an object.
    pub async fn annotate(&self, object: &[&str], annotation: &str) -> Result<()> {
        let arguments = [&["annotate", "--overwrite"][..], object, &[annotation]].concat();
        self.kubectl(&arguments).await.map(drop)
    }

    /// Deletes objects and waits for their removal.
    pub async fn remove(&self, objects: &[&str]) -> Result<()> {
        let arguments = [&["delete", WITHIN][..], objects].concat();
        self.cluster.kubectl_within(PATIENCE, &arguments).await.map(drop)
    }

    /// Waits until an object has this value at a JSON pointer, and returns the object.
    pub async fn wait_for_field(&self, object: &[&str], pointer: &str, expected: impl Into<Value>) -> Result<Value> {
        let expected = expected.into();
        let what = format!("{pointer} of {}", object.join(" "));
        wait_for(&what, PATIENCE, async || {
            let object = self.get(object).await?;
            expect_field(&object, pointer, expected.clone())?;
            Ok(object)
        })
        .await
    }

    /// Waits for an event with this reason about an object (`Pod/web`) with all these parts in its message.
    pub async fn event(&self, reason: &str, object: &str, parts: &[&str]) -> Result<()> {
        wait_for(&format!("an event {reason} of {object}"), PATIENCE, async || {
            let events = self.list(&["events", "-A"]).await?;
            let is_about = |event: &&Value| {
                let text = |field: &str| event["involvedObject"][field].as_str().unwrap_or_default().to_owned();
                event["reason"] == reason && format!("{}/{}", text("kind"), text("name")) == object
            };
            let about = events.iter().filter(is_about);
            let messages: Vec<_> = about.filter_map(|event| event["message"].as_str()).collect();
            let is_complete = |message: &&str| parts.iter().all(|part| message.contains(part));
            let found = messages.iter().find(|message| is_complete(message));
            found
                .map(drop)
                .with_context(|| format!("the messages are {messages:?}"))
        })
        .await
    }
}
