// SPDX-License-Identifier: Apache-2.0
//! Finds changes for volumes, classes and settings when this driver replaces another installation.
//!
//! The function is pure. Its output contains no values of a Secret. Its input contains them in arguments, which are
//! compared and never shown.

mod authorities;
mod command_line;
mod configuration;
mod difference;
mod environment;
mod flags;
mod go;
mod keys;
mod old_configuration;
mod pods;
mod sidecars;
mod successor;

use std::collections::BTreeMap;
use std::fmt;

use cinder_csi_crds::CinderCSIDriverSpec;
use csi_sources::UntrustedText;
use serde::Serialize;

pub use authorities::Authorities;
pub use command_line::{OldContainer, PROGRAM};
pub use environment::{Argument, VariableValue, Variables};
pub use flags::is_proxy;
pub use old_configuration::{CloudsFile, ConfigurationText, OldConfiguration};
pub use pods::OldPods;
pub use sidecars::sidecar_program;
pub use successor::NewCredentials;

use super::secrets::{self, SecretReferences};
use super::zones::{self, ZoneLabelFacts};
use crate::class_parameters::{ClassParameters, REMEDY, unknown_parameters};

/// Maximum number of names per finding.
const NAMED: usize = 10;
/// Maximum number of names in a part of a sentence.
const SHOWN: usize = 3;

/// A difference between this driver and the other installation.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AdoptionFinding {
    /// Kind of the difference.
    pub reason: AdoptionFindingReason,
    /// The type of volume, the flag, the key or the parameter.
    pub subject: String,
    /// Number of affected objects.
    pub count: usize,
    /// Names of affected objects, at most 10.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Description of the change.
    pub message: String,
    /// Remedy. Empty if none exists.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

/// Kind of a difference.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptionFindingReason {
    /// Volumes with ReadWriteMany and a file system: this driver attaches them to one node at a time.
    SharedFileSystem,
    /// Installations in other namespaces, next to which the operator does not migrate.
    OtherNamespace,
    /// Pods with in-line volumes, which this driver does not serve.
    InlineVolume,
    /// A flag of the other installation that the operator does not set, or that has another meaning here.
    Flag,
    /// A controller that runs outside of the cluster that it serves. The operator does not migrate, even if an
    /// administrator accepts the finding.
    OutsideController,
    /// Directories, certificates, names and networks of the other installation's pods that the operator's pods lack.
    Environment,
    /// A key of the other installation's configuration that has another value in this driver, or no effect.
    ConfigurationKey,
    /// Secrets that PersistentVolumes, classes or snapshot contents reference and that the sidecars are not allowed
    /// to read.
    SecretAccess,
    /// Classes with Secrets that depend on the claim.
    SecretTemplate,
    /// Zone labels that this driver would report with another value.
    ZoneLabel,
    /// A parameter of a class that this driver does not know.
    UnknownParameter,
    /// Parameters of a class that this driver rejects.
    RefusedParameter,
    /// An object or a list that the operator could not read.
    NotChecked,
}

impl AdoptionFindingReason {
    /// Whether an administrator can accept the finding and migrate. Other findings would break existing volumes, and
    /// each has a remedy.
    pub fn can_be_accepted(self) -> bool {
        !matches!(self, Self::SecretAccess | Self::ZoneLabel | Self::OutsideController)
    }

    /// Whether no remedy of an administrator permits the migration.
    pub fn is_final(self) -> bool {
        self == Self::OutsideController
    }
}

/// Number of objects of a kind, and the first of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    count: usize,
    names: Vec<String>,
}

impl Sample {
    pub fn add(&mut self, name: impl Into<String>) {
        self.count += 1;
        if self.names.len() < NAMED {
            self.names.push(name.into());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the objects of another sample.
    pub(super) fn with(mut self, other: &Self) -> Self {
        self.count += other.count;
        let room = NAMED.saturating_sub(self.names.len());
        self.names.extend(other.names.iter().take(room).cloned());
        self
    }
}

impl fmt::Display for Sample {
    /// Writes the first names, for a part of a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&str> = self.names.iter().take(SHOWN).map(String::as_str).collect();
        f.write_str(&shown.join(", "))?;
        match self.count.saturating_sub(shown.len()) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl<T: Into<String>> FromIterator<T> for Sample {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        let mut sample = Self::default();
        names.into_iter().for_each(|name| sample.add(name));
        sample
    }
}

/// Facts about the other installation and its dependents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckFacts {
    /// Its containers.
    pub containers: Vec<OldContainer>,
    /// Pods of its workloads.
    pub pods: Vec<OldPods>,
    /// Configuration that each container of the driver reads.
    pub configurations: Vec<OldConfiguration>,
    /// Credentials of the spec, by the names of its clouds. Unreadable credentials are a gap.
    pub credentials: BTreeMap<String, NewCredentials>,
    /// CA bundles of the spec's clouds. Unreadable bundles are a gap.
    pub authorities: BTreeMap<String, Authorities>,
    /// Volumes with ReadWriteMany and a file system, by their claims.
    pub shared_volumes: Sample,
    /// Claims that wait for such a volume.
    pub shared_claims: Sample,
    /// Pods with in-line volumes.
    pub inline_pods: Sample,
    /// Workloads of installations in other namespaces.
    pub elsewhere: Sample,
    pub classes: Vec<ClassParameters>,
    /// Secrets that volumes, classes and snapshot contents reference.
    pub secrets: SecretReferences,
    /// Zone labels of nodes and volumes.
    pub zone_labels: ZoneLabelFacts,
    /// Parts that could not be checked.
    pub gaps: Vec<CheckGap>,
}

/// A part that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckGap {
    /// The part.
    pub what: String,
    /// The cause.
    pub why: String,
    pub remedy: &'static str,
}

/// Returns all findings, the most severe first.
pub fn findings(spec: &CinderCSIDriverSpec, facts: &CheckFacts) -> Vec<AdoptionFinding> {
    let counted = [
        finding(
            AdoptionFindingReason::OtherNamespace,
            "installations of the driver in other namespaces",
            &facts.elsewhere,
            "the operator does not migrate, because two controllers would serve the same volumes",
            "Remove them, or name their namespace in spec.adoption.namespace",
        ),
        finding(
            AdoptionFindingReason::SharedFileSystem,
            "PersistentVolumes with ReadWriteMany and a file system",
            &facts.shared_volumes,
            "this driver attaches such a volume to one node at a time, whatever its type allows, and refuses a second node \
             (FAILED_PRECONDITION)",
            "Run the pods that share it on one node, or use volumeMode Block or a shared file system such as Manila's",
        ),
        finding(
            AdoptionFindingReason::SharedFileSystem,
            "PersistentVolumeClaims with ReadWriteMany and a file system that have no volume yet",
            &facts.shared_claims,
            "this driver makes no such volume (INVALID_ARGUMENT)",
            "Ask for ReadWriteOnce, for volumeMode Block, or for a class of a shared file system such as Manila's",
        ),
        finding(
            AdoptionFindingReason::InlineVolume,
            "pods with in-line volumes (spec.volumes[].csi)",
            &facts.inline_pods,
            "this driver serves no in-line volumes: such a pod ends, its volume in Cinder remains, and it does not start again",
            "End these pods before the migration, and use generic ephemeral volumes (spec.volumes[].ephemeral.volumeClaimTemplate)",
        ),
    ];
    let parameters = unknown_parameters(&facts.classes)
        .into_iter()
        .map(|one| AdoptionFinding {
            reason: AdoptionFindingReason::UnknownParameter,
            subject: one.to_string(),
            count: 1,
            names: vec![format!("{} {}", one.kind.as_str(), one.class)],
            message: format!("the parameter {}", one.consequence()),
            remedy: REMEDY.to_owned(),
        });
    let gaps = facts.gaps.iter().map(|gap| AdoptionFinding {
        reason: AdoptionFindingReason::NotChecked,
        subject: gap.what.clone(),
        count: 0,
        names: Vec::new(),
        message: format!("what changes here is not known: {}", gap.why),
        remedy: gap.remedy.to_owned(),
    });
    let mut all: Vec<AdoptionFinding> = counted.into_iter().filter(|finding| finding.count > 0).collect();
    all.extend(secrets::findings(&facts.secrets));
    all.extend(zones::findings(spec, &facts.zone_labels));
    all.extend(flags::findings(spec, &facts.containers));
    all.extend(without_controller(&facts.containers));
    all.extend(pods::findings(spec, &facts.pods));
    all.extend(configuration::findings(spec, facts));
    all.extend(parameters);
    all.extend(refused_parameters(&facts.classes));
    all.extend(gaps);
    // The sort is stable and preserves the order of the others.
    all.sort_by_key(|finding| !finding.reason.is_final());
    all
}

/// Returns the gap of an installation without a controller in the namespace.
fn without_controller(containers: &[OldContainer]) -> Option<AdoptionFinding> {
    let drivers: Vec<&OldContainer> = containers.iter().filter(|one| one.is_driver()).collect();
    if drivers.is_empty() || drivers.iter().any(|one| one.serves_controller()) {
        return None;
    }
    let places: Sample = drivers.iter().map(|one| one.place()).collect();
    Some(finding(
        AdoptionFindingReason::NotChecked,
        "the controller of the other installation",
        &places,
        "what changes here is not known: the namespace has the driver on nodes, and no controller. A controller outside of the cluster \
         would serve the same volumes as this driver's",
        "Make sure that no controller runs in another namespace or outside of the cluster",
    ))
}

/// Returns the classes with parameters that this driver rejects.
fn refused_parameters(classes: &[ClassParameters]) -> Vec<AdoptionFinding> {
    let refused = classes.iter().filter_map(|class| {
        let why = class.refusal.as_deref()?;
        let name = format!("{} {}", class.kind.as_str(), class.name);
        Some(AdoptionFinding {
            reason: AdoptionFindingReason::RefusedParameter,
            subject: format!("parameters of {name}"),
            count: 1,
            names: vec![name],
            message: format!("this driver refuses the class (INVALID_ARGUMENT): {}", UntrustedText::new(why)),
            remedy: "Correct the value. Parameters of a StorageClass and of a VolumeAttributesClass cannot be changed: delete the class and \
                     create it again; volumes stay"
                .to_owned(),
        })
    });
    refused.collect()
}

pub(super) fn finding(
    reason: AdoptionFindingReason,
    subject: impl Into<String>,
    sample: &Sample,
    message: impl Into<String>,
    remedy: impl Into<String>,
) -> AdoptionFinding {
    AdoptionFinding {
        reason,
        subject: subject.into(),
        count: sample.count,
        names: sample.names.clone(),
        message: message.into(),
        remedy: remedy.into(),
    }
}

#[cfg(test)]
mod tests;
