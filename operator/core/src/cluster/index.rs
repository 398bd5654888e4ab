// SPDX-License-Identifier: Apache-2.0
//! Index of the cluster: nodes, registrations, volumes and attachments, reduced to the facts that decisions need. A
//! cluster with ten thousand volumes needs a few megabytes.
//!
//! Watches update the index, which is only a cache. Irreversible decisions query the API server again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::Resource;

use super::{
    facts::{AttachmentFact, ClaimFact, ClassFact, DriverRegistration, PodFact, VolumeFact},
    guarded::{UndecodableObject, unknown_object},
    nodes::NodeFacts,
    objects::key_of,
};

pub(super) mod queries;

/// Converts a watched object into the fact that the index stores.
pub trait Indexed: Resource<DynamicType = ()> {
    /// The stored fact.
    type Kept: PartialEq + Clone + Send + 'static;

    /// Effect of a change.
    const SCOPE: Scope = Scope::Whole;

    /// Returns the fact, or `None` if the object is irrelevant.
    fn keep(&self) -> Option<Self::Kept>;

    /// Returns the drivers that a change of this fact affects.
    fn affected(fact: &Self::Kept) -> Affected;

    /// The table of the index for this kind.
    fn table(index: &mut Index) -> &mut HashMap<String, Self::Kept>;
}

/// Scope of the reconcile after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The whole driver.
    Whole,
    /// Only operations on volumes, which the index reports. No object of a driver depends on them.
    Volumes,
}

/// Drivers that a change affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Affected {
    All,
    Drivers(BTreeSet<String>),
}

impl Affected {
    /// Returns the union of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Drivers(mut one), Self::Drivers(other)) => {
                one.extend(other);
                Self::Drivers(one)
            }
            _ => Self::All,
        }
    }

    pub fn includes(&self, driver: &str) -> bool {
        match self {
            Self::All => true,
            Self::Drivers(names) => names.contains(driver),
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Drivers(names) if names.is_empty())
    }
}

impl Default for Affected {
    fn default() -> Self {
        Self::Drivers(BTreeSet::new())
    }
}

/// Facts by the names of the objects.
#[derive(Debug, Default)]
pub struct Index {
    pub(super) nodes: HashMap<String, NodeFacts>,
    pub(super) registrations: HashMap<String, BTreeMap<String, DriverRegistration>>,
    pub(super) volumes: HashMap<String, VolumeFact>,
    pub(super) claims: HashMap<String, ClaimFact>,
    pub(super) classes: HashMap<String, ClassFact>,
    pub(super) attachments: HashMap<String, AttachmentFact>,
    pub(super) pods: HashMap<String, PodFact>,
    /// Objects that do not decode: the cause, by plural name of the kind and name of the object. The last known facts
    /// about them remain valid.
    undecodable: BTreeMap<(String, String), String>,
}

impl Index {
    /// Stores an object, and returns the affected drivers. The result is empty if nothing changed.
    pub fn put<K: Indexed>(&mut self, object: &K) -> Affected {
        let name = key_of(object.meta());
        let Some(fact) = object.keep() else {
            return self.remove::<K>(&name);
        };
        let decodes_again = self.forget_undecodable::<K>(&name);
        let now = K::affected(&fact);
        let changed = match K::table(self).insert(name, fact.clone()) {
            Some(old) if old == fact => Affected::default(),
            Some(old) => now.and(K::affected(&old)),
            None => now,
        };
        changed.and(decodes_again)
    }

    /// Records an object that does not decode. Facts from an earlier version of it are retained.
    pub fn put_undecodable<K: Indexed>(&mut self, object: &UndecodableObject) -> Affected {
        let key = (K::plural(&()).into_owned(), key_of(&object.metadata));
        match self.undecodable.insert(key, object.reason.clone()) {
            Some(old) if old == object.reason => Affected::default(),
            _ => Affected::All,
        }
    }

    fn forget_undecodable<K: Indexed>(&mut self, name: &str) -> Affected {
        // Few objects have an entry, and this function receives every object.
        if self.undecodable.is_empty() {
            return Affected::default();
        }
        let key = (K::plural(&()).into_owned(), name.to_owned());
        match self.undecodable.remove(&key) {
            Some(_) => Affected::All,
            None => Affected::default(),
        }
    }

    /// Returns the objects that do not decode, sorted: plural name of the kind, name and cause.
    pub fn undecodable(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let all = self.undecodable.iter();
        all.map(|((kind, name), reason)| (kind.as_str(), name.as_str(), reason.as_str()))
    }

    fn undecodable_of<K: Indexed>(&self) -> impl Iterator<Item = &String> {
        let kind = K::plural(&());
        let all = self.undecodable.keys();
        all.filter_map(move |(of, name)| (*of == kind).then_some(name))
    }

    /// Returns the objects of a kind of which only the existence is known.
    fn unknown<'a, K: Indexed>(&'a self, known: &'a HashMap<String, K::Kept>) -> impl Iterator<Item = &'a String> {
        self.undecodable_of::<K>().filter(|name| !known.contains_key(*name))
    }

    /// Returns descriptions of objects of a kind that do not decode, restricted to those that `counts` includes.
    fn uncertain<K: Indexed>(&self, counts: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
        let names = self.undecodable_of::<K>().filter(move |name| counts(name));
        names.map(|name| unknown_object(name))
    }

    /// Removes an object, and returns the affected drivers.
    pub fn remove<K: Indexed>(&mut self, name: &str) -> Affected {
        let is_forgotten = self.forget_undecodable::<K>(name);
        let removed = K::table(self).remove(name).map(|old| K::affected(&old));
        removed.unwrap_or_default().and(is_forgotten)
    }

    /// Removes all objects of a kind except `names`, because a new list did not contain them. With `namespace`, only
    /// objects of that namespace are removed.
    pub fn retain<K: Indexed>(&mut self, names: &BTreeSet<String>, namespace: Option<&str>) -> Affected {
        let is_listed = |name: &String| {
            namespace.is_none_or(|namespace| name.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('/')))
        };
        let is_gone = |name: &&String| is_listed(name) && !names.contains(*name);
        let mut removed: Vec<String> = self.undecodable_of::<K>().filter(is_gone).cloned().collect();
        removed.extend(K::table(self).keys().filter(is_gone).cloned());
        removed.iter().fold(Affected::default(), |affected, name| {
            affected.and(self.remove::<K>(name))
        })
    }
}

#[cfg(test)]
mod tests;
