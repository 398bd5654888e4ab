// SPDX-License-Identifier: Apache-2.0
//! Observes the drivers in the cloud: the requests by client, and the times at which volumes were attached and
//! detached.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use suites::cluster::World;

use crate::cloud::{attached_at, operation};
use crate::measure::{Requests, since};

/// Name of the log file in which Cinder and Nova record their API requests.
const LOG: &str = "serve.py.log";
/// Length of the timestamp at the start of each log line.
const MOMENT: usize = "2026-01-01 00:00:00.000".len();

/// Numbers of requests so far.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestCounts {
    /// Requests of the driver, by operation.
    pub(super) driver: Requests,
    /// Number of requests of the operator.
    pub(super) operator: usize,
}

impl RequestCounts {
    /// Counts the requests to the cloud of a cluster, through its gateway or in its simulator.
    pub(super) async fn so_far(world: &World) -> Result<Self> {
        let mut counts = Self::default();
        let mut count = |client: &str, operation: String| {
            if client.contains("operator") {
                counts.operator += 1;
            } else {
                *counts.driver.entry(operation).or_default() += 1;
            }
        };
        if let Ok(openstack) = world.openstack() {
            for call in openstack.calls() {
                count(&call.user_agent, operation(&call.method, &call.path));
            }
        } else {
            for call in world.cluster.simulator()?.log().await? {
                let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
                count(&text("user_agent"), text("operation"));
            }
        }
        Ok(counts)
    }

    /// Returns the requests since `before`.
    pub(super) fn since(self, before: &Self) -> Self {
        Self {
            driver: since(self.driver, &before.driver),
            operator: self.operator.saturating_sub(before.operator),
        }
    }
}

/// Times at which the cloud finished operations, by volume id.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct CloudTimes {
    pub(super) attached: BTreeMap<String, Timestamp>,
    pub(super) detached: BTreeMap<String, Timestamp>,
}

impl CloudTimes {
    /// Records the attach times of all currently attached volumes. Only the simulator supports this; with real
    /// services, [`CloudTimes::read_log`] reads the times later, because Cinder returns times without fractions of a
    /// second.
    pub(super) async fn record_attached(&mut self, world: &World) -> Result<()> {
        if world.openstack().is_err() {
            let state = world.cluster.simulator()?.state().await?;
            self.attached.extend(attached_at(&state)?);
        }
        Ok(())
    }

    /// Reads the times of all operations since the start of real services from their log.
    pub(super) fn read_log(&mut self, world: &World) -> Result<()> {
        if let Ok(openstack) = world.openstack() {
            let path = openstack.log().join(LOG);
            let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            *self = Self::of_log(&String::from_utf8_lossy(&bytes));
        }
        Ok(())
    }

    /// Parses the times from the API log. Nova finishes an attach with `os-complete`, and a detach with a DELETE of the
    /// Cinder attachment. Both have the id of the request that Nova received. Only the DELETE request to Nova contains
    /// the volume id.
    fn of_log(text: &str) -> Self {
        let mut volumes = BTreeMap::new();
        let mut requests = BTreeMap::new();
        let (mut attached, mut detached) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines().filter_map(Line::read) {
            let Some((_, attachment)) = line.text.split_once("attachments/") else {
                continue;
            };
            let end = attachment.find([' ', '"', '?']).unwrap_or(attachment.len());
            let (attachment, rest) = attachment.split_at(end);
            if line.text.contains("\"DELETE /v2.1/") {
                volumes.insert(line.second_id, attachment);
            } else if line.text.starts_with("DELETE ") {
                requests.insert(line.second_id, (line.first_id, attachment));
            } else if rest.starts_with(" returned with HTTP 2") {
                if let Some(attachment) = attachment.strip_suffix("/action") {
                    attached.insert(attachment, line.at);
                } else if let Some((request, attachment)) = requests.get(line.second_id) {
                    detached.insert(*attachment, (*request, line.at));
                }
            }
        }
        let mut moments = Self::default();
        for (attachment, (request, at)) in detached {
            let Some(volume) = volumes.get(request) else { continue };
            moments.detached.insert((*volume).to_owned(), at);
            if let Some(at) = attached.get(attachment) {
                moments.attached.insert((*volume).to_owned(), *at);
            }
        }
        moments
    }
}

/// A log line: `MOMENT PROCESS LEVEL LOGGER [ID ID …] TEXT`. In Cinder's lines, the first id is that of the caller's
/// request and the second is Cinder's own. In Nova's lines, the first id is `None` and the second is Nova's own.
#[derive(Debug)]
struct Line<'a> {
    at: Timestamp,
    first_id: &'a str,
    second_id: &'a str,
    text: &'a str,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (moment, rest) = line.split_at_checked(MOMENT)?;
        let (_, rest) = rest.split_once('[')?;
        let (ids, text) = rest.split_once("] ")?;
        let mut ids = ids.split_whitespace();
        let at: DateTime = moment.parse().ok()?;
        Some(Self {
            at: at.to_zoned(TimeZone::system()).ok()?.timestamp(),
            first_id: ids.next()?,
            second_id: ids.next()?,
            text: text.trim_start_matches("127.0.0.1 "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_attach_and_detach_times_from_log() {
        let log = "\
2026-11-21 15:12:51.010 115 INFO cinder.api.openstack.wsgi [req-a req-1 user - -] POST http://127.0.0.1:28776/v3/p/attachments/at/action
2026-11-21 15:12:51.028 115 INFO cinder.api.openstack.wsgi [req-a req-1 user - -] http://127.0.0.1:28776/v3/p/attachments/at/action returned with HTTP 204
2026-11-21 15:12:52.089 114 INFO nova.api.openstack.requestlog [None req-d user - -] 127.0.0.1 \"DELETE /v2.1/servers/s/os-volume_attachments/volume\" status: 202 len: 0
2026-11-21 15:12:52.123 115 INFO cinder.api.openstack.wsgi [req-d req-2 user - -] DELETE http://127.0.0.1:28776/v3/p/attachments/at
2026-11-21 15:12:52.130 115 INFO cinder.api.openstack.wsgi [req-d req-3 user - -] http://127.0.0.1:28776/v3/p/attachments/at returned with HTTP 200
2026-11-21 15:12:52.147 115 INFO cinder.api.openstack.wsgi [req-d req-2 user - -] http://127.0.0.1:28776/v3/p/attachments/at returned with HTTP 200
a traceback
";
        let moments = CloudTimes::of_log(log);
        let at = |text: &str| {
            let moment: DateTime = text.parse().unwrap();
            moment.to_zoned(TimeZone::system()).unwrap().timestamp()
        };
        let of = |text: &str| BTreeMap::from([("volume".to_owned(), at(text))]);
        assert_eq!(moments.attached, of("2026-11-21 15:12:51.028"));
        assert_eq!(moments.detached, of("2026-11-21 15:12:52.147"));
    }
}
