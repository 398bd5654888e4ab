// SPDX-License-Identifier: Apache-2.0

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, LazyLock},
    time::Duration,
};

use cinder_cloud::{CloudConfig, CloudError, CloudOptions, CloudService, EndpointProblem, Failure, VolumeId};
use cinder_csi_crds::{CinderCSIDriverSpec, Cloud as CloudSpec};
use cinder_operator_core::{
    clouds::CloudState,
    cluster::Blockers,
    manifests::{DriverCredentials, Place},
    reasons::{Degraded, Refusal, Refused},
    record::RecordedPlace,
};
use futures::future::BoxFuture;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use parking_lot::Mutex;

use super::candidate::parted;
use super::credential_source::Certificates;
use super::trial::FIRST_PAUSE;
use super::volume_lookup::LOOKUP_LIFETIME;
use super::*;

mod candidate;
mod certificates;
mod credential_reader;
mod login_check;
mod project_change;
mod refusals;
mod regions;
mod volume_lookup;

const MINUTE: Duration = Duration::from_mins(1);

/// Returns prepared results of checks, and records the requests.
#[derive(Debug, Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<VecDeque<Result<LoginFacts, TrialError>>>>,
    requests: Arc<Mutex<Vec<LoginQueries>>>,
    /// The existing volumes, and the number of their lists.
    existing: Arc<Mutex<(Vec<&'static str>, usize)>>,
}

fn mk_login(project: &str, region: &str, knows_volumes: Option<bool>) -> LoginFacts {
    LoginFacts {
        place: mk_place(project, region),
        knows_volumes,
        state: CloudState::default(),
    }
}

fn mk_place(project: &str, region: &str) -> Place {
    Place {
        project: project.to_owned(),
        region: Some(region.to_owned()),
    }
}

impl Scripted {
    fn new(answers: impl IntoIterator<Item = Result<(), CloudError>>) -> Self {
        let tried = |()| mk_login("p", "one", None);
        let answers = answers.into_iter();
        Self::of(answers.map(|answer| answer.map(tried).map_err(TrialError::Login)))
    }

    fn of(answers: impl IntoIterator<Item = Result<LoginFacts, TrialError>>) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.into_iter().collect())),
            ..Self::default()
        }
    }

    fn logins(&self) -> usize {
        self.requests.lock().len()
    }
}

impl Keystone for Scripted {
    fn list_existing(
        &self,
        _: CloudConfig,
        volumes: Arc<BTreeSet<String>>,
    ) -> BoxFuture<'_, Result<Vec<VolumeId>, CloudError>> {
        let mut existing = self.existing.lock();
        existing.1 += 1;
        let found = existing.0.iter().filter(|volume| volumes.contains(**volume));
        let found = found.map(|volume| VolumeId::new(*volume)).collect();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn check_login(&self, _: CloudConfig, queries: LoginQueries) -> BoxFuture<'_, Result<LoginFacts, TrialError>> {
        self.requests.lock().push(queries);
        let answer = self.answers.lock().pop_front();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }
}

fn failure(status: Option<u16>, fault: &str, request_id: &str) -> Failure {
    Failure {
        operation: "token_create",
        object: String::new(),
        status,
        fault: fault.to_owned(),
        request_id: Some(request_id.to_owned()),
        elapsed: Duration::from_millis(7),
    }
}

fn unauthorized(request_id: &str) -> CloudError {
    CloudError::Auth(failure(
        Some(401),
        "The request you have made requires authentication.",
        request_id,
    ))
}

fn mk_source() -> CredentialSource {
    CredentialSource::new("ns", &CloudSpec::from_secret("openstack-credentials"))
}

fn mk_yaml(password: &str) -> String {
    format!(
        "clouds:\n  openstack:\n    auth:\n      auth_url: https://keystone.example.org/v3\n      username: csi\n      \
         password: {password}\n      user_domain_name: Default\n      project_name: p\n      project_domain_name: Default\n    \
         region_name: one\n"
    )
}

fn mk_candidate(password: &str) -> Result<Candidate, Refused> {
    mk_source().parse_candidate(&mk_yaml(password), Certificates::default())
}

fn mk_login_check(keystone: &Scripted) -> LoginCheck {
    LoginCheck::new(Box::new(keystone.clone()))
}

async fn check(login_check: &LoginCheck, password: &str, last_good: Option<&DriverCredentials>) -> CredentialDecision {
    login_check
        .check(
            "d",
            &mk_source(),
            mk_candidate(password),
            mk_installed(last_good.cloned(), RecordedPlace::Never),
            &mk_project_change(&FREE),
            5 * MINUTE,
        )
        .await
}

const VOLUME: &str = "0cf2a1d9-6b1c-4c3e-9d3f-5a8f2f3d7e10";

/// Returns the same usage each time.
struct Fixed(LazyLock<Usage>);

impl UsageQuery for Fixed {
    fn usage(&self) -> BoxFuture<'_, &Usage> {
        Box::pin(std::future::ready(&*self.0))
    }
}

/// Nothing needs the driver.
static FREE: Fixed = Fixed(LazyLock::new(Usage::default));

/// A driver with a volume.
static USED: Fixed = Fixed(LazyLock::new(|| Usage {
    blockers: Blockers {
        volumes: vec!["pv1".to_owned()],
        ..Blockers::default()
    },
    volumes: Arc::new(BTreeSet::from([VOLUME.to_owned()])),
    failure: None,
}));

/// A driver with a snapshot.
static SNAPSHOT: Fixed = Fixed(LazyLock::new(|| Usage {
    blockers: Blockers {
        snapshots: vec!["s1".to_owned()],
        ..Blockers::default()
    },
    ..Usage::default()
}));

/// A driver with an unknown usage.
static UNKNOWN: Fixed = Fixed(LazyLock::new(|| Usage {
    failure: Some("cannot list volumesnapshotcontents".to_owned()),
    ..Usage::default()
}));

fn mk_project_change(query: &Fixed) -> ProjectChangeCheck<'_> {
    ProjectChangeCheck {
        query,
        uid: "the-uid".to_owned(),
        may_move: false,
        places: Vec::new(),
    }
}

fn mk_installed(credentials: Option<DriverCredentials>, place: RecordedPlace) -> InstalledCloud {
    InstalledCloud { credentials, place }
}

fn mk_recorded(place: Option<Place>) -> RecordedPlace {
    place.map_or_else(|| RecordedPlace::Unknown("it is lost".to_owned()), RecordedPlace::Known)
}

/// Checks credentials for the project of `tried`, while the driver's own belong to `recorded`.
async fn judged(
    recorded: Option<Place>,
    tried: LoginFacts,
    project_change: &ProjectChangeCheck<'_>,
) -> (CredentialDecision, Vec<LoginQueries>) {
    let keystone = Scripted::of([Ok(tried.clone()), Ok(tried)]);
    let own = mk_candidate("own").expect("credentials").credentials;
    let own = recorded.clone().map_or(own.clone(), |place| own.at(place));
    let installed = mk_installed(Some(own), mk_recorded(recorded));
    let decision = mk_login_check(&keystone)
        .check(
            "d",
            &mk_source(),
            mk_candidate("other"),
            installed,
            project_change,
            5 * MINUTE,
        )
        .await;
    let requests = keystone.requests.lock().clone();
    (decision, requests)
}
