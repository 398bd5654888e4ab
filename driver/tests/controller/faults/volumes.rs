//! Volumes come and go.

use csi_proto::csi::v1::DeleteVolumeRequest;
use tonic::Code;

use super::{CALL, Expected, over_all_faults, volume};
use crate::support::{create_request, within};

#[tokio::test]
async fn create_volume_is_final_only_when_nothing_was_made() {
    let expected = Expected(&[
        ("400", Code::InvalidArgument),
        ("403 quota", Code::ResourceExhausted),
        ("404", Code::InvalidArgument),
        ("409", Code::Aborted),
        ("413 quota", Code::ResourceExhausted),
        // Found by its name afterwards.
        ("500 after", Code::Ok),
        ("reset after", Code::Ok),
        ("truncated", Code::Ok),
    ]);
    let name = async |_: &_, _: &_| "pvc-1".to_owned();
    over_all_faults("create_volume", expected, name, async |driver, name| {
        let request = within(create_request(&name), CALL);
        driver.controller().create_volume(request).await.map(drop)
    })
    .await;
}

#[tokio::test]
async fn delete_volume_tells_what_kept_the_volume() {
    let expected = Expected(&[
        ("400", Code::Internal),
        ("403 policy", Code::PermissionDenied),
        ("403 quota", Code::ResourceExhausted),
        ("404", Code::Ok),
        ("409", Code::Aborted),
        ("413 quota", Code::ResourceExhausted),
        ("500", Code::Internal),
        ("500 after", Code::Ok),
        ("reset after", Code::Ok),
        ("truncated", Code::Ok),
        ("html 200", Code::Internal),
    ]);
    over_all_faults("delete_volume", expected, volume, async |driver, volume_id| {
        let request = DeleteVolumeRequest {
            volume_id,
            ..DeleteVolumeRequest::default()
        };
        driver.controller().delete_volume(within(request, CALL)).await.map(drop)
    })
    .await;
}
