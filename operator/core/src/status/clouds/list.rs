// SPDX-License-Identifier: Apache-2.0
//! List of clouds in the status.

use cinder_csi_crds::{CinderCSIDriverStatus, CloudStatus};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::{
    decide::{CloudView, Facts},
    status::verdict::whole_seconds,
};

/// Maximum number of zones of a cloud in the status.
const LISTED: usize = 32;

/// Returns the clouds for the status. Facts that the last check did not read retain their values.
pub(in crate::status) fn statuses(
    previous: Option<&CinderCSIDriverStatus>,
    facts: &Facts,
    now: Timestamp,
) -> Vec<CloudStatus> {
    let before = |cloud: &CloudView| previous?.clouds.iter().find(|old| old.name == cloud.name);
    let clouds = facts.clouds.iter();
    clouds.map(|cloud| status_of(cloud, before(cloud), now)).collect()
}

fn status_of(cloud: &CloudView, before: Option<&CloudStatus>, now: Timestamp) -> CloudStatus {
    let time = |at: Timestamp| Time(whole_seconds(at));
    let token = cloud.state.token_ends.filter(|_| cloud.auth_method == Some("Token"));
    let credential = cloud.state.credential.as_ref().and_then(|(_, end)| *end);
    let old_expiry = || before?.credential_expires_at.clone().filter(|_| !cloud.authenticated);
    let zones = |names: &[String], old: fn(&CloudStatus) -> &Vec<String>| -> Vec<String> {
        let old = before.map(old).filter(|_| names.is_empty());
        old.cloned()
            .unwrap_or_else(|| names.iter().take(LISTED).cloned().collect())
    };
    CloudStatus {
        name: cloud.name.clone(),
        authenticated: cloud.authenticated,
        auth_method: cloud.auth_method.map(str::to_owned),
        credential_expires_at: credential.or(token).map(time).or_else(old_expiry),
        ca_expires_at: cloud.ca_end(now).map(time),
        client_cert_expires_at: cloud.client_cert_ends.iter().min().copied().map(time),
        compute_zones: zones(&cloud.state.facts.compute_zones, |old| &old.compute_zones),
        volume_zones: zones(&cloud.state.facts.volume_zones, |old| &old.volume_zones),
    }
}
