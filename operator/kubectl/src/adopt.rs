// SPDX-License-Identifier: Apache-2.0
//! `adopt --check` of the plugin: reports the changes that a migration from another installation would cause. It reads
//! with the rights of the user.

use std::{collections::BTreeSet, fmt, path::Path};

use cinder_csi_crds::{CinderCSIDriver, Cloud};
use cinder_csi_operator::{
    commands::render::read_driver,
    migration::{Successor, adoption_check, review_secrets},
    observe::discover,
};
use cinder_operator_core::{
    manifests::controller_account_of,
    migration::{
        check::{self, AdoptionFinding},
        secrets::SidecarAccount,
    },
    resolve::namespace_of,
    text::join_truncated,
};
use csi_sources::UntrustedText;
use kube::{Client, ResourceExt};
use serde::Serialize;

use crate::{client::list_drivers, error::PluginError};

/// Maximum number of zones of a cloud in the status.
const LISTED_ZONES: usize = 32;

/// Maximum number of characters of a part of a finding.
const LONGEST_TEXT: usize = 4_000;

/// The changes for one driver.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AdoptionReport {
    pub(crate) driver: String,
    /// The namespace that was checked.
    pub(crate) namespace: String,
    /// Whether the namespace contains an installation that does not belong to the operator.
    pub(crate) is_found: bool,
    /// The changes, most severe first.
    pub(crate) findings: Vec<AdoptionFinding>,
}

impl AdoptionReport {
    /// Whether anything changes, or could not be checked.
    pub(crate) fn differs(&self) -> bool {
        !self.findings.is_empty()
    }
}

/// Checks drivers against the other installation. The drivers are the one in `file`, the one called `name`, or all.
/// `namespace` is that of the other installation and defaults to the value in the spec; `operators` is the operator's
/// namespace.
pub(crate) async fn reports(
    client: &Client,
    name: Option<&str>,
    file: Option<&Path>,
    namespace: Option<&str>,
    operators: &str,
) -> Result<Vec<AdoptionReport>, PluginError> {
    let drivers: Vec<CinderCSIDriver> = match file {
        Some(file) => vec![read_driver(file)?],
        None => list_drivers(client, name).await?,
    };
    let apis = discover(client).await;
    let mut reports = Vec::new();
    for driver in drivers {
        let (name, spec) = (driver.name_any(), &driver.spec);
        let namespace = namespace.unwrap_or(&spec.adoption.namespace);
        let successor = Successor {
            spec,
            namespace: namespace_of(&driver, operators),
        };
        let mut facts = adoption_check(client, &name, namespace, apis, successor, true).await;
        let account = SidecarAccount {
            namespace: namespace_of(&driver, operators).to_owned(),
            name: controller_account_of(&driver),
        };
        review_secrets(client, account, &mut facts.secrets).await;
        facts.zone_labels.compute_zones = compute_zones(&driver);
        let topology = driver.status.as_ref().and_then(|status| status.topology.as_ref());
        facts.zone_labels.is_enabled = topology.map(|topology| topology.enabled);
        reports.push(AdoptionReport {
            driver: name,
            namespace: namespace.to_owned(),
            is_found: !facts.containers.is_empty(),
            findings: check::findings(spec, &facts),
        });
    }
    Ok(reports)
}

/// The Nova zones in the status; `None` if the zones of a cloud are missing or exceed the limit of the status.
fn compute_zones(driver: &CinderCSIDriver) -> Option<BTreeSet<String>> {
    let status = driver.status.as_ref()?;
    let of_cloud = |cloud: &Cloud| {
        let known = status.clouds.iter().find(|known| known.name == cloud.name)?;
        let zones = &known.compute_zones;
        (!zones.is_empty() && zones.len() < LISTED_ZONES).then_some(zones)
    };
    let zones: Option<Vec<&Vec<String>>> = driver.spec.clouds.iter().map(of_cloud).collect();
    Some(zones?.into_iter().flatten().cloned().collect())
}

impl fmt::Display for AdoptionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [driver, namespace] = [&self.driver, &self.namespace].map(|text| UntrustedText::new(text));
        match self.findings.len() {
            0 => writeln!(
                f,
                "{driver}: no findings; the migration does not affect volumes and classes"
            )?,
            1 => writeln!(f, "{driver}: 1 finding")?,
            count => writeln!(f, "{driver}: {count} findings")?,
        }
        if !self.is_found {
            writeln!(
                f,
                "Note: no other installation of the driver was found in namespace {namespace}; -n names another one"
            )?;
        }
        for finding in &self.findings {
            let AdoptionFinding {
                reason,
                subject,
                message,
                remedy,
                ..
            } = finding;
            writeln!(f, "\n{reason:?}: {}", UntrustedText::new(subject))?;
            if finding.count > 0 {
                let more = finding.count.saturating_sub(finding.names.len());
                let more = if more == 0 {
                    String::new()
                } else {
                    format!(" and {more} more")
                };
                let names = join_truncated(&finding.names);
                writeln!(f, "  In: {}{more}", UntrustedText::with_limit(&names, LONGEST_TEXT))?;
            }
            writeln!(f, "  Changes: {}.", UntrustedText::with_limit(message, LONGEST_TEXT))?;
            if !remedy.is_empty() {
                writeln!(f, "  Remedy: {}.", UntrustedText::with_limit(remedy, LONGEST_TEXT))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cinder_operator_core::migration::check::AdoptionFindingReason;

    use super::*;

    #[test]
    fn report_lists_changes_with_remedy() {
        let report = AdoptionReport {
            driver: "d".to_owned(),
            namespace: "kube-system".to_owned(),
            is_found: true,
            findings: vec![
                AdoptionFinding {
                    reason: AdoptionFindingReason::SharedFileSystem,
                    subject: "volumes".to_owned(),
                    count: 3,
                    names: vec!["n/a".to_owned(), "n/b".to_owned()],
                    message: "they attach to one node".to_owned(),
                    remedy: "Use Block".to_owned(),
                },
                AdoptionFinding {
                    reason: AdoptionFindingReason::NotChecked,
                    subject: "pods".to_owned(),
                    count: 0,
                    names: Vec::new(),
                    message: "Forbidden".to_owned(),
                    remedy: String::new(),
                },
            ],
        };
        assert!(report.differs());
        assert_eq!(
            report.to_string(),
            "\
d: 2 findings

SharedFileSystem: volumes
  In: n/a, n/b and 1 more
  Changes: they attach to one node.
  Remedy: Use Block.

NotChecked: pods
  Changes: Forbidden.
"
        );
    }

    #[test]
    fn report_without_findings_names_the_namespace() {
        let report = AdoptionReport {
            driver: "d".to_owned(),
            namespace: "storage".to_owned(),
            ..AdoptionReport::default()
        };
        let text = report.to_string();
        assert!(!report.differs());
        assert!(
            text.starts_with("d: no findings") && text.contains("namespace storage; -n"),
            "{text}"
        );
    }
}
