// SPDX-License-Identifier: Apache-2.0
//! A report for people.

use std::fmt::{self, Write as _};

use super::{ClaimReport, GONE};
use crate::commands::table::write_notes;

impl ClaimReport {
    /// What is said when nothing is under way.
    fn rest(&self) -> &'static str {
        match self.phase.as_str() {
            "Bound" => "It is bound, and nothing waits for its volume: as far as Kubernetes knows, all is well.",
            "Lost" => "Its PersistentVolume does not exist any more.",
            GONE => {
                "Its volume stays, and nothing is under way with it: the PersistentVolume's reclaim policy is Retain."
            }
            _ => "No volume was asked for yet.",
        }
    }
}

impl fmt::Display for ClaimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim {}: {}", self.claim, self.phase)?;
        if let Some(volume) = &self.persistent_volume {
            write!(f, ", PersistentVolume {volume}")?;
        }
        if let Some(id) = &self.volume_id {
            write!(f, ", volume {id} in Cinder")?;
        }
        if let Some(driver) = &self.driver {
            write!(f, ", driver {driver}")?;
        }
        writeln!(f)?;
        for pod in &self.pods {
            let mut line = format!("Pod {}: {}", pod.name, pod.phase);
            if let Some(node) = &pod.node {
                write!(line, ", on node {node}")?;
            }
            if let Some(why) = &pod.unscheduled {
                write!(line, ", no node: {why}")?;
            }
            writeln!(f, "{line}")?;
        }
        if self.operations.is_empty() {
            writeln!(f, "\n{}", self.rest())?;
        }
        for operation in &self.operations {
            let node = operation.node.as_ref().map(|node| format!(", node {node}"));
            let verdict = if operation.is_overdue {
                "longer than it may take"
            } else {
                "still within the usual time"
            };
            writeln!(
                f,
                "\n{} ({}{})",
                operation.operation,
                operation.object,
                node.unwrap_or_default()
            )?;
            writeln!(f, "  since:      {:.0}, {verdict}", operation.since)?;
            if let Some(status) = &operation.cinder_status {
                writeln!(f, "  in Cinder:  {status}")?;
            }
            writeln!(f, "  cause:      {}", operation.reason)?;
            writeln!(f, "  what to do: {}", operation.hint)?;
        }
        write_notes(f, &self.notes)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use rstest::rstest;

    use super::*;
    use crate::commands::plugin::diagnose::{OperationLine, PodLine};

    fn mk() -> ClaimReport {
        ClaimReport {
            claim: "n/data".to_owned(),
            phase: "Bound".to_owned(),
            driver: Some("d".to_owned()),
            persistent_volume: Some("pv".to_owned()),
            volume_id: Some("id".to_owned()),
            pods: vec![PodLine {
                name: "web".to_owned(),
                phase: "Pending".to_owned(),
                node: None,
                unscheduled: Some("0/2 nodes are available".to_owned()),
            }],
            operations: vec![OperationLine {
                operation: "Attach".to_owned(),
                object: "VolumeAttachment va".to_owned(),
                node: Some("n1".to_owned()),
                since: Timestamp::from_second(1_800_000_000).expect("a time"),
                is_overdue: true,
                cinder_status: Some("available".to_owned()),
                reason: "CredentialsRefused".to_owned(),
                hint: "fix the Secret".to_owned(),
            }],
            notes: vec!["a note".to_owned()],
        }
    }

    #[test]
    fn a_person_reads_what_since_when_why_and_what_to_do() {
        insta::assert_snapshot!(mk());
    }

    #[rstest]
    #[case("Bound", "all is well")]
    #[case("Pending", "No volume was asked for")]
    #[case("Lost", "does not exist any more")]
    #[case(GONE, "Retain")]
    fn who_waits_for_nothing_is_told_so(#[case] phase: &str, #[case] words: &str) {
        let report = ClaimReport {
            phase: phase.to_owned(),
            operations: Vec::new(),
            notes: Vec::new(),
            ..mk()
        };
        assert!(report.to_string().contains(words), "{report}");
    }
}
