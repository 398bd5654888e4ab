// SPDX-License-Identifier: Apache-2.0
//! The operations on a cloud, as free functions over a [`Context`](crate::context::Context). Each runs until its result
//! is final.
//!
//! Each resource has a directory, and each operation on it a file: `volumes/{create,delete,expand,modify}.rs`,
//! `attachments/{attach,detach}.rs`, and `create.rs` and `delete.rs` in `snapshots`, `backups` and `groups`. A snapshot
//! of CSI is a snapshot or a backup of Cinder: `points_in_time.rs` finds and deletes it.
//!
//! `creation.rs` and `deletion.rs` contain the common parts of creations and deletions. `listing.rs` and `capacity.rs`
//! read facts of the project. The other files are parts of several operations.
//!
//! # HTTP status codes of Cinder and Nova
//!
//! `http::fault::classify` converts a status into a [`CloudError`](crate::error::CloudError), and `http::transport` retries. The operations
//! decide about the rest. A 404 counts only in the form of the service: the 404 page of a gateway is handled like a lost response.
//!
//! | Operation | Status | Meaning |
//! |---|---|---|
//! | any request | 400, 406, other 4xx | `BadRequest` |
//! | | 401 | one retry with a new token, then `Auth` |
//! | | 403 | `Quota` if the fault names one, otherwise `Forbidden`; both end the operation |
//! | | 404 | a missing object; `NotFound` where no row below has another meaning |
//! | | 409 | `Conflict` |
//! | | 413 | `Quota` if the fault names one, otherwise like 429 |
//! | | 429 | retries within the request timeout, then `Throttled` |
//! | | 502, 503, 504 | retries of a GET within the request timeout, then like 5xx |
//! | | 5xx | `Server`; the request may have taken effect |
//! | poll (`poll::task`) | 400 | of a list of changes: the task polls each resource instead |
//! | | 404 | of a resource: it is deleted, or hidden by a database lag (`PollVerdict::Unchanged`) |
//! | [create volume](volumes::create::create_volume) | 400 | ends the operation; for a copy, one retry without a refused zone |
//! | | 404 | the type, zone or source does not exist: `BadRequest` |
//! | | 406 | Cinder cannot restore the backup into a new volume: `CannotRestore` |
//! | | 5xx | finds the volume by name, otherwise `Server` |
//! | | 404 while waiting | the volume was deleted: `NotFound` after the database lag |
//! | [delete volume](volumes::delete::delete_volume) | 400, 409 | reads the object, then waits, retries, or names the blocker |
//! | or [snapshot, backup](points_in_time::delete_point_in_time) | 404 | deleted; for a new object, repeated after the lag |
//! | | 404 of the read | retries; deleted if it is the second one, after a lost response |
//! | | 5xx | reads the object, then waits or retries |
//! | [expand volume](volumes::expand::expand_volume) | 400, 409 | retries if the volume changed, otherwise `Conflict` or `BadRequest` |
//! | | 404 | the volume does not exist: `NotFound` |
//! | | 5xx | reads the volume and retries |
//! | [modify volume](volumes::modify::modify_volume) | 400, 409 | retries if the volume changed, otherwise `Conflict` or `BadRequest` |
//! | | 404 | the volume does not exist: `NotFound` |
//! | | 5xx | reads the volume; `Server` if its type is unchanged |
//! | [create snapshot](snapshots::create::create_snapshot) | 400 | waits for a volume in transition, `Conflict`, or `SnapshotRefused` |
//! | | 404 | the volume does not exist: `NotFound` |
//! | | 409 | waits for a volume in transition, otherwise `Conflict` |
//! | | 5xx | finds the snapshot by name, otherwise `Server` |
//! | [create backup](backups::create::create_backup) | 400 | requests a full backup if there is none to build on; otherwise ends |
//! | | 404 | the volume does not exist: `NotFound` |
//! | | 5xx | `NoBackups` if the fault names `cinder-backup`; otherwise finds the backup by name |
//! | [attach](attachments::attach::attach_volume) | 400, 409, 5xx | `step::Refusal`: the state of Cinder and Nova decides |
//! | | 403 | `TooManyAttachments` if the fault reports a full server |
//! | | 404 | the server or volume does not exist: `NotFound` if a read confirms it, otherwise the state decides |
//! | | 404 while waiting | the volume was deleted: `NotFound` after the database lag |
//! | [detach](attachments::detach::detach_volume) | 400, 409, 5xx | `step::Refusal`: the state of Cinder and Nova decides |
//! | | 404 | `Refusal::NotFound`: success if Cinder shows no attachment to the server, or answers 404 for the volume |
//! | | 404, attachment in Cinder | deleted if the server is deleted or without a host, otherwise `Obstructed` (`Disagreement`) |
//! | | 404, record in Nova | another request after a pause: an API node with a lagging database answered |
//! | | 404 while waiting | the server was deleted (`follow_nova`): as 404 above; the volume was deleted: success |
//! | delete stale attachment | 404 | deleted already |
//! | [create group snapshot](groups::create::create_group_snapshot) | 400 | `CannotGroup` |
//! | | 404 while waiting | the group or snapshot disappeared: `SnapshotFailed` after the database lag |
//! | [delete group snapshot](groups::delete::delete_group_snapshot) | 400 | `StillNeeded` |
//! | | 404 of the first read | deleted, after the database lag |
//! | | 404 of the deletion | deleted; `Conflict` if Cinder still shows it |
//! | delete group | 400 | its snapshot still exists: `Conflict` |
//! | | 404 | deleted |
//! | [free capacity](capacity::free_capacity) | 403, 404 | of the quotas: uses the limits of the project |
//! | | 403 | of the pools: the quotas alone count |
//! | list backups | 403, 404 | the cloud has no backups for this project: an empty list |

pub(crate) mod attachments;
pub(crate) mod backups;
pub(crate) mod capacity;
pub(crate) mod clusters;
pub(crate) mod creation;
pub(crate) mod deletion;
pub(crate) mod dependents;
pub(crate) mod groups;
pub(crate) mod listing;
pub(crate) mod messages;
pub(crate) mod points_in_time;
pub(crate) mod snapshots;
pub(crate) mod volumes;

/// The maximum number of requests of one operation. A request is repeated after its obstacle has disappeared.
pub(crate) const ROUNDS: u32 = 5;
