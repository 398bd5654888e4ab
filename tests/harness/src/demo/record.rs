// SPDX-License-Identifier: Apache-2.0
//! Reconstructs the traffic between Kubernetes and OpenStack from the logs of the driver and the simulator.

use anyhow::{Context, Result};
use harness::Cluster;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

/// An RPC from the driver's log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rpc {
    pub(crate) method: String,
    pub(crate) code: String,
    pub(crate) started: Timestamp,
    pub(crate) ended: Timestamp,
}

/// A request to OpenStack from the simulator's log.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Request {
    pub(crate) at: Timestamp,
    pub(crate) service: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) operation: String,
    pub(crate) status: u16,
}

/// RPCs and requests of a run.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) rpcs: Vec<Rpc>,
    pub(crate) requests: Vec<Request>,
}

/// A log line of the driver about an RPC. Other lines lack one of the fields.
#[derive(Debug, Deserialize)]
struct Line {
    timestamp: Timestamp,
    rpc: String,
    code: String,
    elapsed_ms: f64,
}

impl Record {
    /// Reads the logs of all driver containers in `namespace`, and the simulator's log.
    pub(crate) async fn read(cluster: &Cluster, namespace: &str, container: &str) -> Result<Self> {
        let mut record = Self::default();
        let pods = cluster.get(&["pods", "-n", namespace]).await?;
        for pod in pods["items"].as_array().context("a list without items")? {
            let containers = pod["spec"]["containers"]
                .as_array()
                .context("a pod without containers")?;
            if !containers.iter().any(|described| described["name"] == container) {
                continue;
            }
            let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
            let log = cluster
                .kubectl(&["logs", "-n", namespace, name, "-c", container])
                .await?;
            record.rpcs.extend(log.lines().filter_map(parse_line));
        }
        record.rpcs.sort_by_key(|rpc| rpc.started);
        for request in cluster.simulator()?.log().await? {
            record
                .requests
                .push(serde_json::from_value(request).context("an entry of the simulator's log is not as expected")?);
        }
        record.requests.sort_by_key(|request| request.at);
        Ok(record)
    }

    /// Returns the calls of one method.
    pub(crate) fn calls_of(&self, method: &str) -> Vec<&Rpc> {
        self.rpcs.iter().filter(|rpc| rpc.method == method).collect()
    }

    /// Returns the requests to Cinder and Nova that were answered during one of these calls.
    pub(crate) fn requests_during(&self, rpcs: &[&Rpc]) -> Vec<&Request> {
        let during = |request: &&Request| {
            rpcs.iter()
                .any(|rpc| rpc.started <= request.at && request.at <= rpc.ended)
        };
        self.requests
            .iter()
            .filter(|request| request.service != "keystone")
            .filter(during)
            .collect()
    }
}

fn parse_line(line: &str) -> Option<Rpc> {
    let line: Line = serde_json::from_str(line).ok()?;
    // The driver writes the line at the end of the call.
    let elapsed = SignedDuration::try_from_secs_f64(line.elapsed_ms / 1000.0).ok()?;
    let started = line.timestamp.checked_sub(elapsed).ok()?;
    Some(Rpc {
        method: line.rpc,
        code: line.code,
        started,
        ended: line.timestamp,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at: &str, service: &str) -> Request {
        let at = at.parse().unwrap();
        Request {
            at,
            service: service.into(),
            method: "GET".into(),
            path: "/".into(),
            operation: "show".into(),
            status: 200,
        }
    }

    #[test]
    fn parses_start_of_call_and_skips_other_lines() {
        let line = r#"{"timestamp":"2026-01-01T00:00:02.500Z","level":"INFO","message":"CreateVolume done","rpc":"CreateVolume","code":"OK","elapsed_ms":1500}"#;
        let rpc = parse_line(line).unwrap();
        assert_eq!((rpc.method.as_str(), rpc.code.as_str()), ("CreateVolume", "OK"));
        assert_eq!(rpc.started, "2026-01-01T00:00:01Z".parse().unwrap());
        assert_eq!(
            parse_line(r#"{"timestamp":"2026-01-01T00:00:02Z","message":"listening"}"#),
            None
        );
    }

    #[test]
    fn assigns_requests_to_running_call_except_logins() {
        let rpc = Rpc {
            method: "CreateVolume".into(),
            code: "OK".into(),
            started: "2026-01-01T00:00:01Z".parse().unwrap(),
            ended: "2026-01-01T00:00:03Z".parse().unwrap(),
        };
        let requests = vec![
            request("2026-01-01T00:00:00Z", "cinder"),
            request("2026-01-01T00:00:02Z", "cinder"),
            request("2026-01-01T00:00:02Z", "keystone"),
            request("2026-01-01T00:00:04Z", "nova"),
        ];
        let record = Record {
            rpcs: vec![rpc],
            requests,
        };
        assert_eq!(
            record.requests_during(&record.calls_of("CreateVolume")),
            [&record.requests[1]]
        );
    }
}
