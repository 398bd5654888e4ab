// SPDX-License-Identifier: Apache-2.0
//! The clouds in a status.

use std::collections::BTreeSet;

use cinder_csi_crds::{CinderCSIDriverStatus, CloudServiceStatus, CloudStatus};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::{
    clouds::{CloudFacts, CloudState},
    decide::{CloudView, Report},
    status::whole_seconds,
};

/// The number of zones of a cloud in the status.
const LISTED: usize = 32;

/// The clouds in the status. Nothing in it moves while the cloud does not change.
pub(in crate::status) fn statuses(
    previous: Option<&CinderCSIDriverStatus>,
    report: &Report,
    now: Timestamp,
) -> Vec<CloudStatus> {
    let Report { facts, .. } = report;
    let status = |cloud: &CloudView| {
        let now = status_of(cloud, now);
        match before(previous, cloud).filter(|_| cloud.is_unseen()) {
            None => now,
            Some(old) => CloudStatus {
                services: old.services.clone(),
                compute_zones: old.compute_zones.clone(),
                volume_zones: old.volume_zones.clone(),
                credential_expires_at: old.credential_expires_at.clone(),
                ..now
            },
        }
    };
    facts.clouds.iter().map(status).collect()
}

/// What the status said of a cloud.
pub(super) fn before<'a>(previous: Option<&'a CinderCSIDriverStatus>, cloud: &CloudView) -> Option<&'a CloudStatus> {
    previous?.clouds.iter().find(|old| old.name == cloud.name)
}

fn status_of(cloud: &CloudView, now: Timestamp) -> CloudStatus {
    let CloudFacts {
        compute_zones,
        volume_zones,
        ..
    } = &cloud.state.facts;
    let time = |at: Timestamp| Time(whole_seconds(at));
    let token = cloud.state.token_ends.filter(|_| cloud.auth_method == Some("Token"));
    let credential = cloud.state.credential.as_ref().and_then(|(_, end)| *end);
    let few = |names: &[String]| names.iter().take(LISTED).cloned().collect();
    CloudStatus {
        name: cloud.name.clone(),
        authenticated: cloud.authenticated,
        auth_method: cloud.auth_method.map(str::to_owned),
        credential_expires_at: credential.or(token).map(time),
        ca_expires_at: cloud.ca_end(now).map(time),
        client_cert_expires_at: cloud.client_cert_ends.iter().min().copied().map(time),
        services: services(&cloud.state),
        compute_zones: few(compute_zones),
        volume_zones: few(volume_zones),
    }
}

fn services(state: &CloudState) -> Vec<CloudServiceStatus> {
    if !state.is_known {
        return Vec::new();
    }
    let broken = |name: &str| state.troubles.iter().any(|one| one.service == name);
    // Without a login nobody else is asked.
    let is_locked = broken("identity");
    let names: BTreeSet<&str> = state
        .facts
        .services
        .keys()
        .map(String::as_str)
        .chain(state.troubles.iter().map(|one| one.service))
        .collect();
    names
        .into_iter()
        .map(|name| CloudServiceStatus {
            name: name.to_owned(),
            reachable: !is_locked && !broken(name),
            microversion: state
                .facts
                .services
                .get(name)
                .and_then(|fact| fact.microversion.clone()),
        })
        .collect()
}
