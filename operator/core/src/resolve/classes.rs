// SPDX-License-Identifier: Apache-2.0
//! Which StorageClasses there are to be, and which of them claims get that name none.

use std::collections::{BTreeMap, BTreeSet};

use cinder_csi_crds::{
    ClassesState, DefaultClassPolicy, FromVolumeTypes, StorageClassItem, StorageClasses as Spec, StorageClassesStatus,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use regex::Regex;

use crate::clouds::VolumeTypeFact;
use crate::cluster::{Marked, OfType};
use crate::problem::Problem;
use crate::reasons::Degraded;
use crate::text::short_hash;

/// How long a volume type must be gone until its class is removed.
const FORGET_TYPE_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// The most classes that are made from volume types.
pub const MOST_TYPES: usize = 128;

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// What is known of the StorageClasses of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassFacts {
    /// Classes that are marked as the default.
    pub marked: Vec<Marked>,
    /// This driver's classes that were made from volume types, by name.
    pub of_types: BTreeMap<String, OfType>,
}

/// The StorageClasses, decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classes {
    /// What is done with them.
    pub state: ClassesState,
    /// All that are wanted.
    pub items: Vec<Class>,
    /// The class that would be the default, were it not for another one.
    pub passed_over: Option<PassedOver>,
    /// Volume types without a class, because there are too many.
    pub left_out: Vec<String>,
}

/// One StorageClass.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// As the spec has it.
    pub item: StorageClassItem,
    /// Whether it is marked as the default.
    pub is_default: bool,
    /// Whether the mark is put back when somebody changes it.
    pub insists: bool,
    /// Whether it was made before, and is not to be made again.
    pub was_made: bool,
    /// The volume type that it was made from.
    pub of_type: Option<OfType>,
}

/// A class that is not made the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// The class.
    pub class: String,
    /// The one that is the default.
    pub other: String,
}

impl Class {
    fn new(item: StorageClassItem, of_type: Option<OfType>) -> Self {
        Self {
            item,
            is_default: false,
            insists: false,
            was_made: false,
            of_type,
        }
    }
}

impl Classes {
    /// Whether each class is made once and then left to others.
    pub fn is_left_to_others(&self) -> bool {
        self.state == ClassesState::Unmanaged
    }

    /// The class of claims that name none, where it is one of these.
    pub fn default_class(&self) -> Option<&str> {
        let class = self.items.iter().find(|class| class.is_default)?;
        Some(&class.item.name)
    }
}

/// What a decision about classes is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassesInput<'a> {
    pub(super) driver_name: &'a str,
    /// Beginning of the names of classes that are made from volume types, where the spec names none.
    pub(super) prefix: &'a str,
    pub(super) usual_class: &'a str,
    pub(super) spec: &'a Spec,
    pub(super) before: Option<&'a StorageClassesStatus>,
    pub(super) facts: &'a ClassFacts,
    /// Of the first cloud; `None` while they are not known.
    pub(super) volume_types: Option<&'a [VolumeTypeFact]>,
    pub(super) now: Timestamp,
}

/// Decides which classes there are to be.
pub(super) fn classes(question: &ClassesInput<'_>) -> Result<Classes, Problem> {
    let spec = question.spec;
    if spec.state == ClassesState::Removed {
        return Ok(Classes {
            state: spec.state,
            ..Classes::default()
        });
    }
    let usual = || vec![StorageClassItem::named(question.usual_class)];
    let items = spec.items.clone().unwrap_or_else(usual);
    let mut classes: Vec<Class> = items.into_iter().map(|item| Class::new(item, None)).collect();
    let mut left_out = Vec::new();
    if spec.from_volume_types.enabled {
        let taken = classes.iter().map(|class| class.item.name.clone()).collect();
        classes.extend(of_types(question, taken, &mut left_out)?);
    }
    let made = question
        .before
        .map(|before| before.created_once.as_slice())
        .unwrap_or_default();
    for class in &mut classes {
        class.was_made = spec.state == ClassesState::Unmanaged && made.contains(&class.item.name);
    }
    let mut decided = Classes {
        state: spec.state,
        items: classes,
        passed_over: None,
        left_out,
    };
    mark_default(question, &mut decided);
    Ok(decided)
}

/// Marks the default class, unless there is another one.
fn mark_default(question: &ClassesInput<'_>, classes: &mut Classes) {
    let default = &question.spec.default;
    if default.policy == DefaultClassPolicy::Never {
        return;
    }
    let candidate = if let Some(name) = &default.name {
        classes.items.iter().position(|class| class.item.name == *name)
    } else {
        let from_spec = |class: &Class| class.of_type.is_none();
        let chosen = classes.items.iter().position(|class| class.item.is_default);
        chosen.or_else(|| classes.items.iter().position(from_spec))
    };
    let Some(class) = candidate.and_then(|at| classes.items.get_mut(at)) else {
        return;
    };
    let name = class.item.name.clone();
    if let Some(other) = stands_above(question, &name) {
        let other = other.name.clone();
        classes.passed_over = Some(PassedOver { class: name, other });
        return;
    }
    class.is_default = true;
    class.insists = default.policy == DefaultClassPolicy::Always;
}

/// The default class that `name` must not stand beside.
///
/// Whoever marks a class by hand means it. Two operators' drivers that marked theirs at the same moment settle it by age.
fn stands_above<'a>(question: &ClassesInput<'a>, name: &str) -> Option<&'a Marked> {
    let marked = &question.facts.marked;
    let is_own = |mark: &Marked| mark.by.as_deref() == Some(question.driver_name);
    let own = marked.iter().find(|mark| mark.name == name && is_own(mark));
    marked
        .iter()
        .filter(|mark| mark.name != name && !is_own(mark))
        .find(|mark| mark.by.is_none() || own.is_none_or(|own| *mark < own))
}

/// The classes of volume types. `taken` are names that are in use. Where there are too many types, those that have a class keep it.
fn of_types(
    question: &ClassesInput<'_>,
    mut taken: BTreeSet<String>,
    left_out: &mut Vec<String>,
) -> Result<Vec<Class>, Problem> {
    let wish = &question.spec.from_volume_types;
    let existing = &question.facts.of_types;
    let filter = Filter::new(wish)?;
    let class = |name: String, of_type: OfType| {
        let item = StorageClassItem {
            volume_type: Some(of_type.volume_type.clone()),
            reclaim_policy: wish.reclaim_policy,
            ..StorageClassItem::named(name)
        };
        Class::new(item, Some(of_type))
    };
    // A cloud has one type at least; a list without any tells nothing.
    let Some(types) = question.volume_types.filter(|types| !types.is_empty()) else {
        let all = existing
            .iter()
            .map(|(name, of_type)| class(name.clone(), of_type.clone()));
        return Ok(all.collect());
    };
    let prefix = wish.name_prefix.as_deref().unwrap_or(question.prefix);
    let known: BTreeSet<&str> = existing.values().map(|of_type| of_type.volume_type.as_str()).collect();
    let has_class = |t: &VolumeTypeFact| known.contains(t.name.as_str());
    let wanted = || types.iter().filter(|t| filter.passes(&t.name));
    let mut room = MOST_TYPES.saturating_sub(wanted().filter(|t| has_class(t)).count());
    let mut classes = Vec::new();
    for volume_type in wanted() {
        if !has_class(volume_type) {
            if room == 0 {
                left_out.push(volume_type.name.clone());
                continue;
            }
            room -= 1;
        }
        let name = class_name(prefix, volume_type, &taken, existing);
        taken.insert(name.clone());
        let of_type = OfType {
            volume_type: volume_type.name.clone(),
            missing_since: None,
        };
        classes.push(class(name, of_type));
    }
    for (name, of_type) in existing {
        let is_there = types.iter().any(|t| t.name == of_type.volume_type);
        if is_there || taken.contains(name) || !filter.passes(&of_type.volume_type) {
            continue;
        }
        let since = of_type.missing_since.unwrap_or(question.now);
        if question.now.duration_since(since) < FORGET_TYPE_AFTER {
            let of_type = OfType {
                missing_since: Some(since),
                ..of_type.clone()
            };
            classes.push(class(name.clone(), of_type));
        }
    }
    Ok(classes)
}

/// Which types get a class.
struct Filter {
    include: Option<Regex>,
    exclude: Option<Regex>,
}

impl Filter {
    fn new(wish: &FromVolumeTypes) -> Result<Self, Problem> {
        let compiled = |field: &str, text: &Option<String>| {
            let Some(text) = text else { return Ok(None) };
            Regex::new(&format!("^(?:{text})$")).map(Some).map_err(|error| Problem {
                reason: Degraded::InvalidSpec,
                message: format!(
                    "spec.storageClasses.fromVolumeTypes.{field} is {text:?}, which is no regular expression: {error}"
                ),
            })
        };
        Ok(Self {
            include: compiled("include", &wish.include)?,
            exclude: compiled("exclude", &wish.exclude)?,
        })
    }

    fn passes(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|wanted| wanted.is_match(name))
            && !self.exclude.as_ref().is_some_and(|unwanted| unwanted.is_match(name))
    }
}

/// The name of a type's class: the type's name as far as Kubernetes takes it, and a piece of the hash of the type's id where
/// that name is taken or was cut.
///
/// A class that exists keeps its type, whatever other types come and go: claims name it.
fn class_name(
    prefix: &str,
    volume_type: &VolumeTypeFact,
    taken: &BTreeSet<String>,
    existing: &BTreeMap<String, OfType>,
) -> String {
    let allowed = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    };
    let plain: String = volume_type.name.chars().map(allowed).collect();
    let plain = plain.trim_matches('-');
    let name = format!("{prefix}{plain}");
    let is_its = |name: &str| {
        existing
            .get(name)
            .map(|of_type| of_type.volume_type == volume_type.name)
    };
    let is_fit = !plain.is_empty() && name.len() <= LONGEST_NAME;
    let is_free = !taken.contains(&name) && is_its(&name) != Some(false);
    let hash = short_hash(&volume_type.id, 8);
    let room = LONGEST_NAME - hash.len() - 1;
    let cut = &name[..name.floor_char_boundary(room)];
    let hashed = format!("{}-{hash}", cut.trim_end_matches(['-', '.']));
    let has_hashed = is_its(&hashed) == Some(true) && is_its(&name) != Some(true);
    if is_fit && is_free && !has_hashed { name } else { hashed }
}

#[cfg(test)]
mod tests;
