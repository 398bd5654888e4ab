// SPDX-License-Identifier: Apache-2.0
//! Tests of the driver's telemetry: a log line per call, and metrics of both roles.

use anyhow::{Context as _, Result, ensure};
use harness::wait_for_some;
use serde_json::Value;
use std::time::Duration;
use suites::drivers::{Driver, Ours, Role};
use suites::lab::{Lab, in_lab};
use suites::life::Life;
use suites::simulator::Simulator;

const NAME: &str = "pvc-told";
const CONTROLLER_HTTP: &str = "127.0.0.1:9808";
const NODE_HTTP: &str = "127.0.0.1:9809";
const LIMIT: Duration = Duration::from_secs(10);

struct Telemetry {
    simulator: Simulator,
    controller: Driver,
    node: Driver,
    volume_id: String,
}

/// Runs a volume's lifecycle on two processes with logs and metrics as in a cluster.
async fn whole_life(lab: &Lab) -> Result<Telemetry> {
    let simulator = Simulator::start(lab, "create=50ms,attach=50ms,detach=50ms,delete=50ms").await?;
    let serve = |role, address| Ours::new(role).json_log().flag(format!("--http-endpoint={address}"));
    let controller = serve(Role::Controller, CONTROLLER_HTTP).start(lab, &simulator).await?;
    let node = serve(Role::Node, NODE_HTTP).start(lab, &simulator).await?;
    let life = Life::mounted(lab, controller.channel(), node.channel(), NAME, "ext4")?;
    let volume = life.create().await?;
    let context = life.attach(&volume).await?;
    life.stage(&volume, &context).await?;
    life.publish(&volume, &context).await?;
    life.unpublish(&volume).await?;
    life.unstage(&volume).await?;
    life.detach(&volume).await?;
    life.delete(&volume).await?;
    Ok(Telemetry {
        simulator,
        controller,
        node,
        volume_id: volume.volume_id,
    })
}

impl Telemetry {
    async fn stop(self) -> Result<()> {
        self.controller.stop().await?;
        self.node.stop().await?;
        self.simulator.stop().await
    }
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
        let telemetry = whole_life(&lab).await?;
        let requests = telemetry.simulator.log().await?;
        // The last poll may be shared by several calls, but the mutating request belongs to this call.
        for (rpc, operation) in [
            ("CreateVolume", "create_volume"),
            ("ControllerPublishVolume", "attach_volume"),
            ("ControllerUnpublishVolume", "detach_volume"),
            ("DeleteVolume", "delete_volume"),
        ] {
            let lines = wait_for_some("the line of the call", LIMIT, async || {
                Ok(Some(last_lines(&telemetry.controller, rpc)?).filter(|lines| !lines.is_empty()))
            })
            .await?;
            let line = lines.last().context("no line")?;
            let mine = requests
                .iter()
                .find(|request| request.operation == operation && request.status < 300);
            let mine = &mine.with_context(|| format!("there was no {operation}"))?.request_id;
            let named = line["openstack_requests"].as_str().unwrap_or_default();
            ensure!(
                named.split(',').any(|id| id == mine),
                "{rpc} does not name {mine}: {line}"
            );
            for id in named.split(',') {
                ensure!(
                    requests.iter().any(|request| request.request_id == id),
                    "{rpc} names {id}, which was none"
                );
            }
            let span = &line["span"];
            ensure!(
                span["name"] == "rpc" && span["request_id"].is_string(),
                "no span of a call: {line}"
            );
            let subject = if rpc == "CreateVolume" {
                NAME
            } else {
                telemetry.volume_id.as_str()
            };
            ensure!(span["volume_id"] == subject, "{rpc} is about {subject}: {line}");
        }
        let staged = last_lines(&telemetry.node, "NodeStageVolume")?;
        let line = staged.last().context("the node's log has no NodeStageVolume")?;
        ensure!(line["span"]["volume_id"] == telemetry.volume_id, "{line}");
        telemetry.stop().await
    });
}

#[test]
fn metrics_contain_no_object_names_issue_913() {
    in_lab(async |lab| {
        let telemetry = whole_life(&lab).await?;
        let page = async |address: &str| -> Result<String> {
            let client = reqwest::Client::builder().no_proxy().build()?;
            let answer = client.get(format!("http://{address}/metrics")).send().await?;
            Ok(answer.error_for_status()?.text().await?)
        };
        let (controller, node) = (page(CONTROLLER_HTTP).await?, page(NODE_HTTP).await?);
        for sample in [
            r#"csi_operations_seconds_count{driver_name="cinder.csi.openstack.org",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 1"#,
            r#"openstack_api_requests_total{request="volume_create"} 1"#,
            r#"openstack_api_request_duration_seconds_count{request="volume_attach"} 1"#,
            r#"cinder_csi_token_requests_total{cloud="default",result="issued"} 1"#,
            r#"cinder_csi_wait_seconds_count{cloud="default",operation="create"} 1"#,
            r#"cinder_csi_queue_depth{cloud="default",queue="wait"} 0"#,
            "cinder_csi_operations_running 0",
            r#"cloud="default",code="202""#,
        ] {
            ensure!(
                controller.contains(sample),
                "the controller does not show {sample}:\n{controller}"
            );
        }
        for sample in [
            r#"method_name="/csi.v1.Node/NodeStageVolume"} 1"#,
            "process_resident_memory_bytes",
            "cinder_csi_operations_running 0",
        ] {
            ensure!(node.contains(sample), "the node does not show {sample}:\n{node}");
        }
        for page in [&controller, &node] {
            for named in [NAME, telemetry.volume_id.as_str(), suites::simulator::SERVER_ID] {
                ensure!(!page.contains(named), "{named} is in a label");
            }
        }
        telemetry.stop().await
    });
}
