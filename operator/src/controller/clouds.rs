// SPDX-License-Identifier: Apache-2.0
//! Checks the credentials of all clouds.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cinder_csi_crds::{Topology, TopologyMode};
use cinder_operator_core::{
    cluster::{Key, kind},
    decide::{CredentialFacts, Facts, Outcome},
    manifests::{DriverCredentials, Place},
    notice::Notice,
    problem::Problem,
    reasons::Event,
    record::{PlaceRecord, RecordedPlace},
    resolve::{health, topology_interval},
};
use futures::future::join_all;
use serde_json::Value;

use super::{
    context::Context,
    driver_ref::DriverRef,
    records::{last_good, may_move, place_record},
    usage::ClusterUsage,
};
use crate::openstack::{
    Candidate, CredentialSource, InstalledCloud, ProjectChangeCheck, credentials_of, describe_cloud, rename_only_cloud,
    unnamed_cloud,
};

/// The events about replaced credentials of the driver. `current` are its credentials after the writes.
pub(super) fn rotation_events(facts: &CredentialFacts, current: Option<&DriverCredentials>) -> Vec<Notice> {
    let current = current.map(DriverCredentials::split).unwrap_or_default();
    let is_other = |name: &String, previous: &DriverCredentials| {
        let current = current.get(name);
        current.is_some_and(|current| current.hash() != previous.hash())
    };
    let changed = facts
        .previous
        .iter()
        .filter(|(name, previous)| is_other(name, previous));
    let name = |name: &String| {
        let unnamed = facts.unnamed.clone().filter(|_| name.is_empty());
        unnamed.unwrap_or_else(|| name.clone())
    };
    let note = |(cloud, _)| {
        format!(
            "login with the changed credentials of cloud {} works, and the driver was given them; its pods reload them while they run",
            name(cloud)
        )
    };
    changed
        .map(|changed| Notice::new(Event::SecretRotated, note(changed)))
        .collect()
}

/// Adds the credentials that the driver has after the writes to the outcome.
pub(super) fn record_credentials(
    driver: &DriverRef<'_>,
    facts: &CredentialFacts,
    current: Option<&DriverCredentials>,
    outcome: &mut Outcome,
) {
    let current = current.map(DriverCredentials::split).unwrap_or_default();
    for cloud in &driver.object.spec.clouds {
        let is_unnamed = facts.unnamed.as_ref() == Some(&cloud.name);
        let hash = |all: &BTreeMap<String, DriverCredentials>| {
            let part = credentials_of(all, cloud, is_unnamed)?;
            Some(part.hash().to_owned())
        };
        let accepted = facts
            .accepted
            .get(&cloud.name)
            .map(|accepted| accepted.hash().to_owned());
        let current = hash(&current);
        if current.is_none() {
            outcome.clouds_without_credentials.insert(cloud.name.clone());
        }
        if accepted.is_some() && hash(&facts.previous).is_some() && current != accepted {
            outcome.clouds_with_old_credentials.insert(cloud.name.clone());
        }
    }
}

/// Checks the credentials of every cloud, and adds the clouds to the facts.
pub(super) async fn check_credentials(
    context: &Context,
    driver: &DriverRef<'_>,
    live: &BTreeMap<Key, Value>,
    facts: &mut Facts,
) -> CredentialFacts {
    let mut clouds = Vec::new();
    let name = &driver.owner.name;
    let settings = health::settings(&driver.object.spec.health);
    let interval = settings.credential_check_interval.unwrap_or(context.idle_interval);
    let interval = interval.min(zones_interval(&driver.object.spec.topology));
    let current = last_good(&driver.owner, live);
    let previous = &current.as_ref().map(DriverCredentials::split).unwrap_or_default();
    let mut record = place_record(driver, live);
    let unnamed = unnamed_cloud(&driver.object.spec.clouds, &record);
    rename_only_cloud(&mut record, &driver.object.spec.clouds, unnamed);
    let has_run = has_run(driver, live);
    let query = &ClusterUsage::new(context, name);
    let project_change = &project_change_check(driver, query, &record);
    let mut next_check = interval;
    let mut in_use = BTreeMap::new();
    let recorded = &record;
    let checks = driver.object.spec.clouds.iter().map(|cloud| async move {
        let source = CredentialSource::new(driver.namespace, cloud).with_options_of(&driver.object.spec);
        let candidate = source.read(&context.client).await;
        let installed_credentials = credentials_of(previous, cloud, unnamed == Some(cloud.name.as_str()));
        let auth_method = candidate.as_ref().ok().map(Candidate::auth_method);
        let installed = InstalledCloud {
            credentials: installed_credentials.cloned(),
            place: recorded.place_of(
                &cloud.name,
                installed_credentials.map(DriverCredentials::place),
                has_run,
            ),
        };
        let place = installed.place.clone();
        let decision = context
            .login_check
            .check(name, &source, candidate, installed, project_change, interval)
            .await;
        (cloud, auth_method, place, decision)
    });
    let (mut places, mut is_move) = (Vec::new(), false);
    let mut expected = record.clouds();
    // All at once: a cloud that does not answer takes the whole time limit of a login, and must not delay the other
    // clouds.
    for (cloud, auth_method, place, decision) in join_all(checks).await {
        next_check = next_check.min(decision.next_check);
        if let Some(credentials) = &decision.in_use {
            let credentials = credentials.clone().in_section(cloud.section.as_deref());
            in_use.insert(cloud.name.clone(), credentials);
        }
        if place != RecordedPlace::NewCloud {
            expected.insert(cloud.name.clone());
        }
        // A single lost record is written again, also while new credentials are refused.
        if let Some(known) = place.known() {
            record.insert(&cloud.name, known);
        }
        is_move |= project_change.may_move && decision.place.is_some() && place.is_moved_to(decision.place.as_ref());
        places.extend(decision.place.clone().map(|place| (cloud.name.clone(), place)));
        clouds.push(describe_cloud(cloud, &decision, auth_method));
    }
    let (retained, mut needed) = retain_clouds(context, driver, previous, unnamed, &in_use, project_change).await;
    in_use.extend(retained);
    let complete = complete_clouds(driver, expected, &record, &in_use, project_change, &mut needed);
    let (is_complete, dropped) = complete.await;
    for cloud in &dropped {
        is_move |= project_change.may_move;
        record.remove(cloud);
    }
    for (cloud, place) in places.iter().filter(|_| is_complete) {
        record.insert(cloud, place);
    }
    context.metrics.credentials(name, &clouds);
    let served = if is_complete { &in_use } else { &BTreeMap::new() };
    (facts.clouds, facts.needed_clouds, facts.health) = (clouds, needed, settings);
    CredentialFacts {
        desired: DriverCredentials::merged(served),
        accepted: in_use,
        previous: previous.clone(),
        unnamed: unnamed.map(str::to_owned),
        next_check,
        record,
        is_move,
    }
}

/// The objects that would be lost with a change of project, region or clouds.
fn project_change_check<'a>(
    driver: &DriverRef<'_>,
    query: &'a ClusterUsage<'_>,
    record: &PlaceRecord,
) -> ProjectChangeCheck<'a> {
    let clouds = record.clouds();
    let places = clouds
        .iter()
        .filter_map(|cloud| record.place_of(cloud, None, true).known().cloned());
    ProjectChangeCheck {
        places: places.collect(),
        query,
        uid: driver.owner.uid.clone(),
        may_move: may_move(driver),
    }
}

/// Whether the driver has had credentials before.
fn has_run(driver: &DriverRef<'_>, live: &BTreeMap<Key, Value>) -> bool {
    let was_installed = driver
        .object
        .status
        .as_ref()
        .is_some_and(|status| status.version.is_some());
    let mut objects = live.iter().filter(|(_, object)| driver.owner.owns(object));
    was_installed || objects.any(|(key, _)| [kind::DEPLOYMENT, kind::SECRET].contains(&key.kind))
}

/// Whether every cloud that may have volumes of the driver has credentials. Otherwise the driver gets no new
/// credentials, because it would report the volumes of the missing cloud as deleted. Also returns the clouds that the
/// driver may lose.
async fn complete_clouds(
    driver: &DriverRef<'_>,
    expected: BTreeSet<String>,
    record: &PlaceRecord,
    in_use: &BTreeMap<String, DriverCredentials>,
    project_change: &ProjectChangeCheck<'_>,
    needed: &mut Vec<Problem>,
) -> (bool, Vec<String>) {
    let places: BTreeSet<&Place> = in_use.values().filter_map(DriverCredentials::place).collect();
    // It may be the same cloud under a new name.
    let is_elsewhere = |cloud: &String| {
        let place = record.place_of(cloud, None, true);
        place.known().is_some_and(|known| places.contains(known))
    };
    let lost = expected.into_iter().filter(|cloud| !in_use.contains_key(cloud));
    let is_in_spec = |name: &String| driver.object.spec.clouds.iter().any(|cloud| cloud.name == *name);
    let (refused, lost): (Vec<String>, Vec<String>) = lost.partition(is_in_spec);
    let (mut dropped, lost): (Vec<String>, Vec<String>) = lost
        .into_iter()
        .partition(|cloud| project_change.may_move || is_elsewhere(cloud));
    let is_unused = in_use.is_empty() && record.clouds().is_empty();
    if is_unused || (refused.is_empty() && lost.is_empty()) {
        return (true, dropped);
    }
    let usage = project_change.query.usage().await;
    if usage.is_free() {
        dropped.extend(lost);
        return (true, dropped);
    }
    needed.extend(lost.iter().map(|cloud| project_change.cloud_lost(cloud, usage)));
    let is_first = record.clouds().is_empty() && usage.has_only_claims();
    (is_first, dropped)
}

/// The clouds that the spec no longer has and that volumes still need, with the problem of each.
async fn retain_clouds(
    context: &Context,
    driver: &DriverRef<'_>,
    previous: &BTreeMap<String, DriverCredentials>,
    unnamed: Option<&str>,
    in_use: &BTreeMap<String, DriverCredentials>,
    project_change: &ProjectChangeCheck<'_>,
) -> (Vec<(String, DriverCredentials)>, Vec<Problem>) {
    let clouds = &driver.object.spec.clouds;
    let is_in_spec = |name: &str| {
        clouds
            .iter()
            .any(|cloud| cloud.name == name || (name.is_empty() && unnamed == Some(&cloud.name)))
    };
    // A cloud with the same project and region is the same cloud under another name.
    let is_elsewhere = |place: &Place| in_use.values().any(|other| other.place() == Some(place));
    let lost = previous
        .iter()
        .filter(|(name, credentials)| !is_in_spec(name) && !credentials.place().is_some_and(is_elsewhere));
    let (mut retained, mut needed) = (Vec::new(), Vec::new());
    let lost: Vec<_> = lost.filter(|_| !project_change.may_move).collect();
    if lost.is_empty() {
        return (retained, needed);
    }
    let usage = project_change.query.usage().await;
    for (name, credentials) in lost.into_iter().filter(|_| !usage.is_free()) {
        if let Some(refusal) = context
            .login_check
            .refuse_removal(&driver.owner.name, name, credentials, usage, project_change)
            .await
        {
            needed.push(refusal);
            retained.push((name.clone(), credentials.clone()));
        }
    }
    (retained, needed)
}

/// The longest time between two requests for the zones.
fn zones_interval(topology: &Topology) -> Duration {
    match topology.mode {
        TopologyMode::Auto => topology_interval(topology),
        TopologyMode::Enabled | TopologyMode::Disabled => Duration::MAX,
    }
}
