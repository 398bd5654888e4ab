// SPDX-License-Identifier: Apache-2.0
//! Watches objects of the API server and records the times of their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{Cluster, wait_for_some};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use suites::cluster::USERS;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The watched kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// PersistentVolumeClaims of the users.
    Claim,
    Volume,
    Attachment,
    /// Pods of the users.
    Pod,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Claim, Self::Volume, Self::Attachment, Self::Pod];

    fn path(self) -> String {
        match self {
            Self::Claim => format!("/api/v1/namespaces/{USERS}/persistentvolumeclaims"),
            Self::Volume => "/api/v1/persistentvolumes".to_owned(),
            Self::Attachment => "/apis/storage.k8s.io/v1/volumeattachments".to_owned(),
            Self::Pod => format!("/api/v1/namespaces/{USERS}/pods"),
        }
    }

    /// Whether a claim or volume is bound, an attachment attached, or a pod ready.
    fn is_done(self, object: &Value) -> bool {
        let status = &object["status"];
        match self {
            Self::Claim | Self::Volume => status["phase"] == "Bound",
            Self::Attachment => status["attached"] == true,
            Self::Pod => {
                let mut conditions = status["conditions"].as_array().into_iter().flatten();
                conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
            }
        }
    }
}

/// The lifecycle of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct ObjectHistory {
    /// Time of the first event.
    pub(super) began: Option<Timestamp>,
    /// Time when it was bound, attached or ready.
    pub(super) done: Option<Timestamp>,
    /// Time of the deletion request.
    pub(super) ending: Option<Timestamp>,
    /// Time of the removal.
    pub(super) gone: Option<Timestamp>,
    /// Failed attempts from the status, by their timestamps.
    pub(super) failures: BTreeSet<String>,
    /// The latest version of the object.
    pub(super) object: Value,
}

type Stories = BTreeMap<(Kind, String), ObjectHistory>;

/// Records a watch event. Returns true for the bookmark that ends the initial list.
fn note(stories: &mut Stories, kind: Kind, event: &mut Value, at: Timestamp) -> Result<bool> {
    let object = event["object"].take();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match event["type"].as_str() {
        Some("BOOKMARK") => return Ok(true),
        Some("ADDED" | "MODIFIED" | "DELETED") => {}
        _ => anyhow::bail!("the watch of {kind:?} was told {event} {object}"),
    }
    let story = stories.entry((kind, name)).or_default();
    story.began.get_or_insert(at);
    if kind.is_done(&object) {
        story.done.get_or_insert(at);
    }
    if !object["metadata"]["deletionTimestamp"].is_null() {
        story.ending.get_or_insert(at);
    }
    if event["type"] == "DELETED" {
        story.ending.get_or_insert(at);
        story.gone.get_or_insert(at);
    }
    for error in ["attachError", "detachError"] {
        if let Some(time) = object["status"][error]["time"].as_str() {
            story.failures.insert(format!("{error} {time}"));
        }
    }
    story.object = object;
    Ok(false)
}

/// State shared by all watches.
#[derive(Debug, Default)]
struct WatchState {
    stories: Stories,
    synced: BTreeSet<Kind>,
    ended: Option<anyhow::Error>,
}

/// Watches of all kinds. They end when this value is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    state: Arc<Mutex<WatchState>>,
    _running: Vec<Child>,
}

impl Watch {
    /// Starts the watches and waits for the initial lists.
    pub(super) async fn start(cluster: &Cluster) -> Result<Self> {
        let state = Arc::new(Mutex::new(WatchState::default()));
        let mut running = Vec::new();
        for kind in Kind::ALL {
            let path = format!(
                "{}?watch=true&timeoutSeconds=7200&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
                kind.path()
            );
            let mut child = Command::new("nsenter")
                .args(["--target", &cluster.first_node()?.pid().to_string(), "--net", "--"])
                .arg(cluster.tools().path("kubectl")?)
                .args(["get", "--raw", &path])
                .env("KUBECONFIG", cluster.kubeconfig()?)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .process_group(0)
                .kill_on_drop(true)
                .spawn()
                .context("cannot start a watch")?;
            let output = child.stdout.take().context("a watch without an output")?;
            tokio::spawn(read(kind, output, state.clone()));
            running.push(child);
        }
        let watch = Self {
            state,
            _running: running,
        };
        wait_for_some("the watches", START_TIMEOUT, async || {
            watch.check()?;
            Ok((watch.lock_state().synced.len() == Kind::ALL.len()).then_some(()))
        })
        .await?;
        Ok(watch)
    }

    fn lock_state(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock()
    }

    fn check(&self) -> Result<()> {
        let state = self.lock_state();
        let ended = state.ended.as_ref().map(|error| format!("{error:#}"));
        ensure!(ended.is_none(), "a watch ended: {}", ended.unwrap_or_default());
        Ok(())
    }

    /// Returns the lifecycle of an object so far.
    pub(super) fn story(&self, kind: Kind, name: &str) -> ObjectHistory {
        let state = self.lock_state();
        state.stories.get(&(kind, name.to_owned())).cloned().unwrap_or_default()
    }

    /// Returns the name and the lifecycle so far of the VolumeAttachment of a PersistentVolume.
    pub(super) fn attachment_of(&self, volume: &str) -> Option<(String, ObjectHistory)> {
        let state = self.lock_state();
        let mut all = state.stories.iter().filter(|((kind, _), _)| *kind == Kind::Attachment);
        all.find(|(_, story)| story.object["spec"]["source"]["persistentVolumeName"] == volume)
            .map(|((_, name), story)| (name.clone(), story.clone()))
    }

    /// Waits until all objects reach a state, or until the limit. Returns the objects that reached it.
    pub(super) async fn reached(
        &self,
        kind: Kind,
        names: &[String],
        point: fn(&ObjectHistory) -> Option<Timestamp>,
        limit: Duration,
    ) -> Result<Vec<String>> {
        let have = || -> Vec<String> {
            let there = |name: &&String| point(&self.story(kind, name)).is_some();
            names.iter().filter(there).cloned().collect()
        };
        // A timeout is not an error here: the result lacks the late objects.
        drop(
            wait_for_some("objects", limit, async || {
                self.check()?;
                Ok((have().len() == names.len()).then_some(()))
            })
            .await,
        );
        self.check()?;
        Ok(have())
    }
}

/// Reads a watch until it ends. An early end is an error, because only this program ends its watches.
async fn read(kind: Kind, output: ChildStdout, shared: Arc<Mutex<WatchState>>) {
    let lock = || shared.lock();
    let lines = async {
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await.context("cannot read it")? {
            let at = Timestamp::now();
            let mut event = serde_json::from_str(&line).with_context(|| format!("it told {line}"))?;
            let mut state = lock();
            if note(&mut state.stories, kind, &mut event, at)? {
                state.synced.insert(kind);
            }
        }
        anyhow::bail!("the API server has ended it")
    };
    let ended: Result<()> = lines.await;
    lock().ended = ended.with_context(|| format!("the watch of {}", kind.path())).err();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn watch_events_record_attachment_lifecycle() {
        let mut stories = Stories::new();
        let moment = |second: i64| Timestamp::from_second(second).unwrap();
        let failure = json!({"time": "2026-01-01T00:00:00Z", "message": "no"});
        let events = [
            ("ADDED", json!({}), json!(null)),
            (
                "MODIFIED",
                json!({"attached": false, "attachError": failure}),
                json!(null),
            ),
            (
                "MODIFIED",
                json!({"attached": false, "attachError": failure}),
                json!(null),
            ),
            ("MODIFIED", json!({"attached": true}), json!(null)),
            ("MODIFIED", json!({"attached": true}), json!("2026-01-01T00:00:09Z")),
            ("DELETED", json!({"attached": true}), json!("2026-01-01T00:00:09Z")),
        ];
        for (second, (what, status, deletion)) in (1..).zip(events) {
            let object = json!({"metadata": {"name": "a", "deletionTimestamp": deletion}, "status": status});
            let mut event = json!({"type": what, "object": object});
            assert!(!note(&mut stories, Kind::Attachment, &mut event, moment(second)).unwrap());
        }

        let story = &stories[&(Kind::Attachment, "a".to_owned())];
        let moments = [story.began, story.done, story.ending, story.gone];
        assert_eq!(moments, [1, 4, 5, 6].map(|second| Some(moment(second))));
        assert_eq!(story.failures.len(), 1);
    }

    #[test]
    fn bookmark_ends_initial_list_but_error_fails() {
        let note_event = |what: &str| {
            let mut event = json!({"type": what, "object": {"metadata": {}}});
            note(&mut Stories::new(), Kind::Pod, &mut event, Timestamp::UNIX_EPOCH)
        };
        assert!(note_event("BOOKMARK").unwrap());
        assert!(note_event("ERROR").is_err());
    }
}
