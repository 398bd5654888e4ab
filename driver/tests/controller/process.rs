//! Start, trouble with the cloud, the HTTP endpoint, the end.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use cinder_csi_driver::args::Args;
use cinder_csi_driver::{RunError, serve};
use csi_proto::csi::v1::{ControllerGetCapabilitiesRequest, NodeGetInfoRequest};
use openstack_sim::{Latencies, VolumeStatus};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::support::{Driver, NODE, arguments, cloud, create_request, refused, until, within};

/// A port of the loopback address that was free a moment ago.
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
async fn wrong_flags_and_files_end_the_start_with_a_reason() {
    assert!(matches!(
        refuses_to_start(|args| args.endpoint = "csi.sock".into()).await,
        RunError::Endpoint(_)
    ));
    assert!(matches!(
        refuses_to_start(|args| args.http_endpoint = "8080".into()).await,
        RunError::HttpEndpoint(_)
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
async fn the_socket_is_closed_to_others() {
    let sim = cloud(|_| {}).await;
    let driver = Driver::start(&sim).await;
    let mode = std::fs::metadata(driver.socket())
        .expect("a socket")
        .permissions()
        .mode()
        & 0o777;
    assert_eq!(mode & 0o007, 0, "{mode:o}");
}

#[tokio::test]
async fn a_driver_starts_while_keystone_is_away_and_says_so() {
    let sim = cloud(|_| {}).await;
    let dead = format!("http://127.0.0.1:{}/v3", free_port());
    let conf = sim.access().cloud_conf().replace(sim.auth_url(), &dead);
    let port = free_port();
    let driver = Driver::with(&conf, |args| args.http_endpoint = format!("127.0.0.1:{port}")).await;
    let message = refused(driver.create(create_request("pvc-1")).await, Code::Unavailable);
    assert!(message.contains("[network]"), "{message}");
    assert_eq!(get(port, "/healthz").await.0, 200, "a restart would not help");
    assert_eq!(get(port, "/readyz").await.0, 503);
}

#[tokio::test]
async fn wrong_credentials_are_unavailable_and_never_shown() {
    let sim = cloud(|_| {}).await;
    let conf = sim
        .access()
        .cloud_conf()
        .replace(&sim.access().password, "not-the-password");
    let driver = Driver::with(&conf, |_| {}).await;
    let message = refused(driver.create(create_request("pvc-1")).await, Code::Unavailable);
    assert!(
        message.contains("[auth]") && !message.contains("not-the-password"),
        "{message}"
    );
}

#[tokio::test]
async fn http_shows_health_readiness_and_metrics() {
    let sim = cloud(|_| {}).await;
    let port = free_port();
    let driver = Driver::with(&sim.access().cloud_conf(), |args| {
        args.http_endpoint = format!("127.0.0.1:{port}");
    })
    .await;
    driver.volume("pvc-1").await;
    assert_eq!(get(port, "/healthz").await.0, 200);
    ready(port).await;
    let (status, text) = get(port, "/metrics").await;
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
async fn a_driver_that_is_told_to_end_finishes_what_it_began() {
    let sim = cloud(|config| {
        config.latencies = Latencies {
            create: Duration::from_millis(300),
            ..Latencies::default()
        };
    })
    .await;
    let driver = Driver::start(&sim).await;
    let mut client = driver.controller();
    let call = tokio::spawn(async move {
        client
            .create_volume(within(create_request("pvc-1"), Duration::from_secs(20)))
            .await
    });
    until("the volume", || !sim.state().volumes.is_empty()).await;
    driver.stop().await.expect("a clean end");
    call.await.expect("no panic").expect("the answer came before the end");
    assert_eq!(sim.state().volumes[0].status, VolumeStatus::Available);
}

#[tokio::test]
async fn a_node_needs_no_cloud_and_makes_the_directory_of_its_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("plugins/cinder.csi.openstack.org");
    let socket = format!("unix://{}", directory.join("csi.sock").display());
    let driver = Driver::with("", |args| {
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
async fn a_node_takes_the_go_drivers_cloud_conf_for_its_one_value_and_bears_a_broken_one() {
    for (conf, limit) in [
        (
            "[Global]\nauth-url = http://x/v3\nusername = u\npassword = p\ntenant-id = t\ndomain-id = d\n[BlockStorage]\nnode-volume-attach-limit = 25\n",
            25,
        ),
        // Then the node counts for itself.
        ("[Global", 26),
    ] {
        let driver = Driver::with(conf, |args| {
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
