// SPDX-License-Identifier: Apache-2.0
//! Checks through the CSI socket that this process serves, as its clients do.

use csi_kit::endpoint::Endpoint;
use csi_proto::csi::v1::ProbeRequest;
use csi_proto::csi::v1::identity_client::IdentityClient;
use tonic::Request;
use tonic::transport::{Channel, Endpoint as Target};

use crate::timing::TIMING;

/// A client of the process's own socket. Cheap to clone; connects on first use and reconnects when needed.
#[derive(Debug, Clone)]
pub struct Liveness {
    client: IdentityClient<Channel>,
    endpoint: String,
}

impl Liveness {
    /// Creates a client for `endpoint` without connecting.
    pub fn new(endpoint: &Endpoint) -> Result<Self, tonic::transport::Error> {
        let address = match endpoint {
            Endpoint::Unix(path) => format!("unix://{}", path.display()),
            Endpoint::Tcp(address) => format!("http://{address}"),
        };
        let channel = Target::from_shared(address)?
            .connect_timeout(TIMING.probe_timeout)
            .timeout(TIMING.probe_timeout)
            .connect_lazy();
        Ok(Self {
            client: IdentityClient::new(channel),
            endpoint: endpoint.to_string(),
        })
    }

    /// Sends one Probe. The error describes the problem. Ends within about two seconds.
    pub async fn check(mut self) -> Result<(), String> {
        let probe = self.client.probe(Request::new(ProbeRequest {}));
        match tokio::time::timeout(TIMING.probe_timeout, probe).await {
            Err(_) => Err(format!(
                "{}: no answer to Probe within {} s",
                self.endpoint,
                TIMING.probe_timeout.as_secs()
            )),
            Ok(Err(status)) => Err(format!("{}: Probe failed: {}", self.endpoint, status.message())),
            Ok(Ok(answer)) if answer.get_ref().ready == Some(false) => Err(format!("{}: not ready yet", self.endpoint)),
            Ok(Ok(_)) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(path: &std::path::Path) -> Result<(), String> {
        Liveness::new(&Endpoint::Unix(path.to_owned()))
            .expect("an address")
            .check()
            .await
    }

    #[tokio::test]
    async fn unserved_socket_is_not_alive() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("csi.sock");
        let reason = check(&path).await.expect_err("nobody is there");
        assert!(reason.contains("csi.sock"), "{reason}");
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_process_is_not_alive() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("csi.sock");
        let _silent = tokio::net::UnixListener::bind(&path).expect("a socket");
        let reason = check(&path).await.expect_err("nobody answers");
        assert!(reason.contains("csi.sock"), "{reason}");
    }
}
