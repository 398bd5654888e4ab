// SPDX-License-Identifier: Apache-2.0
//! The Keystone of the tests. It accepts or refuses a login by the password.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cinder_cloud::{CloudConfig, CloudError, CloudService, EndpointProblem, Failure, VolumeId};
use cinder_operator_core::{
    clouds::{CloudFacts, CloudState},
    manifests::Place,
};
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::openstack::{Keystone, LoginFacts, LoginQueries, TrialError};

/// Accepts every password except `wrong`, `forbidden`, `unreachable` and `broken`, and never responds to `unheard`.
/// `elsewhere` leads to a different project without the driver's volumes, `western` to a third project with them, and
/// `faraway` to a different region without them. With `misled` Cinder is missing, and with `undecided` the catalogue
/// has several regions. `spaced` has the zone `zone one`.
#[derive(Debug, Default)]
pub(super) struct Door {
    pub(super) logins: Arc<Mutex<usize>>,
}

impl Keystone for Door {
    fn list_existing(
        &self,
        config: CloudConfig,
        volumes: Arc<BTreeSet<String>>,
    ) -> BoxFuture<'_, Result<Vec<VolumeId>, CloudError>> {
        let conf = config.to_cloud_conf(None);
        let is_elsewhere = conf.contains("elsewhere") || conf.contains("faraway");
        let existing = volumes.iter().filter(|_| !is_elsewhere).map(VolumeId::new);
        Box::pin(std::future::ready(Ok(existing.collect())))
    }

    fn check_login(&self, config: CloudConfig, queries: LoginQueries) -> BoxFuture<'_, Result<LoginFacts, TrialError>> {
        *self.logins.lock() += 1;
        let conf = config.to_cloud_conf(None);
        let failure = |status| Failure {
            operation: "token_create",
            object: String::new(),
            status,
            fault: "The request you have made requires authentication.".to_owned(),
            request_id: None,
            elapsed: Duration::ZERO,
        };
        let is = |password: &str| conf.contains(password);
        if is("unheard") {
            return Box::pin(std::future::pending());
        }
        if is("misled") {
            let missing = CloudError::NoEndpoint {
                service: "block-storage",
                region: Some("one".to_owned()),
                interface: "public",
                known: String::new(),
                problem: EndpointProblem::Place,
            };
            let missing = TrialError::Service(CloudService::BlockStorage, missing);
            return Box::pin(std::future::ready(Err(missing)));
        }
        let answer = if is("undecided") {
            Err(CloudError::RegionAmbiguous {
                interface: "public",
                regions: "one, two".to_owned(),
            })
        } else if is("wrong") {
            Err(CloudError::Auth(failure(Some(401))))
        } else if is("forbidden") {
            Err(CloudError::Forbidden(failure(Some(403))))
        } else if is("unreachable") {
            Err(CloudError::Unreachable {
                failure: failure(None),
                sent: false,
            })
        } else if is("broken") {
            Err(CloudError::Server(failure(Some(500))))
        } else {
            let projects = [("elsewhere", "another"), ("western", "w")];
            let project = projects.iter().find(|(password, _)| is(password));
            Ok(LoginFacts {
                place: Place {
                    project: project.map_or("p", |(_, project)| project).to_owned(),
                    region: Some(if is("faraway") { "two" } else { "one" }.to_owned()),
                },
                knows_volumes: (!queries.volumes.is_empty()).then(|| !is("elsewhere") && !is("faraway")),
                state: CloudState {
                    facts: CloudFacts {
                        compute_zones: is("spaced").then(|| "zone one".to_owned()).into_iter().collect(),
                        volume_zones: Vec::new(),
                    },
                    ..CloudState::default()
                },
            })
        };
        Box::pin(std::future::ready(answer.map_err(TrialError::Login)))
    }
}
