// SPDX-License-Identifier: Apache-2.0
//! Tests of the driver's telemetry: a log line per call, and metrics of both roles.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for_some;
use serde_json::Value;
use std::time::Duration;
use suites::drivers::{Driver, Installation, Ours, Role};
use suites::expect::{expect_field, expect_parts};
use suites::lab::{Lab, in_lab};
use suites::simulator::Simulator;

const NAME: &str = "pvc-told";
const CONTROLLER_HTTP: &str = "127.0.0.1:9808";
const NODE_HTTP: &str = "127.0.0.1:9809";
const LIMIT: Duration = Duration::from_secs(10);

/// Runs a volume's lifecycle on two processes with logs and metrics as in a cluster. Returns the id of the volume.
async fn whole_life(lab: &Lab) -> Result<(Installation, String)> {
    let simulator = Simulator::start(lab, "create=50ms,attach=50ms,detach=50ms,delete=50ms").await?;
    let serve = |role, address| Ours::new(role).json_log().flag(format!("--http-endpoint={address}"));
    let (controller, node) = (serve(Role::Controller, CONTROLLER_HTTP), serve(Role::Node, NODE_HTTP));
    let installation = Installation::start_with(lab, simulator, &controller, &node).await?;
    let life = installation.life(lab, NAME, "ext4")?;
    let volume = life.create().await?;
    life.bring_up(&volume).await?;
    life.take_down(&volume).await?;
    life.delete(&volume).await?;
    Ok((installation, volume.volume_id))
}

/// Returns the final log line of each call of an RPC.
fn last_lines(driver: &Driver, rpc: &str) -> Result<Vec<Value>> {
    let log = driver.log()?;
    let mut lines = Vec::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("no JSON object: {line}"))?;
        if line["message"] == format!("{rpc} done") && line["rpc"] == rpc {
            lines.push(line);
        }
    }
    Ok(lines)
}

#[test]
fn every_call_logs_volume_and_requests() {
    in_lab(async |lab| {
        let (installation, volume_id) = whole_life(&lab).await?;
        let requests = installation.simulator.log().await?;
        // The last poll may be shared by several calls, but the mutating request belongs to this call.
        for (rpc, operation) in [
            ("CreateVolume", "create_volume"),
            ("ControllerPublishVolume", "attach_volume"),
            ("ControllerUnpublishVolume", "detach_volume"),
            ("DeleteVolume", "delete_volume"),
        ] {
            let lines = wait_for_some("the line of the call", LIMIT, async || {
                Ok(Some(last_lines(&installation.controller, rpc)?).filter(|lines| !lines.is_empty()))
            })
            .await?;
            let line = lines.last().context("no line")?;
            let mine = requests
                .iter()
                .find(|request| request.operation == operation && request.status < 300);
            let mine = &mine.with_context(|| format!("there was no {operation}"))?.request_id;
            let named = line["openstack_requests"].as_str().unwrap_or_default();
            expect_parts(named, &[mine])?;
            for id in named.split(',') {
                let is_known = requests.iter().any(|request| request.request_id == id);
                ensure!(is_known, "{rpc} names {id}, which was none");
            }
            expect_field(line, "/span/name", "rpc")?;
            ensure!(line["span"]["request_id"].is_string(), "{line}");
            let subject = if rpc == "CreateVolume" { NAME } else { &volume_id };
            expect_field(line, "/span/volume_id", subject)?;
        }
        let staged = last_lines(&installation.node, "NodeStageVolume")?;
        let line = staged.last().context("the node's log has no NodeStageVolume")?;
        expect_field(line, "/span/volume_id", volume_id)?;
        installation.stop().await
    });
}

#[test]
fn metrics_contain_no_object_names_issue_913() {
    in_lab(async |lab| {
        let (installation, volume_id) = whole_life(&lab).await?;
        let page = async |address: &str| -> Result<String> {
            let client = reqwest::Client::builder().no_proxy().build()?;
            let answer = client.get(format!("http://{address}/metrics")).send().await?;
            Ok(answer.error_for_status()?.text().await?)
        };
        let (controller, node) = (page(CONTROLLER_HTTP).await?, page(NODE_HTTP).await?);
        let of_controller = [
            r#"csi_operations_seconds_count{driver_name="cinder.csi.openstack.org",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 1"#,
            r#"openstack_api_requests_total{request="volume_create"} 1"#,
            r#"openstack_api_request_duration_seconds_count{request="volume_attach"} 1"#,
            r#"cinder_csi_token_requests_total{cloud="default",result="issued"} 1"#,
            r#"cinder_csi_wait_seconds_count{cloud="default",operation="create"} 1"#,
            r#"cinder_csi_queue_depth{cloud="default",queue="wait"} 0"#,
            "cinder_csi_operations_running 0",
            r#"cloud="default",code="202""#,
        ];
        expect_parts(&controller, &of_controller)?;
        let of_node = [
            r#"method_name="/csi.v1.Node/NodeStageVolume"} 1"#,
            "process_resident_memory_bytes",
            "cinder_csi_operations_running 0",
        ];
        expect_parts(&node, &of_node)?;
        for page in [&controller, &node] {
            for named in [NAME, &volume_id, suites::simulator::SERVER_ID] {
                ensure!(!page.contains(named), "{named} is in a label");
            }
        }
        installation.stop().await
    });
}
