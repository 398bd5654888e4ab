// SPDX-License-Identifier: Apache-2.0
//! Start, faults of the cloud, the HTTP endpoints, and shutdown.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use cinder_csi_driver::args::Args;
use cinder_csi_driver::{RunError, serve};
use csi_proto::csi::v1::{ControllerGetCapabilitiesRequest, NodeGetCapabilitiesRequest, NodeGetInfoRequest};
use openstack_sim::{Latencies, TlsIdentity, VolumeStatus};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::support::{Driver, NODE, arguments, create_request, listening_cloud, refused, wait_until, within};

/// How long a request is retried without a response. These tests run in real time.
const REQUEST: Duration = Duration::from_secs(2);

/// Returns a port of the loopback address that was free at the time of the check.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("its address")
        .port()
}

async fn get(port: u16, path: &str) -> (u16, String) {
    let answer = reqwest::get(format!("http://127.0.0.1:{port}{path}"))
        .await
        .expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a text"))
}

/// Waits for the first login.
async fn ready(port: u16) {
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    let poll = async {
        while get(port, "/readyz").await.0 != 200 {
            tick.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), poll)
        .await
        .expect("it becomes ready");
}

async fn refuses_to_start(change: impl FnOnce(&mut Args)) -> RunError {
    let folder = tempfile::tempdir().expect("a folder");
    let mut args = arguments(
        &folder,
        "[Global]\nauth-url = http://127.0.0.1:1/v3\nusername = u\npassword = secret-word\ntenant-id = t\ndomain-id = d\n",
    );
    change(&mut args);
    let start = serve(args, CancellationToken::new());
    let ended = tokio::time::timeout(Duration::from_secs(10), start)
        .await
        .expect("it ends by itself");
    ended.expect_err("it does not start")
}

#[tokio::test]
async fn invalid_flags_and_files_prevent_start() {
    assert!(matches!(
        refuses_to_start(|args| args.endpoint = "csi.sock".into()).await,
        RunError::Endpoint(_)
    ));
    assert!(matches!(
        refuses_to_start(|args| args.http_endpoint = "8080".into()).await,
        RunError::HttpAddress { .. }
    ));
    assert!(matches!(
        refuses_to_start(|args| args.provide_controller_service = false).await,
        RunError::NoRole
    ));
    assert!(matches!(
        refuses_to_start(|args| args.cloud_config.clear()).await,
        RunError::NoCloudConfig
    ));
    let unknown = refuses_to_start(|args| args.cloud_name = vec!["b".into()]).await;
    assert!(unknown.to_string().contains("[Global \"b\"]"), "{unknown}");
    let missing = refuses_to_start(|args| args.cloud_config = vec!["/nonexistent/cloud.conf".into()]).await;
    assert!(missing.to_string().contains("/nonexistent/cloud.conf"), "{missing}");
    let malformed = refuses_to_start(|args| {
        std::fs::write(
            &args.cloud_config[0],
            "[Global]\npassword = secret-word\nauth-url http://x",
        )
        .expect("a file");
    })
    .await;
    let text = malformed.to_string();
    assert!(text.contains("cloud.conf") && !text.contains("secret-word"), "{text}");
}

#[tokio::test]
async fn socket_is_closed_to_other_users() {
    let sim = listening_cloud(|_| {}).await;
    let driver = Driver::serve(&sim.access().cloud_conf(), |_| {}).await;
    let mode = std::fs::metadata(driver.socket())
        .expect("a socket")
        .permissions()
        .mode()
        & 0o777;
    assert_eq!(mode & 0o007, 0, "{mode:o}");
}

#[tokio::test]
async fn driver_starts_while_keystone_is_unavailable_issue_2192_issue_1126() {
    let keystone = free_port();
    let dead = format!("http://127.0.0.1:{keystone}/identity/v3");
    let access = listening_cloud(|_| {}).await.access().clone();
    let conf = access.cloud_conf().replace(&access.auth_url, &dead);
    let port = free_port();
    let driver = Driver::serve(&conf, |args| {
        args.health_endpoint = format!("127.0.0.1:{port}");
        args.request_timeout = REQUEST;
    })
    .await;
    let answer = driver
        .controller()
        .controller_get_capabilities(ControllerGetCapabilitiesRequest {})
        .await;
    answer.expect("sidecars get what they ask at their start");
    let message = refused(driver.create(create_request("pvc-1")).await, Code::Unavailable);
    assert!(message.contains("[network]"), "{message}");
    assert_eq!(get(port, "/healthz").await.0, 200, "a restart would not help");
    assert_eq!(get(port, "/readyz").await.0, 503);

    let sim = listening_cloud(|config| config.listen = ([127, 0, 0, 1], keystone).into()).await;
    assert_eq!(sim.auth_url(), dead);
    ready(port).await;
    driver.create(create_request("pvc-1")).await.expect("a volume");
    assert_eq!(get(port, "/healthz").await.0, 200);
}

#[tokio::test]
async fn refused_credentials_are_unavailable_and_never_logged() {
    let sim = listening_cloud(|_| {}).await;
    let conf = sim
        .access()
        .cloud_conf()
        .replace(&sim.access().password, "not-the-password");
    let driver = Driver::serve(&conf, |_| {}).await;
    let message = refused(driver.create(create_request("pvc-1")).await, Code::Unavailable);
    assert!(
        message.contains("[auth]") && !message.contains("not-the-password"),
        "{message}"
    );
}

/// Creates a self-signed certificate for the loopback address.
fn authority() -> TlsIdentity {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    TlsIdentity {
        certificate_pem: own.cert.pem(),
        key_pem: own.signing_key.serialize_pem(),
    }
}

/// Replaces a file atomically, as an update of a Secret does.
fn replace(file: &Path, content: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, content).expect("a file");
    std::fs::rename(new, file).expect("replaced");
}

#[tokio::test]
async fn private_ca_is_loaded_and_reloaded_issue_1546_issue_1119() {
    let (known, other) = (authority(), authority());
    let sim = listening_cloud(|config| config.tls = Some(known.clone())).await;
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.crt");
    replace(&ca, &other.certificate_pem);
    let conf = format!("{}ca-file = {}\n", sim.access().cloud_conf(), ca.display());
    let port = free_port();
    let driver = Driver::serve(&conf, |args| {
        args.health_endpoint = format!("127.0.0.1:{port}");
        args.request_timeout = REQUEST;
    })
    .await;
    let message = refused(driver.create(create_request("pvc-1")).await, Code::Unavailable);
    assert!(message.contains("certificate"), "{message}");
    assert_eq!(get(port, "/readyz").await.0, 503);
    // cloud.conf and the host are unchanged, and the driver is not restarted.
    replace(&ca, &known.certificate_pem);
    ready(port).await;
    driver.create(create_request("pvc-1")).await.expect("a volume");
}

#[tokio::test]
async fn http_endpoints_serve_health_readiness_and_metrics() {
    let sim = listening_cloud(|_| {}).await;
    let (health, metrics) = (free_port(), free_port());
    let driver = Driver::serve(&sim.access().cloud_conf(), |args| {
        args.health_endpoint = format!("127.0.0.1:{health}");
        args.http_endpoint = format!("127.0.0.1:{metrics}");
    })
    .await;
    driver.volume("pvc-1").await;
    assert_eq!(get(health, "/healthz").await.0, 200);
    ready(health).await;
    assert_eq!(get(health, "/metrics").await.0, 404);
    let (status, text) = get(metrics, "/metrics").await;
    assert_eq!(status, 200);
    for part in [
        r#"csi_operations_seconds_count{driver_name="cinder.csi.openstack.org",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 1"#,
        r#"openstack_api_requests_total{request="volume_create"} 1"#,
        "openstack_api_request_duration_seconds_bucket",
        r#"cinder_csi_token_requests_total{cloud="default",result="issued"} 1"#,
        "process_resident_memory_bytes",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[tokio::test]
async fn shutdown_finishes_running_operations() {
    let sim = listening_cloud(|config| {
        config.latencies = Latencies {
            create: Duration::from_millis(300),
            ..Latencies::default()
        };
    })
    .await;
    let driver = Driver::serve(&sim.access().cloud_conf(), |_| {}).await;
    let mut client = driver.controller();
    let call = tokio::spawn(async move {
        client
            .create_volume(within(create_request("pvc-1"), Duration::from_secs(20)))
            .await
    });
    wait_until("the volume", || !sim.state().volumes.is_empty()).await;
    driver.stop().await.expect("a clean end");
    call.await.expect("no panic").expect("the answer came before the end");
    assert_eq!(sim.state().volumes[0].status, VolumeStatus::Available);
}

#[tokio::test]
async fn node_needs_no_cloud_and_creates_socket_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("plugins/cinder.csi.openstack.org");
    let socket = format!("unix://{}", directory.join("csi.sock").display());
    let driver = Driver::serve("", |args| {
        args.endpoint.clone_from(&socket);
        args.cloud_config.clear();
        args.provide_controller_service = false;
        args.provide_node_service = true;
        args.instance_id = Some(NODE.into());
        args.availability_zone = Some("nova".into());
    })
    .await;
    let mode = std::fs::metadata(&directory).expect("a directory").permissions().mode() & 0o777;
    assert_eq!(mode, 0o750, "{mode:o}");
    let info = driver
        .node()
        .node_get_info(NodeGetInfoRequest {})
        .await
        .expect("info")
        .into_inner();
    assert_eq!(info.node_id, NODE);
    let answer = driver
        .controller()
        .controller_get_capabilities(ControllerGetCapabilitiesRequest {})
        .await;
    refused(answer, Code::Unimplemented);
}

#[tokio::test]
async fn node_uses_no_cloud_or_credentials_issue_2677_issue_1020_issue_2655() {
    let sim = listening_cloud(|_| {}).await;
    // As in the Go driver's manifests: the controller's file and the names of clouds that the file does not contain.
    let driver = Driver::serve(&sim.access().cloud_conf(), |args| {
        args.cloud_name = vec!["east".into(), "west".into()];
        args.provide_controller_service = false;
        args.provide_node_service = true;
        args.instance_id = Some(NODE.into());
        args.availability_zone = Some("nova".into());
    })
    .await;
    let info = driver.node().node_get_info(NodeGetInfoRequest {}).await;
    assert_eq!(info.expect("info").into_inner().node_id, NODE);
    let capabilities = driver.node().node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
    capabilities.expect("capabilities");
    driver.stop().await.expect("a clean end");
    // The log includes Keystone, so the driver did not log in.
    assert_eq!(sim.log(), []);
}

#[tokio::test]
async fn node_tolerates_malformed_cloud_conf() {
    for (conf, limit) in [
        (
            "[Global]\nauth-url = http://x/v3\nusername = u\npassword = p\ntenant-id = t\ndomain-id = d\n[BlockStorage]\nnode-volume-attach-limit = 25\n",
            25,
        ),
        // The node determines its own limit in this case.
        ("[Global", 26),
    ] {
        let driver = Driver::serve(conf, |args| {
            args.provide_controller_service = false;
            args.provide_node_service = true;
            args.instance_id = Some(NODE.into());
            args.availability_zone = Some("nova".into());
        })
        .await;
        let info = driver
            .node()
            .node_get_info(NodeGetInfoRequest {})
            .await
            .expect("info")
            .into_inner();
        assert_eq!(info.max_volumes_per_node, limit);
    }
}
