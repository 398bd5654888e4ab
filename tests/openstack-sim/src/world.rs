//! The state machine of volumes, snapshots and attachments. No clock, no network, no files: every change that takes time
//! has a method that begins it and one that ends it.

mod attachments;
mod snapshots;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::{Fault, new_id};
use crate::config::{Quota, ServerSpec, VolumeType};
use crate::state::{Attachment, CloudState, Mapping, Server, Snapshot, UserMessage, Volume};

pub(crate) use attachments::NewMapping;
pub(crate) use snapshots::NewSnapshot;
pub(crate) use volumes::NewVolume;

/// What does not change while the cloud runs.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) zones: Vec<String>,
    pub(crate) volume_types: Vec<VolumeType>,
    pub(crate) quota: Quota,
    pub(crate) volumes_per_server: usize,
}

/// All that the cloud holds.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) volumes: BTreeMap<String, Volume>,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
    /// By volume.
    pub(crate) attachments: BTreeMap<String, Vec<Attachment>>,
    /// By volume.
    pub(crate) mappings: BTreeMap<String, Vec<Mapping>>,
    pub(crate) servers: BTreeMap<String, Server>,
    pub(crate) messages: Vec<UserMessage>,
}

impl World {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            volumes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            attachments: BTreeMap::new(),
            mappings: BTreeMap::new(),
            servers: BTreeMap::new(),
            messages: Vec::new(),
        }
    }

    /// Takes up what an earlier run left. Servers are the configuration's business: what is attached to a server that no
    /// longer exists stays behind as Cinder's record, as after a server's deletion by force.
    pub(crate) fn restore(&mut self, state: CloudState) {
        self.volumes = state
            .volumes
            .into_iter()
            .map(|volume| (volume.id.clone(), volume))
            .collect();
        self.snapshots = state
            .snapshots
            .into_iter()
            .map(|snapshot| (snapshot.id.clone(), snapshot))
            .collect();
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
            attachments: self.attachments.values().flatten().cloned().collect(),
            mappings: self.mappings.values().flatten().cloned().collect(),
            servers: self.servers.values().cloned().collect(),
            messages: self.messages.clone(),
        }
    }

    pub(crate) fn add_server(&mut self, spec: ServerSpec) {
        let server = Server {
            vm_state: "active".to_owned(),
            task_state: None,
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

    fn volume_mut(&mut self, id: &str) -> Result<&mut Volume, Fault> {
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

    /// Leaves a message for the user of a volume.
    pub(crate) fn tell(&mut self, volume_id: &str, request_id: &str, event_id: &str, text: &str) {
        self.messages.push(UserMessage {
            id: new_id(),
            volume_id: volume_id.to_owned(),
            request_id: request_id.to_owned(),
            event_id: event_id.to_owned(),
            text: text.to_owned(),
            created_at: Timestamp::now(),
        });
    }
}

fn no_volume(id: &str) -> Fault {
    Fault::not_found(format!("Volume {id} could not be found."))
}
