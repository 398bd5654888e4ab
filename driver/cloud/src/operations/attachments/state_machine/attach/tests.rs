// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use rstest::rstest;

use super::{is_full, is_younger};
use crate::api::block_storage::VolumeAttachment;
use crate::context::Context;
use crate::error::{CloudError, Failure};
use crate::ids::{ServerId, VolumeId};
use crate::operations::attachments::AttachOptions;
use crate::operations::attachments::attach::attach_volume;

const HERE: &str = "11111111-2222-4333-8444-555555555555";

#[rstest]
#[case(
    "The maximum allowed number of disk devices (26) to attach to a single instance has been exceeded.",
    true
)]
#[case("No free disk device names for prefix 'vd'", true)]
#[case("Quota exceeded for cores", false)]
fn refusal_text_identifies_full_server(#[case] fault: &str, #[case] expected: bool) {
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

#[rstest]
#[case(Some("2026-11-21T12:00:00.000000"), true)]
#[case(Some("2026-11-21T11:59:57.000000"), true)]
#[case(Some("2026-11-21T11:59:56.000000"), false)]
#[case(Some("2025-01-01T00:00:00.000000"), false)]
// The server of Cinder has another clock.
#[case(Some("2026-11-21T12:00:09.000000"), true)]
#[case(Some("yesterday"), false)]
#[case(None, false)]
fn older_attachment_is_not_accepted_issue_2115(#[case] attached_at: Option<&str>, #[case] expected: bool) {
    let attachment = VolumeAttachment {
        attachment_id: None,
        server_id: Some(ServerId::new(HERE)),
        device: None,
        attached_at: attached_at.map(str::to_owned),
    };
    let now = "2026-11-21T12:00:00Z".parse().expect("a time");
    assert_eq!(is_younger(&attachment, now, Duration::from_millis(1100)), expected);
}

#[tokio::test(start_paused = true)]
async fn wait_in_queue_ends_with_operation_timeout() {
    // A second installation in this process changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    // Port 1 has no listener, and the test sends no request.
    let config = crate::CloudConfig::from_cloud_conf(
        "[Global]\nauth-url=http://127.0.0.1:1\napplication-credential-id=i\napplication-credential-secret=s\n",
    )
    .expect("good");
    let cx = Context::new(config, crate::CloudOptions::default()).expect("a cloud");
    let server = ServerId::new(HERE);
    let _held = cx.server_queues.acquire_attach(&server).await.expect("room");
    let volume = VolumeId::new("aaaaaaaa-2222-4333-8444-555555555555");
    let options = AttachOptions::default();
    let attached = attach_volume(&cx, &volume, &server, options);
    let error = tokio::time::timeout(Duration::from_hours(1), attached)
        .await
        .expect("it ends")
        .expect_err("there was no turn");
    assert!(matches!(error, CloudError::Timeout { .. }), "{error:?}");
}
