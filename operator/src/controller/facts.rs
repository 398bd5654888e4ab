// SPDX-License-Identifier: Apache-2.0
//! Observes a driver, and answers the queries of a decision.

use std::collections::BTreeMap;

use cinder_csi_crds::AdoptionMode;
use cinder_operator_core::{
    cluster::{Blockers, Key, OptionalApi},
    decide::{ClusterView, DriverFacts, Existing, Facts, MonitoringView, ObjectFacts, Queries, QueryAnswers},
    migration,
    plan::LastApplied,
    problem::Problem,
    reasons::Degraded,
    resolve::name_prefix_of,
};
use csi_sources::UntrustedText;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    classes, clouds, context::Context, driver_ref::DriverRef, environment::describe_cluster, records, rollout,
    volumes::recheck_credentials,
};
use crate::{
    error::ReconcileError,
    kubernetes::answer,
    migration::{find_differences, query_elsewhere, query_installation, query_own_part},
    observe::{self, ObserveError},
    openstack, recreate_checks,
};

/// The facts that do not depend on the driver's objects.
pub(super) fn basic_facts(context: &Context, driver: &DriverRef<'_>) -> Facts {
    Facts {
        object: ObjectFacts::of(driver.object),
        monitoring: MonitoringView {
            mode: driver.object.spec.monitoring.mode,
            served: context.cluster.apis().has(OptionalApi::Monitoring),
        },
        cluster: ClusterView {
            undecodable: context.cluster.read(|index| {
                let all = index.undecodable();
                all.map(|(kind, name, reason)| format!("{kind} {}: {reason}", UntrustedText::new(name)))
                    .collect()
            }),
            failing_watches: context.cluster.failing_watches(),
        },
        ..Facts::default()
    }
}

/// Observes a driver for a decision. `blockers` are the objects that block its deletion.
pub(super) async fn observe_driver(
    context: &Context,
    driver: &DriverRef<'_>,
    blockers: Option<Blockers>,
    has_lease: bool,
) -> Result<Facts, ReconcileError> {
    let (namespace, served) = (driver.namespace, context.cluster.apis());
    let (mut live, unlisted) = observe::live_parts(&context.client, &driver.owner, namespace, served).await?;
    let prefix = name_prefix_of(driver.object);
    let record = LastApplied::key(namespace, &prefix);
    observe::complete(&context.client, &mut live, std::slice::from_ref(&record)).await?;
    let last_applied = LastApplied::take(&mut live, &driver.owner, namespace, &prefix);
    records::find_unlabelled(context, driver, &mut live).await?;
    recheck_credentials(context, driver);
    let mut facts = basic_facts(context, driver);
    let credentials = clouds::check_credentials(context, driver, &live, &mut facts).await;
    // The releases of adopted workloads determine the APIs that the driver uses.
    adopt_orphans(driver, &mut live);
    let existing = Existing {
        owner: &driver.owner,
        live: &live,
        last_applied: &last_applied,
    };
    let apis = records::known_apis(driver, existing);
    let mut environment = describe_cluster(context, namespace, driver.object, apis).await?;
    environment.records = credentials.record.annotations();
    environment.clouds = openstack::known_zones(&facts.clouds);
    environment.silent_clouds = openstack::silent_clouds(&facts.clouds);
    classes::add_cluster_facts(context, driver, &mut environment, &live).await;
    let unlisted = unlisted.into_iter().map(|(kind, error)| (kind, unlisted_kind(&error)));
    let (generation, idle) = (driver.object.metadata.generation, context.idle_interval);
    let observed = context.memory(&driver.owner.name, |memory| DriverFacts {
        live,
        last_applied,
        unlisted: unlisted.collect(),
        served,
        environment,
        credentials,
        blockers,
        has_lease,
        unapplied: memory.drift.unapplied.clone(),
        known_objects: memory.drift.objects.clone(),
        is_migration_settled: memory.migration.is_settled(generation, idle),
        instant: Instant::now().into_std(),
        answers: QueryAnswers::default(),
    });
    facts.driver = Some(Box::new(observed));
    Ok(facts)
}

/// Runs the queries of a decision, and adds the answers to its facts.
pub(super) async fn answer_queries(
    context: &Context,
    driver: &DriverRef<'_>,
    queries: Queries,
    facts: &mut DriverFacts,
) -> Result<(), ReconcileError> {
    let (client, cluster, name) = (&context.client, &context.cluster, &driver.owner.name);
    if !queries.objects.is_empty() {
        let mut objects = BTreeMap::new();
        observe::complete(client, &mut objects, &queries.objects).await?;
        facts.live.extend(objects);
        facts.answers.objects.extend(queries.objects);
        adopt_orphans(driver, &mut facts.live);
    }
    if queries.installation {
        facts.answers.installation = Some(query_installation(&driver.migration(context)).await?);
    }
    if queries.elsewhere {
        facts.answers.elsewhere = Some(query_elsewhere(&driver.migration(context)).await);
    }
    if queries.own_part {
        facts.answers.own_part = Some(query_own_part(&driver.migration(context), facts).await?);
    }
    if let Some(query) = queries.findings {
        let topology = query.topology.as_deref();
        facts.answers.findings = Some(Box::pin(find_differences(&driver.migration(context), topology)).await);
    }
    if let Some(controller) = queries.trial {
        let trial = context.writer.try_out(&controller).await;
        facts.answers.trial = Some(trial.map_err(|error| error.to_string()));
    }
    let uses = recreate_checks::uses(client, cluster, name, &queries.uses).await;
    facts.answers.uses.extend(uses);
    if let Some(query) = queries.attached_nodes {
        let is_enough = |attached: &_| query.is_answered_by(attached);
        let attached = recreate_checks::attached_nodes(client, cluster, name, is_enough).await;
        facts.answers.attached_nodes = Some(attached);
    }
    let templates = rollout::newest_templates(context, driver, &queries.templates).await?;
    facts.answers.templates.extend(templates);
    Ok(())
}

/// Counts released objects as the driver's, if the spec adopts them.
fn adopt_orphans(driver: &DriverRef<'_>, live: &mut BTreeMap<Key, Value>) {
    if driver.object.spec.adoption.mode == AdoptionMode::Adopt {
        migration::adopt_orphans(&driver.owner, live);
    }
}

/// The problem of a kind that cannot be listed.
fn unlisted_kind(error: &ObserveError) -> Problem {
    let message = match error {
        ObserveError::List { plural, source } => format!("cannot list {plural}: {}", answer(source)),
        other => other.to_string(),
    };
    Problem {
        reason: Degraded::ReconcileFailed,
        message: format!(
            "{message}. Objects of this kind are neither written nor removed meanwhile; all others are maintained"
        ),
    }
}
