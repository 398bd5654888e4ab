// SPDX-License-Identifier: Apache-2.0
//! Errors of the registration with the kubelet.

use std::path::PathBuf;

use thiserror::Error;

/// Errors of the registration's configuration.
#[derive(Debug, Error)]
pub enum RegistrationError {
    /// The kubelet cannot reach the CSI socket.
    #[error(
        "--register needs a CSI socket that the kubelet sees under the same path: --endpoint={endpoint} is not below \
         --kubelet-dir={}; use unix://{}/plugins/{driver_name}/csi.sock", kubelet_dir.display(), kubelet_dir.display()
    )]
    Endpoint {
        endpoint: String,
        kubelet_dir: PathBuf,
        driver_name: String,
    },
    /// The driver's name cannot be part of a path.
    #[error("driver name {driver_name:?} cannot be a file's name: use a domain name such as cinder.csi.openstack.org")]
    DriverName { driver_name: String },
    /// The path of the link exceeds the length of a socket address.
    #[error("{} is too long for a socket by {over} bytes: use a shorter --kubelet-dir or --driver-name", path.display())]
    TooLong {
        path: PathBuf,
        /// The number of excess bytes.
        over: usize,
    },
}
