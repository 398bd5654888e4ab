// SPDX-License-Identifier: Apache-2.0
//! Tests that an idle operator writes nothing.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use suites::chart;

use crate::api::path_of;
use crate::world::{OBJECT, RECONCILES, World, is_renewal};

/// Number of observed reconciles. Ten idle minutes have two, at the usual interval of five minutes. Here they follow at
/// a fifth of a second, and watches end and restart.
const LOOKS: f64 = 20.0;

pub(crate) async fn idle_operator_writes_only_leases(world: &World) -> Result<()> {
    let often = ["--credentials-check-interval=200ms"];
    let operator = world.installed("at-rest", &often, json!({})).await?;
    // The operator reports the last change before the idle period begins.
    operator.reconciles(3.0).await?;
    let before = world.writes()?.len();
    operator.reconciles(LOOKS).await?;
    nothing_since(world, before)?;
    let reconciles = operator.metric(RECONCILES).await?;
    ensure!(reconciles >= LOOKS, "the operator did not look");
    operator.stop().await
}

fn nothing_since(world: &World, before: usize) -> Result<()> {
    let writes = world.writes()?.split_off(before);
    let others: Vec<_> = writes.iter().filter(|write| !is_renewal(write)).collect();
    ensure!(others.is_empty(), "written at rest: {others:?}");
    Ok(())
}

/// Number of times that the chart is applied, as by a tool that reconciles it.
const TIMES: usize = 30;

/// Applies the whole chart, including the driver, as if it had changed. Neither that nor the operator may write
/// anything.
pub(crate) async fn repeated_chart_apply_causes_no_write(world: &World) -> Result<()> {
    let often = ["--credentials-check-interval=200ms"];
    let operator = world.start_operator("chart", &often).await?;
    let values = json!({
        "driver": {"create": true, "spec": {
            "clouds": [{"name": "default", "credentialsSecretRef": {"name": "openstack-credentials", "key": "cloud.conf"}}],
            "storageClasses": {"items": [{"name": "cinder", "isDefault": true}]},
        }},
        "networkPolicy": {"enabled": true},
        "monitoring": {"dashboard": {"enabled": true}},
    });
    let objects = chart::template("cinder-csi", &["--skip-tests", "--set-json", &values.to_string()])?;
    let apply = async || -> Result<BTreeMap<String, Value>> {
        let mut versions = BTreeMap::new();
        for object in &objects {
            let path = path_of(object)?;
            let options = format!("{path}?fieldManager=gitops&force=true");
            let body = Some(("application/apply-patch+yaml", object));
            let applied = world.api.request(Method::PATCH, &options, body).await?;
            let applied = applied.map_err(|refusal| anyhow::anyhow!("{path}: {}", refusal.message))?;
            versions.insert(path, applied["metadata"]["resourceVersion"].clone());
        }
        Ok(versions)
    };
    apply().await?;
    world.nothing_is_left_to_do().await?;
    operator.reconciles(3.0).await?;

    let before = world.writes()?.len();
    let first = apply().await?;
    ensure!(first.contains_key(OBJECT), "the chart has no driver: {first:?}");
    for _ in 1..TIMES {
        let versions = apply().await?;
        ensure!(versions == first, "{first:?} became {versions:?}");
    }
    operator.reconciles(3.0).await?;
    nothing_since(world, before)?;
    operator.process.stop().await.map(drop)
}
