// SPDX-License-Identifier: Apache-2.0
//! Findings of the check before a migration, samples of affected objects, and parts that could not be checked.

use std::fmt;

use serde::Serialize;

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
    /// Credentials of another project, in which Cinder does not find the existing volumes.
    OtherProject,
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
        !matches!(
            self,
            Self::SecretAccess | Self::ZoneLabel | Self::OtherProject | Self::OutsideController
        )
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

/// A part that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckGap {
    /// The part.
    pub what: String,
    /// The cause.
    pub why: String,
    pub remedy: &'static str,
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
