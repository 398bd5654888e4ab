//! The command `diff`: what the operator would change in the cluster for the CinderCSIDriver of a file, with the rights of whoever
//! asks. The same functions decide as in a reconcile, and nothing is written.

use std::{collections::BTreeMap, io::Write, path::Path};

use cinder_csi_crds::{ChangeAction, CinderCSIDriver, PendingChange};
use k8s_openapi::{
    api::core::v1::{Namespace, Node, Secret},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::{
    args::{DiffArgs, DiffFormat, VERSION},
    changes::changes,
    images::InstalledImages,
    objects::{Key, Owner, kind},
    observe::{self, Index, OptionalApis},
    operands::{DriverCredentials, RenderError, operands},
    plan::{Action, Desired, Unrepairable, plan},
    render,
    resolve::{ClassFacts, ControllerSight, Environment, KubernetesVersion, Problem, resolve},
    rollout::Gate,
};

/// Why nothing could be compared.
#[derive(Debug, Error)]
pub enum DiffError {
    /// The file.
    #[error(transparent)]
    File(#[from] render::Error),
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
    /// The output is closed.
    #[error("print: {0}")]
    Print(#[from] std::io::Error),
}

/// What differs.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
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

/// Prints what differs; true when something does.
pub async fn diff(args: &DiffArgs, client: &Client, out: &mut impl Write) -> Result<bool, DiffError> {
    let driver = render::read_driver(Path::new(&args.file))?;
    let report = Box::pin(report(client, driver, &args.namespace, args.images.installed())).await?;
    match args.output {
        DiffFormat::Json => {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        }
        DiffFormat::Text => print(&report, out)?,
    }
    Ok(!report.changes.is_empty())
}

/// Compares the driver with what is in the cluster.
pub async fn report(
    client: &Client,
    mut driver: CinderCSIDriver,
    namespace: &str,
    images: InstalledImages,
) -> Result<Report, DiffError> {
    let name = driver.name_any();
    let drivers: Api<CinderCSIDriver> = Api::all(client.clone());
    let there = drivers.get_opt(&name).await.map_err(failed("the CinderCSIDriver"))?;
    if let Some(there) = there {
        driver.metadata.uid = there.metadata.uid;
        driver.metadata.creation_timestamp = there.metadata.creation_timestamp;
        // What the operator has found out of clouds and zones is remembered there; this program does not ask the clouds.
        driver.status = there.status;
    }
    let owner = Owner {
        uid: driver.uid().unwrap_or_default(),
        name: name.clone(),
    };
    let environment = environment(client, namespace, images).await?;
    let mut notes = Vec::new();
    let mut live = observe::live(client, &owner, namespace, environment.apis).await;
    if let Err(observe::ObserveError::List { plural, .. }) = &live
        && plural == "secrets"
    {
        notes.push("Secrets may not be read with these rights, and nothing could be compared".to_owned());
    }
    let mut live = std::mem::replace(&mut live, Ok(BTreeMap::new()))?;
    let gate = Gate::of(&live, VERSION);
    let resolved = resolve(&driver, &environment).map_err(DiffError::Resolve)?;
    let credentials = credentials(&live);
    if credentials.is_none() {
        notes.push(
            "the driver has no credentials yet: its Secret and its controller, which the operator makes after a login, are left out"
                .to_owned(),
        );
    }
    let wanted: Vec<Desired> = operands(&resolved, credentials.as_ref())?
        .iter()
        .filter(|operand| credentials.is_some() || operand.kind.kind != kind::DEPLOYMENT)
        .map(Desired::from_operand)
        .collect::<Result<_, _>>()?;
    let keys: Vec<Key> = wanted.iter().map(|wanted| wanted.key.clone()).collect();
    observe::complete(client, &mut live, &keys).await?;
    let mut plan = plan(&owner, &wanted, &live, &Unrepairable::new(), credentials.is_some());
    if driver.spec.storage_classes.from_volume_types.enabled {
        notes.push("StorageClasses of volume types are known to the operator alone and are left out".to_owned());
        plan.actions
            .retain(|action| !matches!(action, Action::Prune { key, .. } if key.kind == kind::STORAGE_CLASS));
    }
    Ok(Report {
        driver: name,
        from_version: gate.from().map(str::to_owned),
        to_version: VERSION.to_owned(),
        changes: changes(&plan, &live),
        notes,
    })
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
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let system = namespaces.get_metadata("kube-system").await;
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes
        .list_metadata(&ListParams::default())
        .await
        .map_err(failed("the nodes"))?;
    let index = observe::class_marks(client).await?;
    Ok(Environment {
        namespace: namespace.to_owned(),
        operator_version: VERSION.to_owned(),
        kubernetes_version: KubernetesVersion::parse(&version.major, &version.minor),
        cluster_uid: system.ok().and_then(|system| system.metadata.uid),
        nodes: nodes.items.len(),
        apis: OptionalApis::discover(client).await,
        clouds: BTreeMap::new(),
        images,
        neighbours: Vec::new(),
        classes: ClassFacts {
            marked: Index::default_classes(&index),
            ..ClassFacts::default()
        },
        snapshot_controller: ControllerSight::Unseen,
        runs_snapshot_controller: false,
        silent_clouds: std::collections::BTreeSet::new(),
        zoned_volumes: 0,
        now: Timestamp::now(),
    })
}

fn credentials(live: &BTreeMap<Key, Value>) -> Option<DriverCredentials> {
    let mut secrets = live.iter().filter(|(key, _)| key.kind == kind::SECRET);
    secrets.find_map(|(_, secret)| {
        let secret: Secret = serde_json::from_value(secret.clone()).ok()?;
        DriverCredentials::from_secret(&secret)
    })
}

fn print(report: &Report, out: &mut impl Write) -> Result<(), DiffError> {
    if let Some(from) = &report.from_version {
        writeln!(out, "version {from} -> {}", report.to_version)?;
    }
    for change in &report.changes {
        let word = match change.action {
            ChangeAction::Create => "create",
            ChangeAction::Update => "update",
            ChangeAction::Repair => "repair",
            ChangeAction::Recreate => "recreate",
            ChangeAction::Delete => "delete",
            ChangeAction::Blocked => "blocked",
        };
        let mark = if change.disruptive { "  (disruptive)" } else { "" };
        writeln!(out, "{word:<9} {}{mark}", change.resource)?;
        for field in &change.fields {
            writeln!(out, "          {field}")?;
        }
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_what_changes_field_by_field() {
        let report = Report {
            driver: "d".to_owned(),
            from_version: Some("0.1.0".to_owned()),
            to_version: "0.2.0".to_owned(),
            changes: vec![PendingChange {
                resource: "DaemonSet ns/x".to_owned(),
                action: ChangeAction::Update,
                disruptive: true,
                fields: vec!["spec.template.spec.containers[driver].image".to_owned()],
            }],
            notes: vec!["a word".to_owned()],
        };
        let mut out = Vec::new();
        print(&report, &mut out).expect("printed");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "version 0.1.0 -> 0.2.0\nupdate    DaemonSet ns/x  (disruptive)\n          \
             spec.template.spec.containers[driver].image\nnote: a word\n"
        );
    }
}
