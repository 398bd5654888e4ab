// SPDX-License-Identifier: Apache-2.0
//! Facts that the check compares.

use std::collections::BTreeMap;

use super::{
    authorities::Authorities, command_line::OldContainer, old_configuration::OldConfiguration, pods::OldPods,
    successor::NewCredentials,
};
use crate::class_parameters::ClassParameters;
use crate::migration::{
    finding::{CheckGap, Sample},
    secrets::SecretReferences,
    zones::ZoneLabelFacts,
};

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
