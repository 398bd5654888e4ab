//! What the clouds say, where the driver's Secret may be read; else what the operator has said of them.

use std::{collections::BTreeMap, time::Duration};

use cinder_cloud::{Cloud, CloudOptions};
use cinder_csi_crds::{CinderCSIDriver, ConditionType, INSTANCE_LABEL};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, api::ListParams};

use super::{
    super::{CloudAccess, Suspect, ask},
    optional,
};
use crate::{
    clouds::{CloudState, look, trouble},
    operands::DriverCredentials,
    resolve::namespace_of,
    status::find,
};

/// How long one request to the cloud may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the clouds, where the driver's Secret may be read; else the conditions tell what the operator knows. Says whether the
/// clouds were asked.
pub(super) async fn ask_clouds(
    client: &Client,
    driver: (&str, Option<&CinderCSIDriver>),
    namespace: &str,
    under_way: &mut [Suspect],
    notes: &mut Vec<String>,
) -> bool {
    let (name, driver) = driver;
    let status = driver.and_then(|driver| driver.status.as_ref());
    let serving = status
        .and_then(|status| status.controller.as_ref())
        .map(|controller| controller.ready);
    let namespace = driver.map_or(namespace, |driver| namespace_of(driver, namespace));
    let credentials = credentials(client, name, namespace, notes).await;
    let (mut clouds, mut looks) = (BTreeMap::new(), Vec::new());
    let mut zone_map = BTreeMap::new();
    for (name, part) in credentials.iter().flat_map(DriverCredentials::split) {
        let options = CloudOptions {
            request_timeout: REQUEST_TIMEOUT,
            ..CloudOptions::default()
        };
        let Some(config) = part.config() else { continue };
        zone_map.extend(config.topology.zone_map.clone());
        match Cloud::new(config, options) {
            Ok(cloud) => {
                looks.push(look(&cloud, &CloudState::default()).await);
                clouds.insert(name, cloud);
            }
            Err(error) => notes.push(format!("the cloud cannot be asked: {error}")),
        }
    }
    let access = if looks.is_empty() {
        status.map(access_by_conditions).unwrap_or_default()
    } else {
        access_by_looks(&looks)
    };
    let answers = ask(&clouds, under_way).await;
    for suspect in under_way {
        answers.join(suspect);
        let case = &mut suspect.case;
        case.has_controller = serving.is_none_or(|ready| ready > 0);
        case.access = access.clone();
        case.facts = looks.iter().map(|state| state.facts.clone()).collect();
        case.zone_map.clone_from(&zone_map);
    }
    !clouds.is_empty()
}

async fn credentials(
    client: &Client,
    driver: &str,
    namespace: &str,
    notes: &mut Vec<String>,
) -> Option<DriverCredentials> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let labels = format!("{INSTANCE_LABEL}={driver}");
    let found = optional(
        secrets.list(&ListParams::default().labels(&labels)).await,
        "the driver's Secret, with which the cloud could be asked,",
        notes,
    )?;
    let credentials = found.iter().find_map(DriverCredentials::from_secret);
    if credentials.is_none() {
        notes.push(format!(
            "namespace {namespace} has no Secret of the driver, with which the cloud could be asked; is it the operator's \
             (--operator-namespace)?"
        ));
    }
    credentials
}

fn access_by_looks(states: &[CloudState]) -> CloudAccess {
    let all = |is_refused: bool| {
        states.iter().all(|state| {
            let mut troubles = state.troubles.iter();
            troubles.any(|one| !is_refused || one.reason == trouble::UNAUTHORIZED)
        })
    };
    let words = || {
        let first = states.first().and_then(|state| state.troubles.first());
        first.map(|one| one.message.clone()).unwrap_or_default()
    };
    if all(true) {
        CloudAccess::Refused(words())
    } else if all(false) {
        CloudAccess::Unreachable(words())
    } else {
        CloudAccess::Open
    }
}

fn access_by_conditions(status: &cinder_csi_crds::CinderCSIDriverStatus) -> CloudAccess {
    let failed = |type_| find(status, type_).filter(|condition| condition.status == "False");
    let refused = failed(ConditionType::CredentialsValid)
        .filter(|condition| ["Unauthorized", "Forbidden", "Expired"].contains(&condition.reason.as_str()));
    match (refused, failed(ConditionType::BackendReachable)) {
        (Some(condition), _) => CloudAccess::Refused(condition.message.clone()),
        (None, Some(condition)) => CloudAccess::Unreachable(condition.message.clone()),
        (None, None) => CloudAccess::Open,
    }
}
