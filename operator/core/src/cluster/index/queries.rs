// SPDX-License-Identifier: Apache-2.0
//! Queries of the index: the nodes, registrations, volumes and pods of a driver.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Index;
use crate::cluster::{
    attachments::AttachmentObject,
    blockers::Blockers,
    claims::ClaimObject,
    facts::{AttachmentFact, ClaimFact, DefaultClassMark, DriverRegistration, NodePod, Owned, VolumeFact},
    guarded::unknown_object,
    node_objects::{NodeObject, RegistrationObject, server_id},
    nodes::NodeFacts,
    volumes::VolumeObject,
};

/// Number of objects of a driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeCount {
    /// Number of PersistentVolumes of the driver.
    pub volumes: usize,
    /// Number of VolumeAttachments of the driver.
    pub attachments: usize,
}

impl Index {
    /// Returns the StorageClasses that are marked as the default, the oldest first.
    pub fn default_classes(&self) -> Vec<DefaultClassMark> {
        let mut marked: Vec<_> = self.classes.values().filter_map(|class| class.marked.clone()).collect();
        marked.sort();
        marked
    }

    /// Returns the number of PersistentVolumes of the driver that are restricted to some nodes.
    pub fn zoned_volumes_of(&self, driver: &str) -> usize {
        let is_zoned = |volume: &&VolumeFact| volume.driver == driver && volume.is_zoned;
        self.volumes.values().filter(is_zoned).count()
    }

    pub fn nodes(&self) -> Vec<&NodeFacts> {
        self.nodes.values().collect()
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len() + self.unknown::<NodeObject>(&self.nodes).count()
    }

    /// Returns the nodes whose kubelet has registered the driver.
    pub fn registered_on(&self, driver: &str) -> BTreeSet<String> {
        let has = |(node, drivers): (&String, &BTreeMap<String, DriverRegistration>)| {
            drivers.contains_key(driver).then(|| node.clone())
        };
        self.registrations.iter().filter_map(has).collect()
    }

    /// Returns the nodes whose kubelet has or may have registered the driver: first the Ready nodes and then the
    /// others, each sorted.
    pub fn registered_by_readiness(&self, driver: &str) -> (Vec<String>, Vec<String>) {
        let mut all = self.registered_on(driver);
        all.extend(self.unknown::<RegistrationObject>(&self.registrations).cloned());
        all.into_iter().partition(|name| self.is_ready(name))
    }

    /// Describes the nodes that the driver registered as another server than the one in their providerID, sorted.
    /// Volumes of pods there are attached to the registered server. Nodes with unknown or outdated information about
    /// one of the two are omitted.
    pub fn misidentified_nodes(&self, driver: &str) -> Vec<String> {
        let nodes = self.undecodable_of::<NodeObject>();
        let stale: BTreeSet<&String> = nodes.chain(self.undecodable_of::<RegistrationObject>()).collect();
        let current = self.registrations.iter().filter(|(node, _)| !stale.contains(node));
        let described = current.filter_map(|(node, drivers)| {
            let registered = server_id(&drivers.get(driver)?.node_id)?;
            let server = self.nodes.get(node)?.server.as_ref()?;
            (*server != registered)
                .then(|| format!("{node} (registered as {registered}, and its providerID names {server})"))
        });
        let mut described: Vec<String> = described.collect();
        described.sort();
        described
    }

    pub fn registration(&self, node: &str, driver: &str) -> Option<&DriverRegistration> {
        self.registrations.get(node)?.get(driver)
    }

    pub fn node(&self, name: &str) -> Option<&NodeFacts> {
        self.nodes.get(name)
    }

    /// Returns the objects that need the driver, as far as they are watched. A reported object is certain. Only the
    /// API server can confirm that none exists.
    pub fn blockers(&self, driver: &str, ignore_retained: bool) -> Blockers {
        let counts = |volume: &VolumeFact| !(ignore_retained && volume.is_retained);
        let volumes = self.volume_facts(driver).filter(|(_, volume)| counts(volume));
        let mut volumes: Vec<String> = volumes.map(|(name, _)| name.clone()).collect();
        let claims = self
            .claim_facts(driver)
            .filter(|claim| claim.provisioning_since.is_some());
        let mut claims: Vec<String> = claims
            .map(|claim| format!("{}/{}", claim.claim.namespace, claim.claim.name))
            .collect();
        let mut attachments = self.attachments_of(driver);
        volumes.extend(
            self.unknown::<VolumeObject>(&self.volumes)
                .map(|name| unknown_object(name)),
        );
        attachments.extend(
            self.unknown::<AttachmentObject>(&self.attachments)
                .map(|name| unknown_object(name)),
        );
        claims.extend(
            self.unknown::<ClaimObject>(&self.claims)
                .map(|name| unknown_object(name)),
        );
        volumes.sort();
        attachments.sort();
        claims.sort();
        Blockers {
            volumes,
            attachments,
            claims,
            ..Blockers::default()
        }
    }

    /// Returns the node pods of the driver, by the names of their nodes.
    pub fn node_pods_of(&self, driver: &str) -> Vec<NodePod> {
        let mut pods: Vec<NodePod> = self
            .pods
            .values()
            .filter(|fact| fact.driver == driver)
            .map(|fact| fact.pod.clone())
            .collect();
        pods.sort_by(|one, other| (&one.node, &one.name).cmp(&(&other.node, &other.name)));
        pods
    }

    /// Returns the nodes with the last node pods of the driver if none of these nodes is Ready, sorted. Empty if a
    /// node pod exists on a Ready node.
    pub fn stranded_node_pods(&self, driver: &str) -> Vec<String> {
        let nodes: BTreeSet<String> = self.node_pods_of(driver).into_iter().map(|pod| pod.node).collect();
        if nodes.iter().any(|node| self.is_ready(node)) {
            return Vec::new();
        }
        nodes.into_iter().collect()
    }

    /// Whether the kubelet of a node responds, or may respond because the Node does not decode. False for a node that
    /// does not exist.
    pub fn is_ready(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| node.ready) || self.is_unknown_node(node)
    }

    /// Whether a node exists and its content is unknown.
    pub fn is_unknown_node(&self, node: &str) -> bool {
        self.unknown::<NodeObject>(&self.nodes).any(|name| name == node)
    }

    /// Returns the VolumeAttachments of the driver, sorted.
    pub fn attachments_of(&self, driver: &str) -> Vec<String> {
        names_of(&self.attachments, driver)
    }

    /// Counts the PersistentVolumes and VolumeAttachments of the driver. Objects with unknown content count, because
    /// they may belong to this driver.
    pub fn count_of(&self, driver: &str) -> VolumeCount {
        VolumeCount {
            volumes: count(&self.volumes, driver) + self.unknown::<VolumeObject>(&self.volumes).count(),
            attachments: count(&self.attachments, driver) + self.unknown::<AttachmentObject>(&self.attachments).count(),
        }
    }

    pub fn volume(&self, name: &str) -> Option<&VolumeFact> {
        self.volumes.get(name)
    }

    /// Returns all PersistentVolumes of a driver.
    pub fn volume_facts<'a>(&'a self, driver: &'a str) -> impl Iterator<Item = (&'a String, &'a VolumeFact)> {
        self.volumes.iter().filter(move |(_, volume)| volume.driver == driver)
    }

    /// Returns all VolumeAttachments of a driver.
    pub fn attachment_facts<'a>(&'a self, driver: &'a str) -> impl Iterator<Item = (&'a String, &'a AttachmentFact)> {
        self.attachments
            .iter()
            .filter(move |(_, attachment)| attachment.attacher == driver)
    }

    /// Returns the VolumeAttachments of a driver with a pending or possibly pending operation, sorted.
    pub fn attachments_under_way(&self, driver: &str) -> Vec<String> {
        let all = self.attachment_facts(driver);
        let under_way = all.filter(|(_, attachment)| !attachment.attached || attachment.deleted.is_some());
        let mut names: Vec<String> = under_way.map(|(name, _)| name.clone()).collect();
        let may_be_of = |name: &str| self.attachments.get(name).is_none_or(|fact| fact.attacher == driver);
        names.extend(self.uncertain::<AttachmentObject>(may_be_of));
        names.sort();
        names
    }

    /// Returns the PersistentVolumes that have or may have the attributes of a class, each with its claim, sorted.
    pub fn volumes_with_attributes(&self, class: &str) -> Vec<String> {
        let all = self.volumes.iter();
        let have = all.filter(|(_, volume)| volume.attributes_class.as_deref() == Some(class));
        let described = have.map(|(name, volume)| match &volume.claim {
            Some(claim) => format!("{name} (claim {}/{})", claim.namespace, claim.name),
            None => name.clone(),
        });
        let mut names: Vec<String> = described.collect();
        names.extend(self.uncertain::<VolumeObject>(|_| true));
        names.sort();
        names
    }

    /// Returns all claims of a driver with a pending operation.
    pub fn claim_facts<'a>(&'a self, driver: &'a str) -> impl Iterator<Item = &'a ClaimFact> {
        self.claims.values().filter(move |claim| claim.driver == driver)
    }
}

fn names_of<T: Owned>(table: &HashMap<String, T>, driver: &str) -> Vec<String> {
    let mut names: Vec<String> = table
        .iter()
        .filter(|(_, fact)| fact.driver() == driver)
        .map(|(name, _)| name.clone())
        .collect();
    names.sort();
    names
}

fn count<T: Owned>(table: &HashMap<String, T>, driver: &str) -> usize {
    table.values().filter(|fact| fact.driver() == driver).count()
}
