// SPDX-License-Identifier: Apache-2.0
//! Runs the driver as a process on the lab's devices. It confines the programs that it starts.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cinder_csi_driver::parameters::RESIZE_REQUIRED;
use csi_proto::csi::v1::node_client::NodeClient;
use csi_proto::csi::v1::volume_capability::access_mode::Mode;
use csi_proto::csi::v1::{CapacityRange, NodeExpandVolumeRequest, NodeStageVolumeRequest, NodeUnstageVolumeRequest};
use harness::wait_for_some;
use suites::programs;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::lab::{Lab, VOLUME};
use crate::mount;

const START_LIMIT: Duration = Duration::from_secs(20);
/// Limit of every call, for any content of a device.
const CALL_LIMIT: Duration = Duration::from_mins(1);

pub(crate) struct Driver<'lab> {
    lab: &'lab Lab,
    process: Child,
    client: NodeClient<Channel>,
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Returns the driver's program, and builds it if needed.
pub(crate) fn program() -> PathBuf {
    programs::driver().expect("the driver builds")
}

impl<'lab> Driver<'lab> {
    pub(crate) async fn start(lab: &'lab Lab) -> Self {
        let (socket, log) = (lab.at("csi.sock"), lab.at("driver.log"));
        let log = fs::File::create(&log).expect("a log file");
        let process = Command::new(program())
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .arg(format!("--dev-dir={}", lab.at("dev").display()))
            .args(["--provide-controller-service=false", "--provide-node-service=true"])
            .args(["--instance-id=server-1", "--availability-zone=nova", "-v=5"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log file"))
            .stderr(log)
            .spawn()
            .expect("the driver starts");
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
            .expect("an address")
            .origin(tonic::codegen::http::Uri::from_static("http://localhost"));
        let channel = wait_for_some("the socket of the driver", START_LIMIT, async || {
            Ok(endpoint.connect().await.ok())
        })
        .await
        .expect("the driver serves");
        Self {
            lab,
            process,
            client: NodeClient::new(channel),
        }
    }

    fn staging(&self) -> String {
        self.lab.at("staging").display().to_string()
    }

    /// Stages a new volume, or a copy, which may be larger than its source.
    pub(crate) async fn stage(&self, is_copy: bool) -> Result<(), Status> {
        let copy = is_copy.then(|| (RESIZE_REQUIRED.to_owned(), "true".to_owned()));
        let request = limited(NodeStageVolumeRequest {
            volume_id: VOLUME.into(),
            staging_target_path: self.staging(),
            volume_capability: Some(mount("", Mode::SingleNodeWriter)),
            volume_context: copy.into_iter().collect(),
            ..NodeStageVolumeRequest::default()
        });
        self.client.clone().node_stage_volume(request).await.map(drop)
    }

    pub(crate) async fn unstage(&self) -> Result<(), Status> {
        let request = limited(NodeUnstageVolumeRequest {
            volume_id: VOLUME.into(),
            staging_target_path: self.staging(),
        });
        self.client.clone().node_unstage_volume(request).await.map(drop)
    }

    pub(crate) async fn expand(&self, bytes: u64) -> Result<(), Status> {
        let request = limited(NodeExpandVolumeRequest {
            volume_id: VOLUME.into(),
            volume_path: self.staging(),
            staging_target_path: self.staging(),
            capacity_range: Some(CapacityRange {
                required_bytes: i64::try_from(bytes).expect("a small volume"),
                limit_bytes: 0,
            }),
            ..NodeExpandVolumeRequest::default()
        });
        self.client.clone().node_expand_volume(request).await.map(drop)
    }

    pub(crate) fn log(&self) -> String {
        let bytes = fs::read(self.lab.at("driver.log")).expect("its log");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the peak memory of the process in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .expect("the line");
        let number = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
        number.expect("a number of KiB") * 1024
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns a file of the process in procfs.
    pub(crate) fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.process.id())).expect("it runs")
    }
}

fn limited<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    request.set_timeout(CALL_LIMIT);
    request
}
