// SPDX-License-Identifier: Apache-2.0
//! The state machine of volumes, snapshots, backups, groups and attachments. It uses no clock, network or files. Every
//! asynchronous change has a method that begins it and one that ends it.

mod attachments;
mod backups;
mod group_snapshots;
mod groups;
mod guests;
mod quotas;
mod shelving;
mod snapshots;
#[cfg(test)]
mod tests;
mod types;
mod volumes;

use std::collections::BTreeMap;

use csi_sources::Sources;

use crate::api::Fault;
use crate::config::{Pool, Quota, ServerSpec, VolumeType};
use crate::state::{
    Attachment, Backup, CloudState, Group, GroupSnapshot, GroupType, Mapping, Server, Snapshot, UserMessage, Volume,
};

pub(crate) use backups::NewBackup;
pub(crate) use group_snapshots::NewGroupSnapshot;
pub(crate) use groups::{GroupChange, NewGroup};
pub(crate) use guests::{Caller, NewMapping, NextStep};
pub(crate) use shelving::DeviceChanges;
pub(crate) use snapshots::NewSnapshot;
pub(crate) use types::Retype;
pub(crate) use volumes::NewVolume;

/// Settings that do not change at run time.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) zones: Vec<String>,
    pub(crate) compute_zones: Vec<String>,
    pub(crate) volume_types: Vec<VolumeType>,
    pub(crate) group_types: Vec<GroupType>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) quota: Quota,
    pub(crate) volumes_per_server: usize,
    pub(crate) clones_hold_sources: bool,
    pub(crate) backups: bool,
    pub(crate) copies_across_zones: bool,
}

/// The resource type of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject {
    Volume,
    Snapshot,
    Backup,
}

impl Subject {
    fn as_str(self) -> &'static str {
        match self {
            Self::Volume => "VOLUME",
            Self::Snapshot => "VOLUME_SNAPSHOT",
            Self::Backup => "VOLUME_BACKUP",
        }
    }
}

/// Complete state of the cloud.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) rules: Rules,
    sources: Sources,
    pub(crate) volumes: BTreeMap<String, Volume>,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
    pub(crate) backups: BTreeMap<String, Backup>,
    pub(crate) groups: BTreeMap<String, Group>,
    pub(crate) group_snapshots: BTreeMap<String, GroupSnapshot>,
    /// Attachments by volume.
    pub(crate) attachments: BTreeMap<String, Vec<Attachment>>,
    /// Mappings by volume.
    pub(crate) mappings: BTreeMap<String, Vec<Mapping>>,
    pub(crate) servers: BTreeMap<String, Server>,
    pub(crate) messages: Vec<UserMessage>,
}

impl World {
    pub(crate) fn new(rules: Rules, sources: Sources) -> Self {
        Self {
            rules,
            sources,
            volumes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            backups: BTreeMap::new(),
            groups: BTreeMap::new(),
            group_snapshots: BTreeMap::new(),
            attachments: BTreeMap::new(),
            mappings: BTreeMap::new(),
            servers: BTreeMap::new(),
            messages: Vec::new(),
        }
    }

    /// Restores the state of an earlier run. Servers come from the configuration. For a server that no longer exists,
    /// Cinder's attachments remain, as after a force-delete of the server.
    pub(crate) fn restore(&mut self, state: CloudState) {
        self.volumes = by_id(state.volumes, |volume| &volume.id);
        self.snapshots = by_id(state.snapshots, |snapshot| &snapshot.id);
        self.backups = by_id(state.backups, |backup| &backup.id);
        self.groups = by_id(state.groups, |group| &group.id);
        self.group_snapshots = by_id(state.group_snapshots, |snapshot| &snapshot.id);
        for attachment in state.attachments {
            self.attachments
                .entry(attachment.volume_id.clone())
                .or_default()
                .push(attachment);
        }
        for mapping in state.mappings {
            if self.servers.contains_key(&mapping.server_id) {
                self.mappings
                    .entry(mapping.volume_id.clone())
                    .or_default()
                    .push(mapping);
            }
        }
        self.messages = state.messages;
    }

    pub(crate) fn state(&self) -> CloudState {
        CloudState {
            volumes: self.volumes.values().cloned().collect(),
            snapshots: self.snapshots.values().cloned().collect(),
            backups: self.backups.values().cloned().collect(),
            groups: self.groups.values().cloned().collect(),
            group_snapshots: self.group_snapshots.values().cloned().collect(),
            attachments: self.attachments.values().flatten().cloned().collect(),
            mappings: self.mappings.values().flatten().cloned().collect(),
            servers: self.servers.values().cloned().collect(),
            messages: self.messages.clone(),
        }
    }

    fn new_id(&self) -> String {
        self.sources.uuid().to_string()
    }

    pub(crate) fn add_server(&mut self, spec: ServerSpec) {
        let server = Server {
            vm_state: "active".to_owned(),
            task_state: None,
            locked: false,
            host_down: false,
            spec,
        };
        self.servers.insert(server.spec.id.clone(), server);
    }

    pub(crate) fn server(&self, id: &str) -> Result<&Server, Fault> {
        self.servers
            .get(id)
            .ok_or_else(|| Fault::not_found(format!("Instance {id} could not be found.")))
    }

    pub(crate) fn volume(&self, id: &str) -> Result<&Volume, Fault> {
        self.volumes.get(id).ok_or_else(|| no_volume(id))
    }

    pub(crate) fn volume_mut(&mut self, id: &str) -> Result<&mut Volume, Fault> {
        self.volumes.get_mut(id).ok_or_else(|| no_volume(id))
    }

    pub(crate) fn attachments_of(&self, volume_id: &str) -> &[Attachment] {
        self.attachments.get(volume_id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn mappings_of(&self, volume_id: &str) -> &[Mapping] {
        self.mappings.get(volume_id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn mapping(&self, volume_id: &str, server_id: &str) -> Option<&Mapping> {
        self.mappings_of(volume_id)
            .iter()
            .find(|mapping| mapping.server_id == server_id)
    }

    pub(crate) fn mappings_on<'a>(&'a self, server_id: &'a str) -> impl Iterator<Item = &'a Mapping> {
        self.mappings
            .values()
            .flatten()
            .filter(move |mapping| mapping.server_id == server_id)
    }

    /// Adds a user message. `event` has Cinder's numbers of action and detail, for example `001_003`.
    pub(crate) fn add_message(&mut self, subject: Subject, id: &str, request_id: &str, event: &str, text: &str) {
        let now = self.sources.now();
        self.messages.push(UserMessage {
            id: self.new_id(),
            resource_type: subject.as_str().to_owned(),
            resource_id: id.to_owned(),
            request_id: request_id.to_owned(),
            event_id: format!("VOLUME_{}_{event}", subject.as_str()),
            text: text.to_owned(),
            created_at: now,
        });
    }
}

fn by_id<T>(items: Vec<T>, id: impl Fn(&T) -> &String) -> BTreeMap<String, T> {
    items.into_iter().map(|item| (id(&item).clone(), item)).collect()
}

fn no_volume(id: &str) -> Fault {
    Fault::not_found(format!("Volume {id} could not be found."))
}
