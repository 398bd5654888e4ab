// SPDX-License-Identifier: Apache-2.0

use std::cell::Cell;
use std::time::Duration;

use rstest::rstest;
use tokio::time::sleep;

use super::Context;
use crate::timing::TIMING;

/// The response shows the state of the time at which the request was sent.
#[rstest]
#[case::within_the_lag(Duration::ZERO)]
#[case::after_the_lag(TIMING.database_lag + Duration::from_secs(1))]
#[tokio::test(start_paused = true)]
async fn missing_resource_is_read_again_after_the_lag(#[case] response_time: Duration) {
    // A second installation in this process changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    // Port 1 has no listener, and the test sends no request.
    let config = crate::CloudConfig::from_cloud_conf(
        "[Global]\nauth-url=http://127.0.0.1:1\napplication-credential-id=i\napplication-credential-secret=s\n",
    )
    .expect("good");
    let cx = Context::new(config, crate::CloudOptions::default()).expect("a cloud");
    let reads = Cell::new(0);
    let found = cx.confirm("aaaaaaaa-2222-4333-8444-555555555555", async || {
        reads.set(reads.get() + 1);
        if reads.get() > 1 {
            return Ok(Some("a volume"));
        }
        sleep(response_time).await;
        Ok(None)
    });
    assert_eq!(found.await.expect("an answer"), Some("a volume"));
}
