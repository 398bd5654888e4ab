// SPDX-License-Identifier: Apache-2.0
//! CreateVolume: creates a volume, or adopts the volume that an earlier attempt created under the same name.

mod hints;
mod placement;
mod request;
mod response;

use csi_proto::csi::v1::{CreateVolumeRequest, CreateVolumeResponse};
use tonic::Status;

use super::{ControllerService, follow};
use crate::operations::{Deadline, Target, with_deadline};
use crate::status::{self, CloudAction};
use hints::apply_hints;
use placement::{check_candidates, place};
use request::CreateRequest;
use response::build_response;

/// Creates a volume. `OK` means that the volume is `available`.
///
/// The request is decoded and validated before any query. A refused request must not return the volume of an earlier,
/// valid one.
pub(super) async fn create(
    service: &ControllerService,
    request: CreateVolumeRequest,
    deadline: Deadline,
) -> Result<CreateVolumeResponse, Status> {
    let request = CreateRequest::decode(request, &service.settings)?;
    let (clouds, requirement) = (&service.clouds, request.requirement.as_ref());
    let new = &request.desired.new;
    check_candidates(
        service,
        &request,
        &clouds.candidates(&request.secrets, requirement, new.source.as_ref())?,
    )?;
    let choice = clouds.choose_for_volume(&request.secrets, requirement, new.source.as_ref(), &new.name);
    let choice = with_deadline(deadline, "the choice of the cloud", choice).await??;
    let desired = place(service, request, &choice)?;
    let target = Target::Name(desired.new.name.clone());
    service
        .operations
        .run("CreateVolume", target, desired.clone(), deadline, |progress| {
            let service = service.clone();
            async move {
                let cloud = choice.cloud.check().await?;
                progress.set("looking for the volume by its name, else making it and waiting until it is available");
                follow(&progress, &cloud, desired.new.name.as_str());
                let desired = apply_hints(&service, &cloud, desired).await?;
                let created = cloud.create_volume(desired.new.clone()).await;
                let created = created.map_err(|error| status::from_cloud(CloudAction::Create, &error))?;
                build_response(&service, &cloud, &desired, created).await
            }
        })
        .await
}

#[cfg(test)]
mod tests;
