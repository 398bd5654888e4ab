// SPDX-License-Identifier: Apache-2.0
//! The clouds of a run: two that the cluster uses, and one that its credentials must not reach.

mod foreign;

use std::collections::BTreeMap;
use std::time::Duration;

use csi_sources::Sources;
use openstack_sim::{
    BackupStatus, CloudState, Fault, FaultError, GroupStatus, Identity, Latencies, ServerSpec, Sim, SimClient,
    SimConfig, SnapshotStatus, Volume, VolumeStatus, VolumeType,
};

use foreign::Foreign;

/// Name of the encrypted volume type.
pub const ENCRYPTED: &str = "encrypted";
/// Name of the multiattach volume type.
pub const SHARED: &str = "shared";
/// URL of the first cloud.
pub const HOME: &str = "http://home.invalid";
/// URL of the second cloud.
pub const WEST: &str = "http://west.invalid";
/// URL of the cloud that no request may change.
pub const ELSEWHERE: &str = "http://elsewhere.invalid";
/// Name of the second cloud in cloud.conf.
pub const WEST_NAME: &str = "west";
/// Zones of the first cloud.
pub const ZONES: [&str; 2] = ["nova", "far"];
/// Number of servers of the first cloud at the start; the second cloud has one.
const SERVERS: usize = 3;

/// One of the two clouds that the cluster uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudName {
    /// The cloud without a name in cloud.conf.
    Home,
    /// The cloud with a name.
    West,
}

/// All clouds of a run.
#[derive(Debug)]
pub struct Clouds {
    home: Sim,
    west: Sim,
    elsewhere: Sim,
    foreign: [Foreign; 2],
}

impl Clouds {
    /// Starts clouds with servers and with resources of another cluster.
    pub async fn start(
        sources: &Sources,
        latencies: Latencies,
        spread: u16,
        longest_lag: Duration,
    ) -> Result<Self, String> {
        let server = |at: usize| ServerSpec {
            zone: ZONES[at % ZONES.len()].to_owned(),
            ..ServerSpec::new(sources.uuid())
        };
        let config = |address: &str, region: &str, zones: &[&str]| SimConfig {
            public_url: Some(address.to_owned()),
            identity: Identity {
                region: region.to_owned(),
                ..Identity::default()
            },
            zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
            sources: sources.clone(),
            latencies,
            spread,
            longest_lag,
            volumes: 2,
            volume_types: vec![
                VolumeType::new("fast"),
                VolumeType::new("slow"),
                VolumeType {
                    encrypted: true,
                    ..VolumeType::new(ENCRYPTED)
                },
                VolumeType {
                    multiattach: true,
                    ..VolumeType::new(SHARED)
                },
            ],
            token_lifetime: Duration::from_mins(30),
            ..SimConfig::default()
        };
        let home = Sim::direct(SimConfig {
            servers: (0..SERVERS).map(server).collect(),
            other_regions: vec!["RegionThree".to_owned()],
            ..config(HOME, "RegionOne", &ZONES)
        })
        .await
        .map_err(|error| error.to_string())?;
        let west = Sim::direct(SimConfig {
            servers: vec![ServerSpec {
                zone: WEST_NAME.to_owned(),
                ..ServerSpec::new(sources.uuid())
            }],
            ..config(WEST, "RegionTwo", &[WEST_NAME])
        })
        .await
        .map_err(|error| error.to_string())?;
        let mut other = config(ELSEWHERE, "RegionOne", &ZONES);
        other.volumes = 0;
        other.identity.project_id = sources.uuid().simple().to_string();
        let elsewhere = Sim::direct(other).await.map_err(|error| error.to_string())?;
        let foreign = [Foreign::create(&home).await?, Foreign::create(&west).await?];
        Ok(Self {
            home,
            west,
            elsewhere,
            foreign,
        })
    }

    /// Returns a cloud.conf for both clouds.
    pub fn cloud_conf(&self) -> String {
        let west = self.west.access().cloud_conf();
        let west = west.replacen("[Global]", &format!("[Global \"{WEST_NAME}\"]"), 1);
        self.home.access().cloud_conf() + &west
    }

    /// Returns the values of `--project-id` for both clouds.
    pub fn projects(&self) -> Vec<(String, String)> {
        let id = |sim: &Sim| sim.access().project_id.clone();
        vec![(String::new(), id(&self.home)), (WEST_NAME.to_owned(), id(&self.west))]
    }

    /// Returns clients of all clouds, by URL.
    pub fn clients(&self) -> [(&'static str, SimClient); 3] {
        [
            (HOME, self.home.client()),
            (WEST, self.west.client()),
            (ELSEWHERE, self.elsewhere.client()),
        ]
    }

    /// Returns the resources of both clouds, without foreign ones.
    pub fn state(&self) -> CloudState {
        self.merge(self.home.state(), self.west.state())
    }

    fn merge(&self, mut home: CloudState, mut west: CloudState) -> CloudState {
        self.foreign[0].remove_from(&mut home);
        self.foreign[1].remove_from(&mut west);
        home.volumes.append(&mut west.volumes);
        home.snapshots.append(&mut west.snapshots);
        home.backups.append(&mut west.backups);
        home.groups.append(&mut west.groups);
        home.group_snapshots.append(&mut west.group_snapshots);
        home.attachments.append(&mut west.attachments);
        home.mappings.append(&mut west.mappings);
        home.servers.append(&mut west.servers);
        home
    }

    /// Calls `each` at each change of a cloud, with the state of both.
    pub async fn follow(&self, each: impl Fn(&CloudState)) {
        let never = Duration::from_hours(24 * 365);
        let home = self.home.wait_until(never, |home| {
            each(&self.merge(home.clone(), self.west.state()));
            false
        });
        let west = self.west.wait_until(never, |west| {
            each(&self.merge(self.home.state(), west.clone()));
            false
        });
        tokio::join!(home, west);
    }

    /// Returns the first forbidden change: of a foreign resource, or in the other project.
    pub fn trespass(&self) -> Option<String> {
        for (sim, foreign) in self.used().into_iter().zip(&self.foreign) {
            if let Some(id) = foreign.changed(&sim.state()) {
                return Some(format!("{id} of another cluster was changed or deleted"));
            }
        }
        let state = self.elsewhere.state();
        let volume = state.volumes.first().map(|one| &one.id);
        let snapshot = state.snapshots.first().map(|one| &one.id);
        let other = volume.or(snapshot).or(state.backups.first().map(|one| &one.id));
        other.map(|id| format!("{id} was created in another project"))
    }

    /// Returns the names that the other cluster uses.
    pub fn foreign_names(&self) -> Vec<&str> {
        self.foreign.iter().flat_map(Foreign::names).collect()
    }

    /// Returns the cloud of a server, a volume or a snapshot.
    pub fn cloud_of(&self, id: &str) -> CloudName {
        let state = self.west.state();
        let is_server = state.servers.iter().any(|server| server.spec.id == id);
        let is_west =
            is_server || state.volume(id).is_some() || state.snapshot(id).is_some() || state.backup(id).is_some();
        if is_west { CloudName::West } else { CloudName::Home }
    }

    fn used(&self) -> [&Sim; 2] {
        [&self.home, &self.west]
    }

    /// Applies `change` to the first cloud for which it succeeds.
    fn change(&self, change: impl FnMut(&&Sim) -> bool) -> bool {
        self.used().iter().any(change)
    }

    /// Returns secrets with an application credential for a cloud.
    pub fn secrets(&self, name: CloudName) -> BTreeMap<String, String> {
        let access = match name {
            CloudName::Home => self.home.access(),
            CloudName::West => self.west.access(),
        };
        let pairs = [
            ("auth-url", &access.auth_url),
            ("application-credential-id", &access.application_credential_id),
            ("application-credential-secret", &access.application_credential_secret),
            ("region", &access.region),
        ];
        pairs.map(|(key, value)| (key.to_owned(), value.clone())).into()
    }

    /// See [`Sim::add_server`]; adds it to the cloud of another server or volume.
    pub fn add_server(&self, spec: ServerSpec, neighbour: &str) {
        match self.cloud_of(neighbour) {
            CloudName::Home => self.home.add_server(spec),
            CloudName::West => self.west.add_server(ServerSpec {
                zone: WEST_NAME.to_owned(),
                ..spec
            }),
        }
    }

    /// See [`Sim::remove_server`].
    pub fn remove_server(&self, id: &str, leave_attachments: bool) {
        for sim in self.used() {
            sim.remove_server(id, leave_attachments);
        }
    }

    /// See [`Sim::set_server_state`].
    pub fn set_server_state(&self, id: &str, vm_state: &str, task_state: Option<&str>) -> bool {
        self.change(|sim| sim.set_server_state(id, vm_state, task_state))
    }

    /// See [`Sim::set_server_down`].
    pub fn set_server_down(&self, id: &str, down: bool) -> bool {
        self.change(|sim| sim.set_server_down(id, down))
    }

    /// See [`Sim::detach`].
    pub fn detach(&self, server: &str, volume: &str) -> bool {
        self.change(|sim| sim.detach(server, volume))
    }

    /// See [`Sim::reserve`].
    pub fn reserve(&self, volume: &str, server: &str) -> Option<String> {
        self.used().iter().find_map(|sim| sim.reserve(volume, server))
    }

    /// See [`Sim::build_with`].
    pub fn build_with(&self, attachment: &str) -> bool {
        self.change(|sim| sim.build_with(attachment))
    }

    /// See [`Sim::set_volume`].
    pub fn set_volume(&self, id: &str, change: impl Fn(&mut Volume)) -> bool {
        self.change(|sim| sim.set_volume(id, &change))
    }

    /// See [`Sim::set_volume_status`].
    pub fn set_volume_status(&self, id: &str, status: VolumeStatus) -> bool {
        self.change(|sim| sim.set_volume_status(id, status))
    }

    /// See [`Sim::set_snapshot_status`].
    pub fn set_snapshot_status(&self, id: &str, status: SnapshotStatus) -> bool {
        self.change(|sim| sim.set_snapshot_status(id, status))
    }

    /// See [`Sim::set_backup_status`].
    pub fn set_backup_status(&self, id: &str, status: BackupStatus) -> bool {
        self.change(|sim| sim.set_backup_status(id, status))
    }

    /// See [`Sim::set_group_status`].
    pub fn set_group_status(&self, id: &str, status: GroupStatus) -> bool {
        self.change(|sim| sim.set_group_status(id, status))
    }

    /// See [`Sim::set_group_snapshot_status`].
    pub fn set_group_snapshot_status(&self, id: &str, status: GroupStatus) -> bool {
        self.change(|sim| sim.set_group_snapshot_status(id, status))
    }

    /// See [`Sim::fault`]; in the first cloud.
    pub fn fault(&self, fault: Fault) -> Result<(), FaultError> {
        self.home.fault(fault)
    }

    /// See [`Sim::clear_faults`].
    pub fn clear_faults(&self) {
        self.home.clear_faults();
    }

    /// See [`Sim::set_latencies`].
    pub fn set_latencies(&self, latencies: Latencies) {
        for sim in self.used() {
            sim.set_latencies(latencies);
        }
    }

    /// See [`Sim::revoke_tokens`].
    pub fn revoke_tokens(&self) {
        for sim in [&self.home, &self.west, &self.elsewhere] {
            sim.revoke_tokens();
        }
    }

    /// See [`Sim::clear_log`].
    pub fn clear_log(&self) {
        for sim in [&self.home, &self.west, &self.elsewhere] {
            sim.clear_log();
        }
    }

    /// See [`Sim::settled`].
    pub async fn settled(&self, limit: Duration) -> bool {
        self.home.settled(limit).await && self.west.settled(limit).await
    }
}
