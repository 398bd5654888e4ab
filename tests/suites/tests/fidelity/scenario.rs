// SPDX-License-Identifier: Apache-2.0
//! The requests, in order.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use harness::wait_for_some;
use reqwest::Method;
use serde_json::{Value, json};
use suites::openstack::{Answer, Api, Service};
use suites::shape::{self, Shape};

const STATE_TIMEOUT: Duration = Duration::from_secs(90);
const VOLUME: &str = "3.60";
const COMPUTE: &str = "2.89";
/// An unused UUID.
const NOBODY: &str = "00000000-1111-4222-8333-444444444444";
/// Objects with user-defined keys.
const OPEN: [&str; 9] = [
    "volume.metadata",
    "volumes[].metadata",
    "snapshot.metadata",
    "snapshots[].metadata",
    "backup.metadata",
    "backups[].metadata",
    "volume_types[].extra_specs",
    "quota_set",
    "limits.absolute",
];

/// Result of a request.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(crate) status: u16,
    /// Error message, for readers.
    pub(crate) message: String,
    pub(crate) shape: Shape,
    /// Subsequent states of the resource.
    pub(crate) states: Vec<String>,
}

/// A cloud during the scenario.
struct Player<'a> {
    api: &'a Api,
    notes: BTreeMap<&'static str, Observation>,
}

/// Runs all requests on one cloud, and deletes all resources.
pub(crate) async fn play(api: &Api, server: &str) -> Result<BTreeMap<&'static str, Observation>> {
    let mut player = Player {
        api,
        notes: BTreeMap::new(),
    };
    player.refusals(server).await?;
    let volume = player.volume().await?;
    player.snapshot(&volume).await?;
    player.clone_of(&volume).await?;
    player.attachment(&volume, server).await?;
    player.changes(&volume).await?;
    player.backup(&volume).await?;
    player.group(&volume).await?;
    player.lists().await?;
    player.end(&volume).await?;
    Ok(player.notes)
}

impl Player<'_> {
    async fn call(
        &mut self,
        step: &'static str,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let version = match service {
            Service::Volume => VOLUME,
            Service::Compute => COMPUTE,
        };
        let answer = self
            .api
            .call(method, service, path, version, body)
            .await
            .context(step)?;
        let message = answer
            .body
            .as_object()
            .and_then(|body| body.values().next()?.get("message")?.as_str())
            .unwrap_or_default();
        let note = Observation {
            status: answer.status,
            message: message.to_owned(),
            shape: shape::describe(&answer.body, &OPEN),
            states: Vec::new(),
        };
        ensure!(self.notes.insert(step, note).is_none(), "two steps are called {step}");
        Ok(answer)
    }

    async fn get(&mut self, step: &'static str, service: Service, path: &str) -> Result<Answer> {
        self.call(step, Method::GET, service, path, None).await
    }

    /// Sends a POST request to Cinder.
    async fn post(&mut self, step: &'static str, path: &str, body: Value) -> Result<Answer> {
        self.call(step, Method::POST, Service::Volume, path, Some(&body)).await
    }

    async fn delete(&mut self, step: &'static str, service: Service, path: &str) -> Result<Answer> {
        self.call(step, Method::DELETE, service, path, None).await
    }

    /// Polls a resource of Cinder until its state is `last`, or until it is deleted if that is `gone`.
    async fn follow(&mut self, step: &'static str, kind: &str, id: &str, last: &str) -> Result<()> {
        let mut seen: Vec<String> = Vec::new();
        let api = self.api;
        wait_for_some(&format!("{step}: {kind} to be {last}"), STATE_TIMEOUT, async || {
            let answer = api
                .call(Method::GET, Service::Volume, &format!("/{kind}s/{id}"), VOLUME, None)
                .await?;
            let status = if answer.status == 404 {
                "gone".to_owned()
            } else {
                answer.accepted()?[kind]["status"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            if seen.last() != Some(&status) {
                seen.push(status.clone());
            }
            if status.starts_with("error") && last != status {
                bail!("{step}: the states are {seen:?}");
            }
            Ok((status == last).then_some(()))
        })
        .await?;
        self.notes.get_mut(step).context("a step that was not played")?.states = seen;
        Ok(())
    }

    async fn refusals(&mut self, server: &str) -> Result<()> {
        let volume = |fields: Value| json!({ "volume": fields });
        self.get("show no volume", Service::Volume, &format!("/volumes/{NOBODY}"))
            .await?;
        self.get("show a malformed volume", Service::Volume, "/volumes/nothing")
            .await?;
        self.delete("delete no volume", Service::Volume, &format!("/volumes/{NOBODY}"))
            .await?;
        self.get("show no snapshot", Service::Volume, &format!("/snapshots/{NOBODY}"))
            .await?;
        self.get("show no backup", Service::Volume, &format!("/backups/{NOBODY}"))
            .await?;
        self.get("filter by nothing known", Service::Volume, "/volumes/detail?nothing=1")
            .await?;
        self.get(
            "a marker of nobody",
            Service::Volume,
            &format!("/volumes/detail?limit=1&marker={NOBODY}"),
        )
        .await?;
        self.get("a negative limit", Service::Volume, "/volumes/detail?limit=-1")
            .await?;
        self.post("create of no size", "/volumes", volume(json!({ "name": "x" })))
            .await?;
        self.post(
            "create of size 0",
            "/volumes",
            volume(json!({ "name": "x", "size": 0 })),
        )
        .await?;
        self.post(
            "create of no known type",
            "/volumes",
            volume(json!({ "name": "x", "size": 1, "volume_type": "nobody's" })),
        )
        .await?;
        let nowhere = json!({ "name": "x", "size": 1, "availability_zone": "nowhere" });
        self.post("create in no known zone", "/volumes", volume(nowhere))
            .await?;
        self.post(
            "create from no snapshot",
            "/volumes",
            volume(json!({ "name": "x", "size": 1, "snapshot_id": NOBODY })),
        )
        .await?;
        self.post(
            "create from no volume",
            "/volumes",
            volume(json!({ "name": "x", "size": 1, "source_volid": NOBODY })),
        )
        .await?;
        self.post(
            "create with an unknown field",
            "/volumes",
            volume(json!({ "name": "x", "size": 1, "colour": "red" })),
        )
        .await?;
        let hinted = |ids: Value| json!({ "volume": { "name": "x", "size": 1 }, "OS-SCH-HNT:scheduler_hints": { "same_host": ids } });
        self.post("create with a hint by name", "/volumes", hinted(json!(["nobody's"])))
            .await?;
        self.post("create with a hint twice", "/volumes", hinted(json!([NOBODY, NOBODY])))
            .await?;
        self.post(
            "snapshot of no volume",
            "/snapshots",
            json!({ "snapshot": { "volume_id": NOBODY, "name": "x" } }),
        )
        .await?;
        self.post(
            "backup of no volume",
            "/backups",
            json!({ "backup": { "volume_id": NOBODY, "name": "x" } }),
        )
        .await?;
        self.get("show no server", Service::Compute, &format!("/servers/{NOBODY}"))
            .await?;
        let mapping = json!({ "volumeAttachment": { "volumeId": NOBODY } });
        let path = format!("/servers/{server}/os-volume_attachments");
        self.call(
            "attach no volume",
            Method::POST,
            Service::Compute,
            &path,
            Some(&mapping),
        )
        .await?;
        let path = format!("/servers/{NOBODY}/os-volume_attachments");
        self.call(
            "attach to no server",
            Method::POST,
            Service::Compute,
            &path,
            Some(&mapping),
        )
        .await?;
        let path = format!("/servers/{server}/os-volume_attachments/{NOBODY}");
        self.delete("detach no volume", Service::Compute, &path).await?;
        self.get("show no attachment", Service::Compute, &path).await?;
        Ok(())
    }

    async fn volume(&mut self) -> Result<String> {
        let body = json!({ "volume": {
            "name": "fidelity", "size": 1, "volume_type": "fast", "description": "of a test", "metadata": { "a": "b" },
        }});
        let made = self.post("create", "/volumes", body).await?.accepted()?;
        let id = id_of(&made, "volume")?;
        self.follow("create", "volume", &id, "available").await?;
        let path = format!("/volumes/{id}");
        let api = self.api;
        // Cinder records the service of a volume shortly after it becomes available.
        wait_for_some("the volume to name its service", STATE_TIMEOUT, async || {
            let shown = api.call(Method::GET, Service::Volume, &path, VOLUME, None).await?;
            Ok((!shown.accepted()?["volume"]["service_uuid"].is_null()).then_some(()))
        })
        .await?;
        self.get("show", Service::Volume, &path).await?;
        self.get("list by name", Service::Volume, "/volumes/detail?name=fidelity")
            .await?;
        self.get("list by status", Service::Volume, "/volumes/detail?status=available")
            .await?;
        self.get("a page", Service::Volume, "/volumes/detail?limit=1").await?;
        Ok(id)
    }

    async fn snapshot(&mut self, volume: &str) -> Result<()> {
        let body = json!({ "snapshot": { "volume_id": volume, "name": "fidelity", "metadata": { "a": "b" } } });
        let made = self.post("snapshot", "/snapshots", body).await?.accepted()?;
        let id = id_of(&made, "snapshot")?;
        self.follow("snapshot", "snapshot", &id, "available").await?;
        self.get("show snapshot", Service::Volume, &format!("/snapshots/{id}"))
            .await?;
        self.get(
            "list snapshots",
            Service::Volume,
            &format!("/snapshots/detail?volume_id={volume}"),
        )
        .await?;
        // The value is a Python dictionary that matches no snapshot.
        for (step, value) in [
            ("list snapshots by metadata", "b"),
            ("list snapshots by metadata that none has", "c"),
        ] {
            let filter = format!("%7B%27a%27%3A%20%27{value}%27%7D");
            self.get(step, Service::Volume, &format!("/snapshots/detail?metadata={filter}"))
                .await?;
        }
        self.delete(
            "delete a volume with a snapshot",
            Service::Volume,
            &format!("/volumes/{volume}"),
        )
        .await?;
        let body = json!({ "volume": { "name": "from-snapshot", "size": 2, "snapshot_id": id } });
        let made = self
            .post("create from a snapshot", "/volumes", body)
            .await?
            .accepted()?;
        let restored = id_of(&made, "volume")?;
        self.follow("create from a snapshot", "volume", &restored, "available")
            .await?;
        self.get(
            "show what was made from a snapshot",
            Service::Volume,
            &format!("/volumes/{restored}"),
        )
        .await?;
        self.delete(
            "delete what was made from a snapshot",
            Service::Volume,
            &format!("/volumes/{restored}"),
        )
        .await?;
        self.follow("delete what was made from a snapshot", "volume", &restored, "gone")
            .await?;
        self.delete("delete snapshot", Service::Volume, &format!("/snapshots/{id}"))
            .await?;
        self.follow("delete snapshot", "snapshot", &id, "gone").await
    }

    async fn clone_of(&mut self, volume: &str) -> Result<()> {
        let body = json!({ "volume": { "name": "clone", "size": 1, "source_volid": volume } });
        let made = self.post("clone", "/volumes", body).await?.accepted()?;
        let id = id_of(&made, "volume")?;
        self.follow("clone", "volume", &id, "available").await?;
        self.get("show clone", Service::Volume, &format!("/volumes/{id}"))
            .await?;
        self.delete("delete clone", Service::Volume, &format!("/volumes/{id}"))
            .await?;
        self.follow("delete clone", "volume", &id, "gone").await
    }

    async fn attachment(&mut self, volume: &str, server: &str) -> Result<()> {
        let mappings = format!("/servers/{server}/os-volume_attachments");
        let mapping = format!("{mappings}/{volume}");
        let body = json!({ "volumeAttachment": { "volumeId": volume } });
        self.call("attach", Method::POST, Service::Compute, &mappings, Some(&body))
            .await?
            .accepted()?;
        self.follow("attach", "volume", volume, "in-use").await?;
        self.get("show attached", Service::Volume, &format!("/volumes/{volume}"))
            .await?;
        self.get("show mapping", Service::Compute, &mapping).await?;
        self.get("list mappings", Service::Compute, &mappings).await?;
        self.get("show server", Service::Compute, &format!("/servers/{server}"))
            .await?;
        self.get(
            "list attachments",
            Service::Volume,
            &format!("/attachments?volume_id={volume}"),
        )
        .await?;
        self.call("attach twice", Method::POST, Service::Compute, &mappings, Some(&body))
            .await?;
        self.delete("delete attached", Service::Volume, &format!("/volumes/{volume}"))
            .await?;
        let snapshot = json!({ "snapshot": { "volume_id": volume, "name": "x" } });
        self.post("snapshot attached without force", "/snapshots", snapshot)
            .await?;
        let clean = self
            .api
            .call(Method::GET, Service::Volume, "/snapshots/detail?name=x", VOLUME, None)
            .await?;
        if let Some(id) = clean.body["snapshots"][0]["id"].as_str().map(str::to_owned) {
            self.follow("snapshot attached without force", "snapshot", &id, "available")
                .await?;
            self.delete(
                "delete snapshot of attached",
                Service::Volume,
                &format!("/snapshots/{id}"),
            )
            .await?;
            self.follow("delete snapshot of attached", "snapshot", &id, "gone")
                .await?;
        }
        let action = format!("/volumes/{volume}/action");
        self.post("extend attached", &action, json!({ "os-extend": { "new_size": 2 } }))
            .await?;
        self.follow("extend attached", "volume", volume, "in-use").await?;
        self.delete("detach", Service::Compute, &mapping).await?.accepted()?;
        self.follow("detach", "volume", volume, "available").await?;
        let api = self.api;
        wait_for_some("Nova to forget the mapping", STATE_TIMEOUT, async || {
            let answer = api.call(Method::GET, Service::Compute, &mapping, COMPUTE, None).await?;
            Ok((answer.status == 404).then_some(()))
        })
        .await?;
        self.delete("detach twice", Service::Compute, &mapping).await?;
        Ok(())
    }

    async fn changes(&mut self, volume: &str) -> Result<()> {
        let action = format!("/volumes/{volume}/action");
        self.post("extend", &action, json!({ "os-extend": { "new_size": 3 } }))
            .await?;
        self.follow("extend", "volume", volume, "available").await?;
        self.post("extend to the same", &action, json!({ "os-extend": { "new_size": 3 } }))
            .await?;
        self.post("extend to less", &action, json!({ "os-extend": { "new_size": 1 } }))
            .await?;
        let retype = |name: &str| json!({ "os-retype": { "new_type": name, "migration_policy": "never" } });
        self.post("retype", &action, retype("slow")).await?;
        self.follow("retype", "volume", volume, "available").await?;
        self.post("retype to the same", &action, retype("slow")).await?;
        self.post("retype to nothing known", &action, retype("nobody's"))
            .await?;
        self.post("an unknown action", &action, json!({ "os-nothing": {} }))
            .await?;
        self.post(
            "set metadata",
            &format!("/volumes/{volume}/metadata"),
            json!({ "metadata": { "c": "d" } }),
        )
        .await?;
        self.delete(
            "delete a key of metadata",
            Service::Volume,
            &format!("/volumes/{volume}/metadata/c"),
        )
        .await?;
        self.delete(
            "delete no key of metadata",
            Service::Volume,
            &format!("/volumes/{volume}/metadata/c"),
        )
        .await?;
        // A key with a slash cannot be part of a path in any encoding.
        self.post(
            "set metadata with dots and slashes",
            &format!("/volumes/{volume}/metadata"),
            json!({ "metadata": { "a.b-c.1": "d", "a/b": "d" } }),
        )
        .await?;
        for (step, key) in [
            ("delete a key with dots", "a.b-c.1"),
            ("delete a key with a slash", "a%2Fb"),
        ] {
            self.delete(step, Service::Volume, &format!("/volumes/{volume}/metadata/{key}"))
                .await?;
        }
        Ok(())
    }

    async fn backup(&mut self, volume: &str) -> Result<()> {
        let body = json!({ "backup": { "volume_id": volume, "name": "fidelity" } });
        let made = self.post("backup", "/backups", body).await?.accepted()?;
        let id = id_of(&made, "backup")?;
        self.follow("backup", "backup", &id, "available").await?;
        self.get("show backup", Service::Volume, &format!("/backups/{id}"))
            .await?;
        self.get(
            "list backups",
            Service::Volume,
            &format!("/backups/detail?volume_id={volume}"),
        )
        .await?;
        self.delete("delete backup", Service::Volume, &format!("/backups/{id}"))
            .await?;
        self.follow("delete backup", "backup", &id, "gone").await
    }

    async fn group(&mut self, volume: &str) -> Result<()> {
        let types = self
            .get("group types", Service::Volume, "/group_types")
            .await?
            .accepted()?;
        let types = types["group_types"].as_array().context("no list of group types")?;
        let group_type = types.iter().find(|known| known["name"] == "consistent");
        let group_type = group_type.context("no group type `consistent`")?["id"].clone();
        let volume_type = "slow";
        let body = json!({ "group": { "name": "fidelity", "group_type": group_type, "volume_types": [volume_type] } });
        let made = self.post("group", "/groups", body).await?.accepted()?;
        let id = id_of(&made, "group")?;
        self.follow("group", "group", &id, "available").await?;
        let path = format!("/groups/{id}");
        let add = json!({ "group": { "add_volumes": volume } });
        self.call("add to group", Method::PUT, Service::Volume, &path, Some(&add))
            .await?
            .accepted()?;
        self.follow("add to group", "group", &id, "available").await?;
        self.get("show group", Service::Volume, &path).await?;
        self.get(
            "show a volume of a group",
            Service::Volume,
            &format!("/volumes/{volume}"),
        )
        .await?;
        self.delete(
            "delete a volume of a group",
            Service::Volume,
            &format!("/volumes/{volume}"),
        )
        .await?;
        let body = json!({ "group_snapshot": { "group_id": id, "name": "fidelity" } });
        let made = self
            .post("group snapshot", "/group_snapshots", body)
            .await?
            .accepted()?;
        let snapshot = id_of(&made, "group_snapshot")?;
        self.follow("group snapshot", "group_snapshot", &snapshot, "available")
            .await?;
        self.get(
            "show group snapshot",
            Service::Volume,
            &format!("/group_snapshots/{snapshot}"),
        )
        .await?;
        let members = self
            .get("list members", Service::Volume, "/snapshots/detail")
            .await?
            .accepted()?;
        let member = members["snapshots"][0]["id"].as_str().context("no member")?.to_owned();
        self.delete("delete a member", Service::Volume, &format!("/snapshots/{member}"))
            .await?;
        let delete = json!({ "delete": { "delete-volumes": false } });
        self.post(
            "delete a group with snapshots",
            &format!("{path}/action"),
            delete.clone(),
        )
        .await?;
        self.delete(
            "delete group snapshot",
            Service::Volume,
            &format!("/group_snapshots/{snapshot}"),
        )
        .await?;
        self.follow("delete group snapshot", "group_snapshot", &snapshot, "gone")
            .await?;
        self.post("delete a group with volumes", &format!("{path}/action"), delete.clone())
            .await?;
        let remove = json!({ "group": { "remove_volumes": volume } });
        self.call("remove from group", Method::PUT, Service::Volume, &path, Some(&remove))
            .await?
            .accepted()?;
        self.follow("remove from group", "group", &id, "available").await?;
        self.post("delete group", &format!("{path}/action"), delete).await?;
        self.follow("delete group", "group", &id, "gone").await
    }

    async fn lists(&mut self) -> Result<()> {
        self.get("types", Service::Volume, "/types").await?;
        self.get("limits", Service::Volume, "/limits").await?;
        self.get("zones", Service::Volume, "/os-availability-zone").await?;
        self.get("groups", Service::Volume, "/groups/detail").await?;
        self.get("group snapshots", Service::Volume, "/group_snapshots/detail")
            .await?;
        self.get("messages", Service::Volume, "/messages").await?;
        self.get("pools, as a member", Service::Volume, "/scheduler-stats/get_pools")
            .await?;
        self.get("services, as a member", Service::Volume, "/os-services")
            .await?;
        Ok(())
    }

    async fn end(&mut self, volume: &str) -> Result<()> {
        self.delete("delete", Service::Volume, &format!("/volumes/{volume}"))
            .await?;
        self.delete(
            "delete while it is deleted",
            Service::Volume,
            &format!("/volumes/{volume}"),
        )
        .await?;
        self.follow("delete", "volume", volume, "gone").await
    }
}

fn id_of(body: &Value, kind: &str) -> Result<String> {
    let id = body[kind]["id"].as_str();
    Ok(id.with_context(|| format!("{body} has no id"))?.to_owned())
}
