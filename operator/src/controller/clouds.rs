// SPDX-License-Identifier: Apache-2.0
//! The clouds in a reconcile: credentials are tried, clouds are looked at, and the driver's word is awaited that it uses what it
//! was given.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cinder_cloud::VolumeId;
use cinder_csi_crds::{CinderCSIDriverStatus, Cloud as CloudSpec, Topology, TopologyMode};
use cinder_operator_core::{
    clouds::certificates,
    cluster::{Key, kind},
    decide::{CloudView, Facts, Outcome},
    manifests::{DriverCredentials, Place},
    problem::Problem,
    resolve::{
        health::{self, HealthSettings},
        topology_interval,
    },
};
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::{Reconciliation, last_good};
use crate::{
    credentials::{Candidate, MOVE_PROJECT, Source, Stakes, Verdict, proxies},
    reload,
};

/// How many volumes are looked up where it is not recorded where credentials lead to: one that is found is enough.
const LOOKED_UP: usize = 5;

/// What was found out about clouds and credentials.
pub(super) struct Checked {
    /// The clouds of the spec.
    pub(super) clouds: Vec<CloudView>,
    /// Clouds that the spec has no more and that volumes still need.
    pub(super) needed: Vec<Problem>,
    /// How clouds and volumes are watched.
    pub(super) health: HealthSettings,
    /// What the driver is to be given.
    pub(super) wanted: Option<DriverCredentials>,
    /// The accepted credentials of each cloud.
    accepted: BTreeMap<String, DriverCredentials>,
    /// The previous credentials of the driver.
    before: BTreeMap<String, DriverCredentials>,
    /// When to look again.
    pub(super) look_again: Duration,
}

impl Checked {
    /// The facts about the clouds; `has` are the credentials of the driver after the writes.
    pub(super) fn facts(mut self, pass: &Reconciliation<'_>, has: Option<&DriverCredentials>) -> Facts {
        let unnamed = unnamed(&pass.driver.spec.clouds, pass.driver.status.as_ref());
        let parts = has.map(DriverCredentials::split).unwrap_or_default();
        for view in &mut self.clouds {
            let cloud = pass.driver.spec.clouds.iter().find(|cloud| cloud.name == view.name);
            let is_unnamed = unnamed == Some(view.name.as_str());
            let part = |all: &BTreeMap<String, DriverCredentials>| {
                let part = part_of(all, cloud?, is_unnamed)?;
                Some(part.hash().to_owned())
            };
            let accepted = self.accepted.get(&view.name).map(|accepted| accepted.hash().to_owned());
            let given = part(&parts);
            view.is_not_given = accepted.is_some() && part(&self.before).is_some() && given != accepted;
            let credentials = has.filter(|_| given.is_some());
            view.hash = credentials.map(|credentials| credentials.short_hash().to_owned());
        }
        Facts {
            health: self.health,
            clouds: self.clouds,
            needed_clouds: self.needed,
            ..pass.facts()
        }
    }
}

impl Reconciliation<'_> {
    /// Checks the credentials of every cloud and keeps an eye on the clouds.
    pub(super) async fn check_credentials(&self, live: &BTreeMap<Key, Value>, may_write: bool) -> Checked {
        let mut clouds = Vec::new();
        let (context, name) = (self.context, &self.owner.name);
        let mut settings = health::settings(&self.driver.spec.health);
        settings.quota_interval = settings.quota_interval.min(zones_interval(&self.driver.spec.topology));
        let interval = settings.credential_check_interval.unwrap_or(context.idle_interval);
        let given = last_good(live);
        let before = &given.as_ref().map(DriverCredentials::split).unwrap_or_default();
        let stakes = &self.stakes(before);
        let mut look_again = interval;
        let mut in_use = BTreeMap::new();
        let unnamed = unnamed(&self.driver.spec.clouds, self.driver.status.as_ref());
        let checks = self.driver.spec.clouds.iter().map(|cloud| async move {
            let source = Source::new(self.namespace(), cloud).with_options_of(&self.driver.spec);
            let candidate = source.read(&context.client).await;
            let was = part_of(before, cloud, unnamed == Some(cloud.name.as_str()));
            let wanted = candidate.as_ref().ok().map(Candidate::auth_method);
            let verdict = context
                .checker
                .check(name, &source, candidate, was.cloned(), stakes, interval)
                .await;
            (cloud, wanted, verdict)
        });
        // All at once: one that does not answer takes the whole time of a login, and the others must not wait for it.
        for (cloud, wanted, verdict) in join_all(checks).await {
            look_again = look_again.min(verdict.look_again);
            if let Some(credentials) = &verdict.in_use {
                in_use.insert(cloud.name.clone(), credentials.clone());
            }
            clouds.push(view(cloud, &verdict, wanted));
        }
        let (left, needed) = self.left(before, unnamed, &in_use, stakes).await;
        in_use.extend(left);
        context.metrics.credentials(name, &clouds);
        let pause = context
            .clouds
            .keep(name, &in_use, &settings, &proxies(self.driver.spec.proxy.as_ref()));
        look_again = look_again.min(pause);
        let told = context.clouds.states(name);
        for view in &mut clouds {
            view.state = told.get(&view.name).cloned().unwrap_or_default();
        }
        let wanted = DriverCredentials::merged(&in_use).map(|credentials| {
            let restarted = may_write.then(|| self.restarted_for(live, &credentials));
            credentials.restarted_for(restarted.unwrap_or_else(|| self.restart_before(live)))
        });
        Checked {
            clouds,
            needed,
            health: settings,
            wanted,
            accepted: in_use,
            before: before.clone(),
            look_again,
        }
    }

    /// What another project, or a cloud less, would cost.
    fn stakes(&self, before: &BTreeMap<String, DriverCredentials>) -> Stakes {
        let name = &self.owner.name;
        let annotation = self.driver.annotations().get(MOVE_PROJECT);
        let is_only = self.driver.spec.clouds.len() == 1 && before.len() <= 1;
        self.context.cluster.read(|index| {
            let count = index.count_of(name);
            let volumes = index.volume_facts(name).take(if is_only { LOOKED_UP } else { 0 });
            Stakes {
                is_in_use: count.volumes > 0 || count.attachments > 0,
                volumes: volumes.map(|(_, volume)| VolumeId::new(&volume.handle)).collect(),
                uid: self.owner.uid.clone(),
                may_move: annotation.is_some_and(|uid| *uid == self.owner.uid),
            }
        })
    }

    /// The clouds that the driver has, the spec has no more, and that must stay; and why.
    async fn left(
        &self,
        before: &BTreeMap<String, DriverCredentials>,
        unnamed: Option<&str>,
        in_use: &BTreeMap<String, DriverCredentials>,
        stakes: &Stakes,
    ) -> (Vec<(String, DriverCredentials)>, Vec<Problem>) {
        let (context, driver) = (self.context, &self.owner.name);
        let clouds = &self.driver.spec.clouds;
        let is_wanted = |name: &str| {
            clouds
                .iter()
                .any(|cloud| cloud.name == name || (name.is_empty() && unnamed == Some(&cloud.name)))
        };
        // Under another name it is the same one.
        let is_elsewhere = |place: &Place| in_use.values().any(|other| other.place() == Some(place));
        let gone = before
            .iter()
            .filter(|(name, had)| !is_wanted(name) && !had.place().is_some_and(is_elsewhere));
        let (mut left, mut needed) = (Vec::new(), Vec::new());
        let gone: Vec<_> = gone.filter(|_| stakes.is_in_use && !stakes.may_move).collect();
        if gone.is_empty() {
            return (left, needed);
        }
        let volumes = context.cluster.read(|index| {
            let volumes = index.volume_facts(driver);
            Arc::new(volumes.map(|(_, volume)| volume.handle.clone()).collect())
        });
        for (name, had) in gone {
            if let Some(refusal) = context.checker.must_stay(driver, name, had, &volumes, stakes).await {
                needed.push(refusal);
                left.push((name.clone(), had.clone()));
            }
        }
        (left, needed)
    }

    /// For which credentials the controller's pods were replaced before.
    fn restart_before(&self, live: &BTreeMap<Key, Value>) -> Option<String> {
        let of_ours = |(key, object): &(&Key, &Value)| key.kind == kind::DEPLOYMENT && self.owner.owns(object);
        let mut deployments = live.iter().filter(of_ours);
        deployments.find_map(|(_, deployment)| DriverCredentials::restart_of(deployment))
    }

    /// For which credentials the controller's pods are replaced: those that they did not take over in time, else those for which
    /// it was done before.
    fn restarted_for(&self, live: &BTreeMap<Key, Value>, credentials: &DriverCredentials) -> Option<String> {
        let hash = credentials.short_hash();
        if self.context.reloads.is_overdue(&self.owner.name, hash) {
            return Some(hash.to_owned());
        }
        self.restart_before(live)
    }

    /// Asks the controller's pods which credentials they use; says when to ask again, if that is not known to be well.
    pub(super) async fn confirm_reload(
        &self,
        outcome: &mut Outcome,
        credentials: Option<&DriverCredentials>,
        may_write: bool,
    ) -> Option<Duration> {
        let (context, name) = (self.context, &self.owner.name);
        let wanted = credentials?.short_hash();
        let pods = match reload::pods(&context.client, self.namespace(), name).await {
            Ok(pods) => pods,
            Err(error) => {
                tracing::warn!(driver = name, %error, "the controller's pods cannot be listed");
                return Some(reload::ASK_AGAIN);
            }
        };
        let loaded = context.reloads.ask(name, wanted, &pods).await;
        outcome.loaded = loaded;
        if loaded == Some(true)
            && let Some(method) = context.reloads.rotated(name, wanted)
        {
            context.metrics.rotated(name, method);
        }
        outcome.reload_failed = context.reloads.is_lost(name, wanted);
        // Where nothing may be written, or was done in vain, nothing comes of the answer.
        (loaded == Some(false) && may_write && !outcome.reload_failed).then_some(reload::ASK_AGAIN)
    }
}

/// How often zones have to be asked for.
fn zones_interval(topology: &Topology) -> Duration {
    match topology.mode {
        TopologyMode::Auto => topology_interval(topology),
        TopologyMode::Enabled | TopologyMode::Disabled => Duration::MAX,
    }
}

/// What the driver has of this cloud. The cloud of a driver with only one has no name there.
fn part_of<'a>(
    before: &'a BTreeMap<String, DriverCredentials>,
    cloud: &CloudSpec,
    is_unnamed: bool,
) -> Option<&'a DriverCredentials> {
    let unnamed = || before.get("").filter(|_| is_unnamed);
    before.get(&cloud.name).or_else(unnamed)
}

/// The cloud that the driver has without a name: the only one of which the status says that credentials were given to it. Where
/// that one is not in the spec any more, the first has taken its place.
fn unnamed<'a>(spec: &'a [CloudSpec], status: Option<&CinderCSIDriverStatus>) -> Option<&'a str> {
    let given = status.into_iter().flat_map(|status| &status.clouds);
    let given: Vec<&str> = given
        .filter(|cloud| cloud.secret_hash.is_some())
        .map(|cloud| cloud.name.as_str())
        .collect();
    let is_it = |cloud: &&CloudSpec| matches!(given.as_slice(), [name] if *name == cloud.name);
    let cloud = spec.iter().find(is_it).or(spec.first())?;
    Some(&cloud.name)
}

fn view(cloud: &CloudSpec, verdict: &Verdict, wanted: Option<&'static str>) -> CloudView {
    let config = verdict.in_use.as_ref().and_then(DriverCredentials::config);
    let pem = |pem: Option<&str>| -> Vec<Timestamp> { pem.map(certificates::ends).unwrap_or_default() };
    let tls = config.as_ref().map(|config| &config.tls);
    let authorities = tls
        .and_then(|tls| tls.ca_pem.as_deref())
        .map(crate::credentials::parted);
    CloudView {
        name: cloud.name.clone(),
        authenticated: verdict.authenticated,
        refusal: verdict.refusal.clone(),
        is_changed: verdict.is_changed,
        auth_method: config.as_ref().map(crate::credentials::auth_method).or(wanted),
        ca_ends: pem(authorities.map(|(cloud, _)| cloud)),
        proxy_ca_ends: pem(authorities.map(|(_, proxy)| proxy)),
        client_cert_ends: pem(tls
            .and_then(|tls| tls.client_pem.as_ref())
            .map(|client| client.certificate.as_str())),
        is_insecure: tls.is_some_and(|tls| tls.insecure) || cloud.insecure_skip_tls_verify,
        zone_map: config
            .as_ref()
            .map(|config| config.topology.zone_map.clone())
            .unwrap_or_default(),
        ignores_zones: config
            .as_ref()
            .is_some_and(|config| config.block_storage.ignore_volume_az),
        ..CloudView::default()
    }
}

#[cfg(test)]
mod tests {
    use cinder_csi_crds::CloudStatus;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::alone(&["a"], &[("a", true)], "a")]
    #[case::another_one_before_it(&["new", "a"], &[("a", true)], "a")]
    #[case::another_one_that_is_refused(&["new", "a"], &[("new", false), ("a", true)], "a")]
    #[case::called_otherwise(&["b"], &[("a", true)], "b")]
    #[case::never_told(&["a", "b"], &[], "a")]
    fn the_last_good_credentials_of_an_only_cloud_are_never_taken_for_those_of_another(
        #[case] spec: &[&str],
        #[case] told: &[(&str, bool)],
        #[case] expected: &str,
    ) {
        let spec: Vec<CloudSpec> = spec
            .iter()
            .map(|name| CloudSpec {
                name: (*name).to_owned(),
                ..CloudSpec::from_secret("s")
            })
            .collect();
        let clouds = told.iter().map(|(name, is_given)| CloudStatus {
            name: (*name).to_owned(),
            secret_hash: is_given.then(|| "hash".to_owned()),
            ..CloudStatus::default()
        });
        let status = CinderCSIDriverStatus {
            clouds: clouds.collect(),
            ..CinderCSIDriverStatus::default()
        };
        assert_eq!(unnamed(&spec, Some(&status)), Some(expected));
    }
}
