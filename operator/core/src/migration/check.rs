// SPDX-License-Identifier: Apache-2.0
//! Finds changes for volumes, classes and settings when this driver replaces another installation.
//!
//! The function is pure. Its output contains settings of the files in Secrets that are not secret: addresses without
//! users, regions, paths, and the names and ids of users and projects. Its input contains other values of Secrets, which
//! are compared and never shown.

mod addresses;
mod authorities;
mod command_line;
mod configuration;
mod difference;
mod environment;
mod facts;
mod flags;
mod go;
mod identity;
mod keys;
mod old_configuration;
mod pods;
mod proxies;
mod sidecars;
mod successor;

use cinder_csi_crds::CinderCSIDriverSpec;
use csi_sources::UntrustedText;

pub use authorities::Authorities;
pub use command_line::{OldContainer, PROGRAM, runs_driver};
pub use environment::{Argument, ProxyVariables, VariableValue, Variables};
pub use facts::CheckFacts;
pub use old_configuration::{CloudsFile, ConfigurationText, OldConfiguration};
pub use pods::OldPods;
pub use sidecars::sidecar_program;
pub use successor::NewCredentials;

pub use super::finding::{AdoptionFinding, AdoptionFindingReason, CheckGap, Sample};

use super::finding::finding;
use super::{secrets, zones};
use crate::class_parameters::{ClassParameters, REMEDY, unknown_parameters};

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
    all.extend(proxies::findings(spec, facts));
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

#[cfg(test)]
mod tests;
