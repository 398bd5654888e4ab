// SPDX-License-Identifier: Apache-2.0
//! Compares a CinderCSIDriver with the cluster, with the rights of the user. The same functions decide as in a reconcile, and nothing is
//! written.

use std::{collections::BTreeMap, fmt};

use cinder_csi_crds::{AdoptionMode, ChangeAction, CinderCSIDriver, ManagementState, PendingChange};
use cinder_operator_core::{
    cluster::{Index, Key, KubernetesVersion, Owner, kind},
    manifests::{DriverCredentials, Operand, RenderError, render as render_objects},
    migration::{adopt_orphans, claim_csi_driver},
    plan::{Desired, LastApplied, PlanScope, Unapplied, changes::changes, plan},
    problem::Problem,
    record::PlaceRecord,
    releases::InstalledImages,
    resolve::{ClassFacts, ControllerSight, Environment, name_prefix_of, namespace_of, resolve},
    rollout::Gate,
    status,
};
use csi_sources::Sources;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::{
    Client, ResourceExt,
    api::{ListParams, PartialObjectMeta},
};
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use tokio::time::Instant;

use crate::{
    args::VERSION,
    commands::{
        render,
        table::{table, write_notes},
    },
    controller,
    kubernetes::GuardedApi,
    observe,
};

/// Why nothing could be compared.
#[derive(Debug, Error)]
pub enum DiffError {
    /// The file.
    #[error(transparent)]
    File(#[from] render::RenderCommandError),
    /// The cluster could not be reached or does not answer.
    #[error("cannot read {what}: {source}")]
    Read {
        /// What was asked for.
        what: &'static str,
        /// What the API server answered.
        source: Box<kube::Error>,
    },
    /// The objects of the driver could not be read.
    #[error(transparent)]
    Observe(#[from] observe::ObserveError),
    /// The spec cannot be carried out.
    #[error("{}", .0.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("\n"))]
    Resolve(Vec<Problem>),
    /// An object could not be made.
    #[error(transparent)]
    Operand(#[from] RenderError),
    /// An object could not be turned into JSON.
    #[error("cannot encode: {0}")]
    Encode(#[from] serde_json::Error),
}

/// What differs.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffReport {
    /// Name of the CinderCSIDriver.
    pub driver: String,
    /// The version that the driver has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_version: Option<String>,
    /// The version that this program would bring it to.
    pub to_version: String,
    /// The changes, in the order in which they would be made.
    pub changes: Vec<PendingChange>,
    /// What could not be compared, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl DiffReport {
    /// Whether anything would change, or cannot be made as it should be.
    pub fn differs(&self) -> bool {
        !self.changes.is_empty()
    }
}

/// Compares the driver with what is in the cluster.
pub(crate) async fn report(
    client: &Client,
    mut driver: CinderCSIDriver,
    namespace: &str,
    images: InstalledImages,
) -> Result<DiffReport, DiffError> {
    let name = driver.name_any();
    let drivers: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
    let there = drivers.get_opt(&name).await.map_err(failed("the CinderCSIDriver"))?;
    if let Some(there) = there {
        driver.metadata.uid = there.metadata.uid;
        driver.metadata.creation_timestamp = there.metadata.creation_timestamp;
        driver.metadata.deletion_timestamp = there.metadata.deletion_timestamp;
        // What the operator has found out of clouds and zones is remembered there; this program does not ask the clouds.
        driver.status = there.status;
    }
    let owner = Owner {
        uid: driver.uid().unwrap_or_default(),
        name: name.clone(),
    };
    let namespace = namespace_of(&driver, namespace).to_owned();
    let mut environment = environment(client, &namespace, images).await?;
    let mut live = observe::live(client, &owner, &namespace, environment.apis).await?;
    controller::observe_owned(client, &driver, &owner, &live, &mut environment).await;
    let mut notes: Vec<String> = wait(&driver).map(str::to_owned).into_iter().collect();
    if is_leaving(&driver) {
        let scope = PlanScope {
            prune: true,
            ..PlanScope::default()
        };
        let plan = plan(&owner, &[], &live, &Unapplied::new(), &scope, Instant::now().into_std());
        return Ok(DiffReport {
            driver: name,
            from_version: None,
            to_version: VERSION.to_owned(),
            changes: changes(&plan, &live),
            notes,
        });
    }
    LastApplied::take(&mut live, &owner, &namespace, &name_prefix_of(&driver));
    let csi_driver = live.get(&Key::new(kind::CSI_DRIVER, None, &name));
    environment.records = PlaceRecord::read(driver.status.as_ref(), csi_driver).annotations();
    let resolved = resolve(&driver, &environment).map_err(DiffError::Resolve)?;
    let credentials = credentials(&live);
    if credentials.is_none() {
        notes.push(
            "the driver has no credentials yet: its Secret and its controller, which the operator makes after a login, are left out"
                .to_owned(),
        );
    }
    let (rendered, overridden) = render_objects(&resolved, credentials.as_ref())?;
    let is_held = |operand: &&Operand| overridden.held.contains(&Key::from(*operand));
    notes.extend(
        overridden
            .failed
            .iter()
            .map(|failed| format!("{failed}: its object keeps its last applied content")),
    );
    let wanted: Vec<Desired> = rendered
        .iter()
        .filter(|operand| !is_held(operand))
        .filter(|operand| credentials.is_some() || operand.kind.kind != kind::DEPLOYMENT)
        .map(Desired::from_operand)
        .collect::<Result<_, _>>()?;
    let keys: Vec<Key> = wanted.iter().map(|wanted| wanted.key.clone()).collect();
    observe::complete(client, &mut live, &keys).await?;
    controller::exclude_unmanaged(&resolved, &wanted, &mut live);
    notes.extend(adopt(&driver, &owner, &mut live).map(str::to_owned));
    let gate = Gate::of(&owner, &live, VERSION);
    let scope = PlanScope {
        prune: credentials.is_some(),
        untouched: overridden.held.clone(),
        ..PlanScope::default()
    };
    let plan = plan(
        &owner,
        &wanted,
        &live,
        &Unapplied::new(),
        &scope,
        Instant::now().into_std(),
    );
    if driver.spec.storage_classes.from_volume_types.enabled {
        notes.push(
            "of the StorageClasses of volume types those that exist are compared; only the operator, which asks the cloud for its \
             types, knows which are made or go"
                .to_owned(),
        );
    }
    notes.extend(plan.obstacles.iter().map(status::describe_obstacle));
    Ok(DiffReport {
        driver: name,
        from_version: gate.from().map(str::to_owned),
        to_version: VERSION.to_owned(),
        changes: changes(&plan, &live),
        notes,
    })
}

/// Counts as the driver's what an operator would take over, where the spec says so; tells what is not compared.
fn adopt(driver: &CinderCSIDriver, owner: &Owner, live: &mut BTreeMap<Key, Value>) -> Option<&'static str> {
    match driver.spec.adoption.mode {
        AdoptionMode::Refuse => None,
        AdoptionMode::Adopt => {
            adopt_orphans(owner, live);
            None
        }
        AdoptionMode::Migrate => claim_csi_driver(owner, live).then_some(
            "spec.adoption.mode is Migrate: the operator takes the place of another installation step by step, and what it does to that \
             is left out",
        ),
    }
}

fn failed(what: &'static str) -> impl Fn(kube::Error) -> DiffError {
    move |source| DiffError::Read {
        what,
        source: Box::new(source),
    }
}

/// The cluster, as far as it can be known without watching it.
async fn environment(client: &Client, namespace: &str, images: InstalledImages) -> Result<Environment, DiffError> {
    let version = client
        .apiserver_version()
        .await
        .map_err(failed("the version of the API server"))?;
    let namespaces: GuardedApi<PartialObjectMeta<Namespace>> = GuardedApi::all(client.clone());
    let system = namespaces.get("kube-system").await;
    let nodes: GuardedApi<PartialObjectMeta<Node>> = GuardedApi::all(client.clone());
    let nodes = nodes
        .list_guarded(&ListParams::default())
        .await
        .map_err(failed("the nodes"))?;
    let index = observe::class_marks(client).await?;
    Ok(Environment {
        namespace: namespace.to_owned(),
        operator_version: VERSION.to_owned(),
        kubernetes_version: KubernetesVersion::parse(&version.major, &version.minor),
        cluster_uid: system.ok().and_then(|system| system.metadata.uid),
        nodes: nodes.items.len(),
        apis: observe::discover(client).await,
        clouds: BTreeMap::new(),
        images,
        restrictions: cinder_operator_core::restrictions::Restrictions::default(),
        other_drivers: Vec::new(),
        classes: ClassFacts {
            marked: Index::default_classes(&index),
            ..ClassFacts::default()
        },
        snapshot_controller: ControllerSight::Unseen,
        silent_clouds: std::collections::BTreeSet::new(),
        zoned_volumes: 0,
        records: BTreeMap::new(),
        now: Sources::system().now(),
    })
}

fn credentials(live: &BTreeMap<Key, Value>) -> Option<DriverCredentials> {
    let mut secrets = live.iter().filter(|(key, _)| key.kind == kind::SECRET);
    secrets.find_map(|(_, secret)| {
        let secret: Secret = serde_json::from_value(secret.clone()).ok()?;
        DriverCredentials::from_secret(&secret)
    })
}

/// Whether the driver is to be taken away.
fn is_leaving(driver: &CinderCSIDriver) -> bool {
    driver.spec.management_state == ManagementState::Removed || driver.metadata.deletion_timestamp.is_some()
}

/// What the changes wait for, by the object alone.
fn wait(driver: &CinderCSIDriver) -> Option<&'static str> {
    match driver.spec.management_state {
        ManagementState::Paused | ManagementState::DryRun | ManagementState::Unmanaged => {
            Some("spec.managementState forbids changes: the operator does this once it is Managed")
        }
        _ if is_leaving(driver) => Some("the driver is to be removed, which waits for the last volume of it"),
        ManagementState::Managed | ManagementState::Removed => None,
    }
}

fn word(action: ChangeAction) -> &'static str {
    match action {
        ChangeAction::Create => "create",
        ChangeAction::Update => "update",
        ChangeAction::Repair => "repair",
        ChangeAction::Recreate => "recreate",
        ChangeAction::Delete => "delete",
        ChangeAction::Blocked => "blocked",
    }
}

/// One row for each field; the first of them says of which object.
fn rows(change: &PendingChange) -> Vec<Vec<String>> {
    let disruptive = if change.disruptive { "yes" } else { "no" };
    let head = [word(change.action), &change.resource, disruptive].map(str::to_owned);
    let mut fields = change.fields.iter().cloned();
    let mut rows = vec![[&head[..], &[fields.next().unwrap_or_default()]].concat()];
    rows.extend(fields.map(|field| vec![String::new(), String::new(), String::new(), field]));
    rows
}

impl fmt::Display for DiffReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disruptive = self.changes.iter().filter(|change| change.disruptive).count();
        match self.changes.len() {
            0 => write!(f, "{}: nothing would change", self.driver)?,
            1 => write!(f, "{}: 1 change, {disruptive} disruptive", self.driver)?,
            count => write!(f, "{}: {count} changes, {disruptive} disruptive", self.driver)?,
        }
        match &self.from_version {
            Some(from) => writeln!(f, ", version {from} -> {}", self.to_version)?,
            None => writeln!(f)?,
        }
        let rows: Vec<_> = self.changes.iter().flat_map(rows).collect();
        if !rows.is_empty() {
            write!(f, "\n{}", table(&["ACTION", "OBJECT", "DISRUPTIVE", "FIELD"], &rows))?;
        }
        if rows.iter().any(|row| row[3].starts_with('-')) {
            writeln!(f, "\nA field with a minus sign is given up.")?;
        }
        write_notes(f, &self.notes)
    }
}

#[cfg(test)]
mod tests {
    use cinder_csi_crds::{CinderCSIDriverSpec, Cloud};

    use super::*;

    fn mk_change(action: ChangeAction, resource: &str, disruptive: bool, fields: &[&str]) -> PendingChange {
        PendingChange {
            resource: resource.to_owned(),
            action,
            disruptive,
            fields: fields.iter().map(|&field| field.to_owned()).collect(),
        }
    }

    #[test]
    fn people_read_what_changes_field_by_field() {
        let report = DiffReport {
            driver: "d".to_owned(),
            from_version: Some("0.1.0".to_owned()),
            to_version: "0.2.0".to_owned(),
            changes: vec![
                mk_change(
                    ChangeAction::Update,
                    "DaemonSet ns/x",
                    true,
                    &["spec.template.spec.containers[driver].image", "-metadata.labels.old"],
                ),
                mk_change(ChangeAction::Create, "StorageClass fast", false, &[]),
            ],
            notes: vec!["a word".to_owned()],
        };
        assert_eq!(
            report.to_string(),
            "\
d: 2 changes, 1 disruptive, version 0.1.0 -> 0.2.0

  ACTION  OBJECT             DISRUPTIVE  FIELD
  update  DaemonSet ns/x     yes         spec.template.spec.containers[driver].image
                                         -metadata.labels.old
  create  StorageClass fast  no

A field with a minus sign is given up.

Note: a word
"
        );
    }

    #[test]
    fn people_read_that_nothing_would_change() {
        let report = DiffReport {
            driver: "d".to_owned(),
            ..DiffReport::default()
        };
        assert_eq!(report.to_string(), "d: nothing would change\n");
    }

    #[rstest::rstest]
    #[case(ManagementState::Managed, None)]
    #[case(ManagementState::DryRun, Some("once it is Managed"))]
    #[case(ManagementState::Removed, Some("waits for the last volume"))]
    fn what_holds_the_changes_up_is_told(#[case] state: ManagementState, #[case] words: Option<&str>) {
        let mut driver = CinderCSIDriver::new("d", CinderCSIDriverSpec::new(vec![Cloud::from_secret("s")]));
        driver.spec.management_state = state;
        assert_eq!(
            wait(&driver).map(|told| words.is_some_and(|words| told.contains(words))),
            words.map(|_| true)
        );
    }
}
