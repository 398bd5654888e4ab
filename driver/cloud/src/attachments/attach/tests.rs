use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const HERE: &str = "11111111-2222-4333-8444-555555555555";
const THERE: &str = "99999999-2222-4333-8444-555555555555";

fn volume(status: &str, multiattach: bool, servers: &[&str]) -> Volume {
    let attachments: Vec<Value> = servers
        .iter()
        .map(|id| json!({"server_id": id, "device": "/dev/vdb"}))
        .collect();
    serde_json::from_value(json!({
        "id": "aaaaaaaa-2222-4333-8444-555555555555", "name": null, "size": 1, "status": status,
        "multiattach": multiattach, "attachments": attachments, "metadata": null,
    }))
    .expect("volume")
}

fn done() -> AttachStep {
    AttachStep::Done(Some("/dev/vdb".to_owned()))
}

#[rstest]
#[case("available", false, &[], false, AttachStep::Request)]
#[case("in-use", false, &[HERE], true, done())]
#[case("in-use", false, &[THERE], false, AttachStep::Elsewhere)]
#[case("in-use", true, &[THERE], false, AttachStep::Request)]
#[case("in-use", true, &[THERE], true, AttachStep::Elsewhere)]
#[case("attaching", true, &[THERE, HERE], true, done())]
#[case("extending", false, &[HERE], false, done())]
#[case("reserved", false, &[], false, AttachStep::Wait)]
#[case("attaching", false, &[], false, AttachStep::Wait)]
#[case("creating", false, &[], false, AttachStep::Wait)]
#[case("detaching", false, &[HERE], false, AttachStep::Wait)]
#[case("detaching", false, &[THERE], false, AttachStep::Wait)]
#[case("deleting", false, &[], false, AttachStep::Wait)]
#[case("error", false, &[], false, AttachStep::Broken)]
#[case("error_extending", false, &[], false, AttachStep::Broken)]
#[case("error_extending", false, &[HERE], false, done())]
fn each_state_of_a_volume_has_one_next_step_towards_a_server(
    #[case] status: &str,
    #[case] multiattach: bool,
    #[case] servers: &[&str],
    #[case] exclusive: bool,
    #[case] expected: AttachStep,
) {
    assert_eq!(
        attach_step(&volume(status, multiattach, servers), &ServerId::new(HERE), exclusive),
        expected
    );
}

#[rstest]
#[case(
    "The maximum allowed number of disk devices (26) to attach to a single instance has been exceeded.",
    true
)]
#[case("No free disk device names for prefix 'vd'", true)]
#[case("internal error: No more available PCI slots", true)]
#[case("Quota exceeded for cores", false)]
fn a_full_server_is_told_by_the_text_of_the_refusal(#[case] fault: &str, #[case] expected: bool) {
    let failure = Failure {
        operation: "volume_attach",
        object: String::new(),
        status: Some(403),
        fault: fault.to_owned(),
        request_id: None,
        elapsed: Duration::ZERO,
    };
    assert_eq!(is_full(&failure), expected);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_does_not_come_ends_with_the_operations_time() {
    // A second installation in this process changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Nobody listens on port 1, and nobody is asked.
    let config = crate::CloudConfig::from_cloud_conf(
        "[Global]\nauth-url=http://127.0.0.1:1\napplication-credential-id=i\napplication-credential-secret=s\n",
    )
    .expect("good");
    let cloud = crate::Cloud::new(config, crate::CloudOptions::default()).expect("a cloud");
    let server = ServerId::new(HERE);
    let _held = cloud.inner.turns.take(&server).await;
    let volume = VolumeId::new("aaaaaaaa-2222-4333-8444-555555555555");
    let attached = cloud.attach(&volume, &server, AttachOptions::default());
    let error = tokio::time::timeout(Duration::from_hours(1), attached)
        .await
        .expect("it ends")
        .expect_err("there was no turn");
    assert!(matches!(error, CloudError::Timeout { .. }), "{error:?}");
}
