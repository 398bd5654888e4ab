// SPDX-License-Identifier: Apache-2.0
//! Sends one RPC to the Controller service of a CSI driver and prints the response. `docs/desk.md` shows its use.

use std::env;
use std::error::Error;
use std::process::ExitCode;

use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use csi_proto::csi::v1::{
    CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, ListVolumesRequest, VolumeCapability,
};
use tonic::transport::Endpoint;

const USAGE: &str = "usage: csi-rpc SOCKET create-volume NAME GIB | list-volumes | delete-volume ID";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match call(&arguments).await {
        Ok(response) => {
            println!("{response}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("csi-rpc: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn call(arguments: &[String]) -> Result<String, Box<dyn Error>> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [socket, rpc @ ..] = arguments.as_slice() else {
        return Err(USAGE.into());
    };
    let channel = Endpoint::from_shared(format!("unix://{socket}"))?.connect_lazy();
    let mut controller = ControllerClient::new(channel);
    Ok(match rpc {
        ["create-volume", name, gib] => {
            let request = create_volume(name, gib.parse()?);
            format!("{:#?}", controller.create_volume(request).await?.into_inner())
        }
        ["list-volumes"] => {
            let request = ListVolumesRequest::default();
            format!("{:#?}", controller.list_volumes(request).await?.into_inner())
        }
        ["delete-volume", id] => {
            let request = DeleteVolumeRequest {
                volume_id: (*id).to_owned(),
                ..DeleteVolumeRequest::default()
            };
            format!("{:#?}", controller.delete_volume(request).await?.into_inner())
        }
        _ => return Err(USAGE.into()),
    })
}

fn create_volume(name: &str, gib: u16) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange {
            required_bytes: i64::from(gib) << 30,
            limit_bytes: 0,
        }),
        volume_capabilities: vec![VolumeCapability {
            access_mode: Some(AccessMode {
                mode: Mode::SingleNodeWriter.into(),
            }),
            access_type: Some(AccessType::Mount(MountVolume::default())),
        }],
        ..CreateVolumeRequest::default()
    }
}
