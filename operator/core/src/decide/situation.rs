// SPDX-License-Identifier: Apache-2.0
//! The input of a plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use cinder_csi_crds::CinderCSIDriver;
use serde_json::Value;

use super::intent::Intent;
use crate::{
    cluster::{Key, Owner},
    plan::{LastApplied, Unapplied},
};

/// The input of a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) driver: &'a CinderCSIDriver,
    /// The owner of the driver's objects.
    pub(super) owner: &'a Owner,
    pub(super) intent: &'a Intent,
    /// The existing objects of the owner, and all objects with the name of a desired object.
    pub(super) live: &'a BTreeMap<Key, Value>,
    /// The content that was applied last.
    pub(super) last_applied: &'a LastApplied,
    /// The kinds that could not be listed.
    pub(super) unlisted: &'a BTreeSet<&'static str>,
    /// The fields that earlier applies did not change.
    pub(super) unapplied: &'a Unapplied,
    /// The present time, by the clock of [`Unapplied`].
    pub(super) instant: Instant,
}
