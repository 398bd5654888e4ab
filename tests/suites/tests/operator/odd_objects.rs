// SPDX-License-Identifier: Apache-2.0
//! Tests of objects that the API server accepts and that the operator's types cannot decode.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use harness::wait_for;
use serde_json::{Value, json};
use suites::expect::expect_parts;

use crate::api::PATIENCE;
use crate::world::{CLASS, NAMESPACE, World};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const SECRET: &str = "/api/v1/namespaces/cinder-csi/secrets/openstack-credentials";
/// Log limit of an operator that does not repeat its lists.
const MOST_LOG: usize = 256 << 10;

/// Returns managed fields with times at the limits of Go's parser.
fn managed_fields() -> Value {
    let entry = |manager: &str, time: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:nothing": {}}}}})
    };
    json!([
        entry("late", "9999-12-31T23:59:59Z"),
        entry("later", "9999-12-31T23:59:59-12:00"),
        entry("early", "0001-01-01T00:00:01Z"),
    ])
}

/// Returns undecodable objects with this name, and their collections.
fn odd_objects(name: &str) -> Vec<(&'static str, Value)> {
    let metadata = json!({"name": name, "managedFields": managed_fields()});
    vec![
        (
            CLAIMS,
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        (
            "/api/v1/nodes",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}),
        ),
        (
            "/api/v1/namespaces/cinder-csi/secrets",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": "canary"}}),
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata, "provisioner": "example.org/odd"}),
        ),
        (
            "/apis/storage.k8s.io/v1/csinodes",
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": []}}),
        ),
    ]
}

async fn create(world: &World, name: &str) -> Result<()> {
    for (collection, object) in odd_objects(name) {
        world.api.create(collection, &object).await?;
    }
    let claim = world.api.get(&format!("{CLAIMS}/{name}")).await?;
    let times = claim["metadata"]["managedFields"].to_string();
    expect_parts(&times, &["9999-12-31T23:59:59Z"])
}

async fn delete(world: &World, name: &str) -> Result<()> {
    for (collection, _) in odd_objects(name) {
        world.api.delete(&format!("{collection}/{name}")).await?;
    }
    Ok(())
}

pub(crate) async fn undecodable_objects_do_not_block_operator(world: &World) -> Result<()> {
    create(world, "odd-before").await?;
    let outcome = run(world).await;
    for name in ["odd-before", "odd-during"] {
        delete(world, name).await?;
    }
    // The API server itself cannot apply to an object with a five-digit year.
    world.api.delete(SECRET).await?;
    world.credentials(NAMESPACE, "cloud.conf").await?;
    outcome
}

async fn run(world: &World) -> Result<()> {
    let operator = world.installed("odd", &[], json!({})).await?;
    ensure!(operator.leads().await?, "it does not lead");
    create(world, "odd-during").await?;
    let odd = json!({"metadata": {"managedFields": managed_fields()}});
    world.api.merge(SECRET, &odd).await?;

    repairs(world).await?;
    world.condition("Upgradeable", "True").await?;
    world.condition("CredentialsValid", "True").await?;
    operator.stop().await?;

    let again = world.start_operator("odd-again", &[]).await?;
    again.wait_until_leader().await?;
    repairs(world).await?;
    world.condition("CredentialsValid", "True").await?;
    again.stop().await?;

    let secret = world.api.get(SECRET).await?;
    let encoded = secret["data"]["cloud.conf"].as_str();
    let encoded = encoded.context("the Secret has no data")?;
    for name in ["odd", "odd-again"] {
        let path = world.lab.path(&format!("{name}.log"));
        let log = fs::read_to_string(&path).with_context(|| format!("cannot read the log of {name}"))?;
        let length = log.len();
        ensure!(length <= MOST_LOG, "the log of {name} has {length} bytes");
        ensure!(!log.contains(&encoded[..40]), "the log of {name} contains the Secret");
    }
    Ok(())
}

/// Deletes a class, and waits until the operator has recreated it.
async fn repairs(world: &World) -> Result<()> {
    world.api.delete(CLASS).await?;
    wait_for("the class", PATIENCE, async || world.api.get(CLASS).await.map(drop)).await
}
