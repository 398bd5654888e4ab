// SPDX-License-Identifier: Apache-2.0
//! Resources of another cluster in the same project, which no driver of this cluster may change or use.

use bytes::Bytes;
use cinder_cloud::metadata_keys;
use http::{Method, Request};
use openstack_sim::{CloudState, Sim, SimClient};
use serde_json::{Value, json};

/// Name of the other cluster.
const CLUSTER: &str = "other";

/// Records of the other cluster at the start.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    records: CloudState,
}

impl Foreign {
    /// Marks all volumes of a new cloud as volumes of another cluster, and takes a snapshot and a backup of one. This
    /// cluster may use the same names, as after the restoration of a cluster from a backup.
    pub(super) async fn create(sim: &Sim) -> Result<Self, String> {
        for volume in sim.state().volumes {
            let name = format!("pvc-{}", sim.sources().uuid());
            sim.set_volume(&volume.id, |volume| {
                volume.name = Some(name);
                let cluster = (metadata_keys::CLUSTER.to_owned(), CLUSTER.to_owned());
                volume.metadata = [cluster].into();
            });
        }
        let volumes = sim.state().volumes;
        let client = Client::login(sim).await?;
        if let Some(volume) = volumes.first() {
            for kind in ["snapshot", "backup"] {
                let resource = json!({kind: {
                    "volume_id": volume.id,
                    "name": format!("{kind}-{}", sim.sources().uuid()),
                    "metadata": {metadata_keys::CLUSTER: CLUSTER},
                }});
                client.post(&format!("{kind}s"), &resource).await?;
                sim.settled(std::time::Duration::from_mins(10)).await;
            }
        }
        Ok(Self { records: sim.state() })
    }

    /// Removes these records from a state.
    pub(super) fn remove_from(&self, state: &mut CloudState) {
        state.volumes.retain(|one| self.records.volume(&one.id).is_none());
        state.snapshots.retain(|one| self.records.snapshot(&one.id).is_none());
        state.backups.retain(|one| self.records.backup(&one.id).is_none());
    }

    /// Returns the id of a record that is missing or changed in a state.
    pub(super) fn changed(&self, state: &CloudState) -> Option<&str> {
        let records = &self.records;
        let volume = records.volumes.iter().find(|one| state.volume(&one.id) != Some(one));
        let snapshot = (records.snapshots.iter()).find(|one| state.snapshot(&one.id) != Some(one));
        let backup = records.backups.iter().find(|one| state.backup(&one.id) != Some(one));
        let volume = volume.map(|one| one.id.as_str());
        let snapshot = snapshot.map(|one| one.id.as_str());
        volume.or(snapshot).or(backup.map(|one| one.id.as_str()))
    }

    /// Returns the names of the volumes, the snapshots and the backups.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let volumes = self.records.volumes.iter().map(|one| &one.name);
        let snapshots = self.records.snapshots.iter().map(|one| &one.name);
        let backups = self.records.backups.iter().map(|one| &one.name);
        volumes.chain(snapshots).chain(backups).filter_map(Option::as_deref)
    }
}

/// A user of Cinder other than the driver.
struct Client {
    api: SimClient,
    token: String,
    project: String,
}

impl Client {
    async fn login(sim: &Sim) -> Result<Self, String> {
        let access = sim.access();
        let domain = json!({"name": access.domain_name});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": access.username, "domain": domain, "password": access.password,
            }}},
            "scope": {"project": {"name": access.project_name, "domain": domain}},
        }});
        let mut client = Self {
            api: sim.client(),
            token: String::new(),
            project: access.project_id.clone(),
        };
        let answer = client.send("/identity/v3/auth/tokens", &body).await?;
        let token = answer.headers().get("x-subject-token");
        let token = token.and_then(|token| token.to_str().ok());
        token
            .ok_or("the answer to a login has no token")?
            .clone_into(&mut client.token);
        Ok(client)
    }

    async fn post(&self, collection: &str, resource: &Value) -> Result<(), String> {
        let path = format!("/volume/v3/{}/{collection}", self.project);
        self.send(&path, resource).await.map(drop)
    }

    async fn send(&self, path: &str, body: &Value) -> Result<http::Response<Bytes>, String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("content-type", "application/json")
            .header("x-auth-token", &self.token)
            // The first version with backup metadata.
            .header("openstack-api-version", "volume 3.43")
            .body(Bytes::from(body.to_string()))
            .map_err(|error| error.to_string())?;
        let answer = self.api.send(request).await.map_err(|error| error.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("POST {path}: {}: {:?}", answer.status(), answer.body()));
        }
        Ok(answer)
    }
}
