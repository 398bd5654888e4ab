//! Nothing happens, and nothing is written.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::world::{LEASE, World};

/// What ten idle minutes bring, with the usual interval of five minutes between two looks: two. Here come many times more, a
/// fifth of a second apart, and watches that end and begin anew.
const LOOKS: f64 = 20.0;

pub(crate) async fn at_rest_nothing_is_written_but_the_lease(world: &World) -> Result<()> {
    let often = ["--credentials-check-interval=200ms"];
    let operator = world.installed("at-rest", &often, json!({})).await?;
    // What was found last is told before the rest begins.
    operator.reconciles(3.0).await?;
    let before = world.writes()?.len();
    operator.reconciles(LOOKS).await?;
    let writes = world.writes()?.split_off(before);
    let others: Vec<_> = writes
        .iter()
        .filter(|write| **write != format!("update {LEASE}"))
        .collect();
    ensure!(others.is_empty(), "written at rest: {others:?}");
    ensure!(
        operator.metric("cinder_csi_operator_reconcile_total").await? >= LOOKS,
        "the operator did not look"
    );
    operator.process.stop().await?;
    Ok(())
}
