// SPDX-License-Identifier: Apache-2.0
//! Reads the operator's requests and their times from the audit log of the API server.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ACCOUNT, NAMESPACE};

/// Resources that the operator writes and that are not operands: its status, its access reviews, and its Lease.
const OTHERS: [&str; 5] = [
    "cindercsidrivers",
    "events",
    "leases",
    "subjectaccessreviews",
    "tokenreviews",
];

/// A completed write of an operand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Write {
    /// Time of the API server's response.
    pub(super) at: Timestamp,
    pub(super) verb: String,
    /// Plural name of the kind.
    pub(super) resource: String,
    pub(super) name: String,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.verb, self.resource, self.name)
    }
}

/// Returns the audit policy of the API server.
pub(super) fn policy() -> Value {
    let account = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [account]}, {"level": "None"}],
    })
}

/// Returns the writes of operands so far.
pub(super) fn writes(log: &Path) -> Result<Vec<Write>> {
    let mut writes: Vec<Write> = read(log)?.lines().filter_map(write).collect();
    writes.sort_by_key(|write| write.at);
    Ok(writes)
}

/// Returns the writes of operands in the log from this byte on.
pub(super) fn writes_after(log: &Path, begin: u64) -> Result<Vec<Write>> {
    let mut file = File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
    let mut text = String::new();
    file.seek(SeekFrom::Start(begin))
        .and_then(|_| file.read_to_string(&mut text))
        .with_context(|| format!("cannot read {}", log.display()))?;
    let mut writes: Vec<Write> = text.lines().filter_map(write).collect();
    writes.sort_by_key(|write| write.at);
    Ok(writes)
}

/// Numbers of the operator's requests so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// All requests with a response. A watch counts when it ends.
    pub(super) requests: u32,
    /// Writes of the object's status.
    pub(super) statuses: u32,
}

/// Counts the requests so far.
pub(super) fn count(log: &Path) -> Result<Count> {
    let text = read(log)?;
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(entries
        .filter(|entry| entry["stage"] == "ResponseComplete")
        .fold(Count::default(), |count, entry| {
            let object = &entry["objectRef"];
            let is_status = object["resource"] == "cindercsidrivers" && object["subresource"] == "status";
            Count {
                requests: count.requests + 1,
                statuses: count.statuses + u32::from(is_status),
            }
        }))
}

fn read(log: &Path) -> Result<String> {
    std::fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))
}

/// Parses a log line; `None` if it is incomplete or not a write of an operand.
fn write(line: &str) -> Option<Write> {
    let entry: Value = serde_json::from_str(line).ok()?;
    let object = &entry["objectRef"];
    let resource = object["resource"].as_str()?;
    let is_done = entry["stage"] == "ResponseComplete" && entry["responseStatus"]["code"].as_u64()? < 300;
    let is_dry = entry["requestURI"].as_str()?.contains("dryRun=");
    let is_read = matches!(entry["verb"].as_str()?, "get" | "list" | "watch");
    if !is_done || is_dry || is_read || OTHERS.contains(&resource) || !object["subresource"].is_null() {
        return None;
    }
    Some(Write {
        at: entry["stageTimestamp"].as_str()?.parse().ok()?,
        verb: entry["verb"].as_str()?.to_owned(),
        resource: resource.to_owned(),
        name: object["name"].as_str().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(resource: &str, uri: &str, code: u16) -> String {
        json!({
            "stage": "ResponseComplete", "verb": "patch", "requestURI": uri, "responseStatus": {"code": code},
            "objectRef": {"resource": resource, "name": "x"}, "stageTimestamp": "2026-01-01T00:00:00.250000Z",
        })
        .to_string()
    }

    #[test]
    fn counts_only_successful_writes_of_operands() {
        let parsed = write(&line("daemonsets", "/x", 200)).expect("a write");
        assert_eq!(parsed.to_string(), "patch daemonsets x");
        assert_eq!(parsed.at.subsec_millisecond(), 250);
        assert_eq!(write(&line("daemonsets", "/x?dryRun=All", 200)), None);
        assert_eq!(write(&line("daemonsets", "/x", 409)), None);
        assert_eq!(write(&line("leases", "/x", 200)), None);
        assert_eq!(write(&line("daemonsets", "/x", 200).replace("patch", "list")), None);
        assert_eq!(write("{\"stage\": "), None);
    }

    #[test]
    fn counts_requests_and_status_writes_separately() {
        let file = std::env::temp_dir().join(format!("audit-{}", std::process::id()));
        let status =
            line("cindercsidrivers", "/x/status", 200).replace("\"name\"", "\"subresource\":\"status\",\"name\"");
        let begun = line("pods", "/x", 200).replace("ResponseComplete", "ResponseStarted");
        std::fs::write(
            &file,
            [line("pods", "/x", 500), status, begun, "{\"st".to_owned()].join("\n"),
        )
        .expect("a file");
        let counted = count(&file);
        std::fs::remove_file(&file).expect("it is ours");
        let expected = Count {
            requests: 2,
            statuses: 1,
        };
        assert_eq!(counted.expect("a log"), expected);
    }
}
