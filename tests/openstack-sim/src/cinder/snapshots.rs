//! Calls on snapshots.

use serde_json::{Value, json};

use super::{Context, view};
use crate::api::{Fault, Reply};
use crate::paging::Page;
use crate::state::Snapshot;
use crate::work;
use crate::world::NewSnapshot;

impl Context<'_> {
    /// Both views, the short and the detailed one, are the same in v3.
    pub(super) fn list_snapshots(&self) -> Result<Reply, Fault> {
        let page = Page::of(self.request, self.cloud.settings.page_limit)?;
        let fits = |snapshot: &Snapshot| {
            let is = |name: &str, actual: &str| self.request.param(name).is_none_or(|wanted| actual == wanted);
            is("name", snapshot.name.as_deref().unwrap_or_default())
                && is("status", snapshot.status.as_str())
                && is("volume_id", &snapshot.volume_id)
        };
        self.cloud.read(|world| {
            let mut found: Vec<&Snapshot> = world.snapshots.values().filter(|snapshot| fits(snapshot)).collect();
            found.sort_by(|left, right| (right.created_at, &right.id).cmp(&(left.created_at, &left.id)));
            let found = page
                .cut(&found, |snapshot| snapshot.id.as_str())
                .map_err(|marker| Fault::not_found(format!("Snapshot {marker} could not be found.")))?;
            let snapshots: Vec<Value> = found.iter().map(|snapshot| view::snapshot(snapshot)).collect();
            let mut body = json!({"snapshots": snapshots});
            let last = found.last().map(|snapshot| snapshot.id.as_str());
            if let Some(links) = page.links(self.request, &self.cloud.settings.base_url, found.len(), last) {
                body["snapshots_links"] = links;
            }
            Ok(Reply::json(200, body))
        })
    }

    pub(super) fn create_snapshot(&self) -> Result<Reply, Fault> {
        let new: NewSnapshot = self.request.object("snapshot")?;
        let snapshot = self.cloud.change(|world| world.begin_snapshot(new))?;
        work::create_snapshot(self.cloud, snapshot.clone(), self.request.work_fails.clone());
        Ok(Reply::json(202, json!({"snapshot": view::snapshot(&snapshot)})))
    }

    pub(super) fn get_snapshot(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.read(|world| {
            Ok(Reply::json(
                200,
                json!({"snapshot": view::snapshot(world.snapshot(id)?)}),
            ))
        })
    }

    pub(super) fn delete_snapshot(&self, id: &str) -> Result<Reply, Fault> {
        self.cloud.change(|world| world.begin_delete_snapshot(id))?;
        work::delete_snapshot(self.cloud, id.to_owned());
        Ok(Reply::empty(202))
    }
}
