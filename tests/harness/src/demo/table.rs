// SPDX-License-Identifier: Apache-2.0
//! Renders the lifecycle of a volume as a table.

use std::fmt::Write;

use super::record::{Record, Request, Rpc};

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) step: String,
    pub(crate) object: String,
    pub(crate) call: String,
    pub(crate) requests: String,
    pub(crate) seconds: f64,
}

impl Row {
    /// Creates the row of a step without a CSI call.
    pub(crate) fn step(step: &str, object: impl Into<String>, seconds: f64) -> Self {
        Self {
            step: step.into(),
            object: object.into(),
            call: "-".into(),
            requests: "-".into(),
            seconds,
        }
    }

    /// Creates the row of a CSI call with its OpenStack requests. Returns `None` if the driver recorded no such call.
    pub(crate) fn call(step: &str, object: &str, method: &str, record: &Record) -> Option<Self> {
        let rpcs = record.calls_of(method);
        if rpcs.is_empty() {
            return None;
        }
        Some(Self {
            step: step.into(),
            object: object.into(),
            call: describe_calls(method, &rpcs),
            requests: count(&record.requests_during(&rpcs)),
            seconds: rpcs
                .iter()
                .map(|rpc| rpc.ended.duration_since(rpc.started).as_secs_f64())
                .sum(),
        })
    }
}

/// Describes calls as `CreateVolume`, with number and status codes unless there was one successful call.
fn describe_calls(method: &str, rpcs: &[&Rpc]) -> String {
    let failed: Vec<_> = rpcs
        .iter()
        .map(|rpc| rpc.code.as_str())
        .filter(|code| !code.eq_ignore_ascii_case("ok"))
        .collect();
    match (rpcs.len(), failed.is_empty()) {
        (1, true) => method.to_owned(),
        (count, true) => format!("{method} ×{count}"),
        (count, false) => format!("{method} ×{count} ({})", failed.join(", ")),
    }
}

/// Lists the operations in the order of their first appearance, each with its number.
fn count(requests: &[&Request]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for request in requests {
        match counts.iter_mut().find(|(operation, _)| *operation == request.operation) {
            Some((_, count)) => *count += 1,
            None => counts.push((&request.operation, 1)),
        }
    }
    if counts.is_empty() {
        return "-".to_owned();
    }
    let described: Vec<_> = counts
        .iter()
        .map(|(name, count)| {
            if *count == 1 {
                (*name).to_owned()
            } else {
                format!("{name} ×{count}")
            }
        })
        .collect();
    format!("{}: {}", requests.len(), described.join(", "))
}

/// Renders the table.
pub(crate) fn draw(rows: &[Row]) -> String {
    let heads = ["step", "API object", "CSI call", "OpenStack calls", "seconds"];
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            [
                row.step.clone(),
                row.object.clone(),
                row.call.clone(),
                row.requests.clone(),
                format!("{:.2}", row.seconds),
            ]
        })
        .collect();
    let width = |column: usize| {
        let widths = cells.iter().map(|row| row[column].chars().count());
        widths.chain([heads[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: [&str; 5]| {
        // Writing to a String never fails.
        let _ = writeln!(
            text,
            "{:<a$}  {:<b$}  {:<c$}  {:<d$}  {:>e$}",
            cells[0],
            cells[1],
            cells[2],
            cells[3],
            cells[4],
            a = widths[0],
            b = widths[1],
            c = widths[2],
            d = widths[3],
            e = widths[4]
        );
    };
    line(heads);
    let rules = widths.iter().map(|width| "─".repeat(*width)).collect::<Vec<_>>();
    line([&rules[0], &rules[1], &rules[2], &rules[3], &rules[4]]);
    for row in &cells {
        line([&row[0], &row[1], &row[2], &row[3], &row[4]]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_aligns_columns_and_numbers() {
        let rows = [
            Row::step("create", "PersistentVolumeClaim", 12.345),
            Row::step("a longer step", "Pod", 0.5),
        ];
        let text = draw(&rows);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[2],
            "create         PersistentVolumeClaim  -         -                  12.35"
        );
        assert_eq!(
            lines[3],
            "a longer step  Pod                    -         -                   0.50"
        );
    }

    #[test]
    fn repeated_call_shows_count_and_code() {
        let rpc = |code: &str| Rpc {
            method: "X".into(),
            code: code.into(),
            started: "2026-01-01T00:00:01Z".parse().unwrap(),
            ended: "2026-01-01T00:00:03Z".parse().unwrap(),
        };
        let (good, bad) = (rpc("OK"), rpc("ABORTED"));
        assert_eq!(describe_calls("X", &[&good]), "X");
        assert_eq!(describe_calls("X", &[&bad, &good]), "X ×2 (ABORTED)");
        let record = Record {
            rpcs: vec![bad, good],
            requests: Vec::new(),
        };
        assert!((Row::call("step", "object", "X", &record).unwrap().seconds - 4.0).abs() < 1e-9);
        assert_eq!(Row::call("step", "object", "Y", &record), None);
    }
}
