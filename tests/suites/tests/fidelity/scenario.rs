// SPDX-License-Identifier: Apache-2.0
//! The requests, in order.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::wait_for_some;
use reqwest::Method;
use serde_json::{Value, json};
use suites::openstack::{Answer, Api, Service};
use suites::shape::{self, Shape};

const STATE_TIMEOUT: Duration = Duration::from_secs(90);
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
        let answer = self.api.call(method, service, path, body).await.context(step)?;
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

    /// Sends a GET request to Cinder.
    async fn get(&mut self, step: &'static str, path: &str) -> Result<Answer> {
        self.call(step, Method::GET, Service::Volume, path, None).await
    }

    /// Sends a GET request to Nova.
    async fn get_compute(&mut self, step: &'static str, path: &str) -> Result<Answer> {
        self.call(step, Method::GET, Service::Compute, path, None).await
    }

    /// Sends a POST request to Cinder.
    async fn post(&mut self, step: &'static str, path: &str, body: Value) -> Result<Answer> {
        self.call(step, Method::POST, Service::Volume, path, Some(&body)).await
    }

    /// Sends a POST request to Nova.
    async fn post_compute(&mut self, step: &'static str, path: &str, body: &Value) -> Result<Answer> {
        self.call(step, Method::POST, Service::Compute, path, Some(body)).await
    }

    /// Sends a DELETE request to Cinder.
    async fn delete(&mut self, step: &'static str, path: &str) -> Result<Answer> {
        self.call(step, Method::DELETE, Service::Volume, path, None).await
    }

    /// Sends a DELETE request to Nova.
    async fn delete_compute(&mut self, step: &'static str, path: &str) -> Result<Answer> {
        self.call(step, Method::DELETE, Service::Compute, path, None).await
    }

    /// Creates a resource of Cinder, polls it until it is available, and returns its id.
    async fn create(&mut self, step: &'static str, kind: &str, fields: Value) -> Result<String> {
        let answer = self.post(step, &format!("/{kind}s"), json!({ kind: fields })).await?;
        let body = answer.accepted().context(step)?;
        let id = body[kind]["id"].as_str();
        let id = id.with_context(|| format!("{step}: {body} has no id"))?;
        self.follow(step, kind, id, "available").await?;
        Ok(id.to_owned())
    }

    /// Deletes a resource of Cinder, and polls it until it does not exist.
    async fn remove(&mut self, step: &'static str, kind: &str, id: &str) -> Result<()> {
        self.delete(step, &format!("/{kind}s/{id}")).await?;
        self.follow(step, kind, id, "gone").await
    }

    /// Polls a resource of Cinder until its state is `last`, or until it is deleted if that is `gone`.
    async fn follow(&mut self, step: &'static str, kind: &str, id: &str, last: &str) -> Result<()> {
        let mut seen: Vec<String> = Vec::new();
        let (api, path) = (self.api, format!("/{kind}s/{id}"));
        wait_for_some(&format!("{step}: {kind} to be {last}"), STATE_TIMEOUT, async || {
            let answer = api.call(Method::GET, Service::Volume, &path, None).await?;
            let status = if answer.status == 404 {
                "gone".to_owned()
            } else {
                let body = answer.accepted()?;
                body[kind]["status"].as_str().unwrap_or_default().to_owned()
            };
            if seen.last() != Some(&status) {
                seen.push(status.clone());
            }
            ensure!(!status.starts_with("error") || last == status, "it is {status}");
            Ok((status == last).then_some(()))
        })
        .await
        .with_context(|| format!("the states are {seen:?}"))?;
        self.notes.get_mut(step).context("a step that was not played")?.states = seen;
        Ok(())
    }

    async fn refusals(&mut self, server: &str) -> Result<()> {
        for (step, path) in [
            ("show no volume", format!("/volumes/{NOBODY}")),
            ("show a malformed volume", "/volumes/nothing".to_owned()),
            ("show no snapshot", format!("/snapshots/{NOBODY}")),
            ("show no backup", format!("/backups/{NOBODY}")),
            ("filter by nothing known", "/volumes/detail?nothing=1".to_owned()),
            ("a marker of nobody", format!("/volumes/detail?limit=1&marker={NOBODY}")),
            ("a negative limit", "/volumes/detail?limit=-1".to_owned()),
        ] {
            self.get(step, &path).await?;
        }
        self.delete("delete no volume", &format!("/volumes/{NOBODY}")).await?;
        for (step, fields) in [
            ("create of no size", json!({ "name": "x" })),
            ("create of size 0", json!({ "name": "x", "size": 0 })),
            (
                "create of no known type",
                json!({ "name": "x", "size": 1, "volume_type": "nobody's" }),
            ),
            (
                "create in no known zone",
                json!({ "name": "x", "size": 1, "availability_zone": "nowhere" }),
            ),
            (
                "create from no snapshot",
                json!({ "name": "x", "size": 1, "snapshot_id": NOBODY }),
            ),
            (
                "create from no volume",
                json!({ "name": "x", "size": 1, "source_volid": NOBODY }),
            ),
            (
                "create with an unknown field",
                json!({ "name": "x", "size": 1, "colour": "red" }),
            ),
        ] {
            self.post(step, "/volumes", json!({ "volume": fields })).await?;
        }
        for (step, hosts) in [
            ("create with a hint by name", json!(["nobody's"])),
            ("create with a hint twice", json!([NOBODY, NOBODY])),
        ] {
            let hints = json!({ "same_host": hosts });
            let body = json!({ "volume": { "name": "x", "size": 1 }, "OS-SCH-HNT:scheduler_hints": hints });
            self.post(step, "/volumes", body).await?;
        }
        let missing = json!({ "volume_id": NOBODY, "name": "x" });
        let snapshot = json!({ "snapshot": missing });
        self.post("snapshot of no volume", "/snapshots", snapshot).await?;
        let backup = json!({ "backup": missing });
        self.post("backup of no volume", "/backups", backup).await?;
        self.get_compute("show no server", &format!("/servers/{NOBODY}"))
            .await?;
        let mapping = json!({ "volumeAttachment": { "volumeId": NOBODY } });
        for (step, server) in [("attach no volume", server), ("attach to no server", NOBODY)] {
            let path = format!("/servers/{server}/os-volume_attachments");
            self.post_compute(step, &path, &mapping).await?;
        }
        let path = format!("/servers/{server}/os-volume_attachments/{NOBODY}");
        self.delete_compute("detach no volume", &path).await?;
        self.get_compute("show no attachment", &path).await?;
        Ok(())
    }

    async fn volume(&mut self) -> Result<String> {
        let fields = json!({
            "name": "fidelity", "size": 1, "volume_type": "fast", "description": "of a test", "metadata": { "a": "b" },
        });
        let id = self.create("create", "volume", fields).await?;
        let api = self.api;
        // Cinder records the service of a volume shortly after it becomes available.
        wait_for_some("the volume to name its service", STATE_TIMEOUT, async || {
            let is_named = !api.volume(&id).await?["service_uuid"].is_null();
            Ok(is_named.then_some(()))
        })
        .await?;
        self.get("show", &format!("/volumes/{id}")).await?;
        self.get("list by name", "/volumes/detail?name=fidelity").await?;
        self.get("list by status", "/volumes/detail?status=available").await?;
        self.get("a page", "/volumes/detail?limit=1").await?;
        Ok(id)
    }

    async fn snapshot(&mut self, volume: &str) -> Result<()> {
        let fields = json!({ "volume_id": volume, "name": "fidelity", "metadata": { "a": "b" } });
        let id = self.create("snapshot", "snapshot", fields).await?;
        self.get("show snapshot", &format!("/snapshots/{id}")).await?;
        let of_volume = format!("/snapshots/detail?volume_id={volume}");
        self.get("list snapshots", &of_volume).await?;
        // The value is a Python dictionary that matches no snapshot.
        for (step, value) in [
            ("list snapshots by metadata", "b"),
            ("list snapshots by metadata that none has", "c"),
        ] {
            let filter = format!("%7B%27a%27%3A%20%27{value}%27%7D");
            let path = format!("/snapshots/detail?metadata={filter}");
            self.get(step, &path).await?;
        }
        let path = format!("/volumes/{volume}");
        self.delete("delete a volume with a snapshot", &path).await?;
        let fields = json!({ "name": "from-snapshot", "size": 2, "snapshot_id": id });
        let restored = self.create("create from a snapshot", "volume", fields).await?;
        let path = format!("/volumes/{restored}");
        self.get("show what was made from a snapshot", &path).await?;
        self.remove("delete what was made from a snapshot", "volume", &restored)
            .await?;
        self.remove("delete snapshot", "snapshot", &id).await
    }

    async fn clone_of(&mut self, volume: &str) -> Result<()> {
        let fields = json!({ "name": "clone", "size": 1, "source_volid": volume });
        let id = self.create("clone", "volume", fields).await?;
        self.get("show clone", &format!("/volumes/{id}")).await?;
        self.remove("delete clone", "volume", &id).await
    }

    async fn attachment(&mut self, volume: &str, server: &str) -> Result<()> {
        let (path, action) = (format!("/volumes/{volume}"), format!("/volumes/{volume}/action"));
        let mappings = format!("/servers/{server}/os-volume_attachments");
        let mapping = format!("{mappings}/{volume}");
        let body = json!({ "volumeAttachment": { "volumeId": volume } });
        self.post_compute("attach", &mappings, &body).await?.accepted()?;
        self.follow("attach", "volume", volume, "in-use").await?;
        self.get("show attached", &path).await?;
        self.get_compute("show mapping", &mapping).await?;
        self.get_compute("list mappings", &mappings).await?;
        self.get_compute("show server", &format!("/servers/{server}")).await?;
        let attachments = format!("/attachments?volume_id={volume}");
        self.get("list attachments", &attachments).await?;
        self.post_compute("attach twice", &mappings, &body).await?;
        self.delete("delete attached", &path).await?;
        let step = "snapshot attached without force";
        let snapshot = json!({ "snapshot": { "volume_id": volume, "name": "x" } });
        self.post(step, "/snapshots", snapshot).await?;
        let list = "/snapshots/detail?name=x";
        let list = self.api.call(Method::GET, Service::Volume, list, None).await?;
        if let Some(id) = list.body["snapshots"][0]["id"].as_str() {
            self.follow(step, "snapshot", id, "available").await?;
            self.remove("delete snapshot of attached", "snapshot", id).await?;
        }
        let extend = json!({ "os-extend": { "new_size": 2 } });
        self.post("extend attached", &action, extend).await?;
        self.follow("extend attached", "volume", volume, "in-use").await?;
        self.delete_compute("detach", &mapping).await?.accepted()?;
        self.follow("detach", "volume", volume, "available").await?;
        let api = self.api;
        wait_for_some("Nova to forget the mapping", STATE_TIMEOUT, async || {
            let answer = api.call(Method::GET, Service::Compute, &mapping, None).await?;
            Ok((answer.status == 404).then_some(()))
        })
        .await?;
        self.delete_compute("detach twice", &mapping).await?;
        Ok(())
    }

    async fn changes(&mut self, volume: &str) -> Result<()> {
        let action = format!("/volumes/{volume}/action");
        let extend = |size: u8| json!({ "os-extend": { "new_size": size } });
        let retype = |name: &str| json!({ "os-retype": { "new_type": name, "migration_policy": "never" } });
        self.post("extend", &action, extend(3)).await?;
        self.follow("extend", "volume", volume, "available").await?;
        self.post("extend to the same", &action, extend(3)).await?;
        self.post("extend to less", &action, extend(1)).await?;
        self.post("retype", &action, retype("slow")).await?;
        self.follow("retype", "volume", volume, "available").await?;
        for (step, body) in [
            ("retype to the same", retype("slow")),
            ("retype to nothing known", retype("nobody's")),
            ("an unknown action", json!({ "os-nothing": {} })),
        ] {
            self.post(step, &action, body).await?;
        }
        let metadata = format!("/volumes/{volume}/metadata");
        let added = json!({ "metadata": { "c": "d" } });
        self.post("set metadata", &metadata, added).await?;
        for step in ["delete a key of metadata", "delete no key of metadata"] {
            self.delete(step, &format!("{metadata}/c")).await?;
        }
        // A key with a slash cannot be part of a path in any encoding.
        let added = json!({ "metadata": { "a.b-c.1": "d", "a/b": "d" } });
        self.post("set metadata with dots and slashes", &metadata, added)
            .await?;
        for (step, key) in [
            ("delete a key with dots", "a.b-c.1"),
            ("delete a key with a slash", "a%2Fb"),
        ] {
            self.delete(step, &format!("{metadata}/{key}")).await?;
        }
        Ok(())
    }

    async fn backup(&mut self, volume: &str) -> Result<()> {
        let fields = json!({ "volume_id": volume, "name": "fidelity" });
        let id = self.create("backup", "backup", fields).await?;
        self.get("show backup", &format!("/backups/{id}")).await?;
        let of_volume = format!("/backups/detail?volume_id={volume}");
        self.get("list backups", &of_volume).await?;
        self.remove("delete backup", "backup", &id).await
    }

    async fn group(&mut self, volume: &str) -> Result<()> {
        let types = self.get("group types", "/group_types").await?.accepted()?;
        let types = types["group_types"].as_array().context("no list of group types")?;
        let group_type = types.iter().find(|known| known["name"] == "consistent");
        let group_type = &group_type.context("no group type `consistent`")?["id"];
        let fields = json!({ "name": "fidelity", "group_type": group_type, "volume_types": ["slow"] });
        let id = self.create("group", "group", fields).await?;
        let (path, action) = (format!("/groups/{id}"), format!("/groups/{id}/action"));
        self.change_group("add to group", &id, json!({ "add_volumes": volume }))
            .await?;
        self.get("show group", &path).await?;
        let member = format!("/volumes/{volume}");
        self.get("show a volume of a group", &member).await?;
        self.delete("delete a volume of a group", &member).await?;
        let fields = json!({ "group_id": id, "name": "fidelity" });
        let snapshot = self.create("group snapshot", "group_snapshot", fields).await?;
        let shown = format!("/group_snapshots/{snapshot}");
        self.get("show group snapshot", &shown).await?;
        let members = self.get("list members", "/snapshots/detail").await?.accepted()?;
        let member = members["snapshots"][0]["id"].as_str().context("no member")?;
        self.delete("delete a member", &format!("/snapshots/{member}")).await?;
        let delete = json!({ "delete": { "delete-volumes": false } });
        self.post("delete a group with snapshots", &action, delete.clone())
            .await?;
        self.remove("delete group snapshot", "group_snapshot", &snapshot)
            .await?;
        self.post("delete a group with volumes", &action, delete.clone())
            .await?;
        self.change_group("remove from group", &id, json!({ "remove_volumes": volume }))
            .await?;
        self.post("delete group", &action, delete).await?;
        self.follow("delete group", "group", &id, "gone").await
    }

    /// Changes a group, and polls it until it is available.
    async fn change_group(&mut self, step: &'static str, id: &str, fields: Value) -> Result<()> {
        let (path, body) = (format!("/groups/{id}"), json!({ "group": fields }));
        let answer = self
            .call(step, Method::PUT, Service::Volume, &path, Some(&body))
            .await?;
        answer.accepted()?;
        self.follow(step, "group", id, "available").await
    }

    async fn lists(&mut self) -> Result<()> {
        for (step, path) in [
            ("types", "/types"),
            ("limits", "/limits"),
            ("zones", "/os-availability-zone"),
            ("groups", "/groups/detail"),
            ("group snapshots", "/group_snapshots/detail"),
            ("messages", "/messages"),
            ("pools, as a member", "/scheduler-stats/get_pools"),
            ("services, as a member", "/os-services"),
        ] {
            self.get(step, path).await?;
        }
        Ok(())
    }

    async fn end(&mut self, volume: &str) -> Result<()> {
        let path = format!("/volumes/{volume}");
        self.delete("delete", &path).await?;
        self.delete("delete while it is deleted", &path).await?;
        self.follow("delete", "volume", volume, "gone").await
    }
}
