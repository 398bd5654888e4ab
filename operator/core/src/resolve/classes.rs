// SPDX-License-Identifier: Apache-2.0
//! Resolves the StorageClasses, and selects the default class.

use cinder_csi_crds::{
    ClassesState, DefaultClassPolicy, StorageClassItem, StorageClasses as Spec, StorageClassesStatus,
};

use crate::cluster::DefaultClassMark;

/// The resolved StorageClasses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classes {
    /// How the operator manages them.
    pub state: ClassesState,
    /// All desired classes.
    pub items: Vec<Class>,
    /// The class that is not marked as the default because another default class exists.
    pub passed_over: Option<SkippedDefault>,
}

/// One StorageClass.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The class in the spec.
    pub item: StorageClassItem,
    /// Whether it is marked as the default.
    pub is_default: bool,
    /// Whether the operator restores the annotation of the default class when another client changes it.
    pub insists: bool,
    /// Whether it was created before, and must not be recreated.
    pub was_made: bool,
}

/// A class that is not marked as the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedDefault {
    pub class: String,
    /// The existing default class.
    pub other: String,
}

impl Class {
    fn new(item: StorageClassItem) -> Self {
        Self {
            item,
            is_default: false,
            insists: false,
            was_made: false,
        }
    }
}

impl Classes {
    /// Whether each class is created once and then ignored.
    pub fn is_left_to_others(&self) -> bool {
        self.state == ClassesState::Unmanaged
    }

    /// Returns the default class, if it is one of these.
    pub fn default_class(&self) -> Option<&str> {
        let class = self.items.iter().find(|class| class.is_default)?;
        Some(&class.item.name)
    }
}

/// Input of the decision about classes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassesInput<'a> {
    pub(super) driver_name: &'a str,
    pub(super) usual_class: &'a str,
    pub(super) spec: &'a Spec,
    pub(super) before: Option<&'a StorageClassesStatus>,
    /// The classes of the cluster that are marked as the default.
    pub(super) marked: &'a [DefaultClassMark],
}

/// Resolves the classes.
pub(super) fn classes(question: &ClassesInput<'_>) -> Classes {
    let spec = question.spec;
    if spec.state == ClassesState::Removed {
        return Classes {
            state: spec.state,
            ..Classes::default()
        };
    }
    let usual = || vec![StorageClassItem::named(question.usual_class)];
    let items = spec.items.clone().unwrap_or_else(usual);
    let mut classes: Vec<Class> = items.into_iter().map(Class::new).collect();
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
    };
    mark_default(question, &mut decided);
    decided
}

/// Marks the default class, unless another one exists.
fn mark_default(question: &ClassesInput<'_>, classes: &mut Classes) {
    let default = &question.spec.default;
    if default.policy == DefaultClassPolicy::Never {
        return;
    }
    let candidate = if let Some(name) = &default.name {
        classes.items.iter().position(|class| class.item.name == *name)
    } else {
        let chosen = classes.items.iter().position(|class| class.item.is_default);
        chosen.or((!classes.items.is_empty()).then_some(0))
    };
    let Some(class) = candidate.and_then(|at| classes.items.get_mut(at)) else {
        return;
    };
    let name = class.item.name.clone();
    if let Some(other) = preceding_default(question, &name) {
        let other = other.name.clone();
        classes.passed_over = Some(SkippedDefault { class: name, other });
        return;
    }
    class.is_default = true;
    class.insists = default.policy == DefaultClassPolicy::Always;
}

/// Returns the default class that takes precedence over `name`.
///
/// A mark by another client is intentional. If the operators of two drivers mark their classes at the same time, the
/// older class remains the default.
fn preceding_default<'a>(question: &ClassesInput<'a>, name: &str) -> Option<&'a DefaultClassMark> {
    let marked = question.marked;
    let is_own = |mark: &DefaultClassMark| mark.by.as_deref() == Some(question.driver_name);
    let own = marked.iter().find(|mark| mark.name == name && is_own(mark));
    marked
        .iter()
        .filter(|mark| mark.name != name && !is_own(mark))
        .find(|mark| mark.by.is_none() || own.is_none_or(|own| *mark < own))
}

#[cfg(test)]
mod tests;
