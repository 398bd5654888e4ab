// SPDX-License-Identifier: Apache-2.0
//! Creates and deletes backups.
//!
//! A backup reads its volume for minutes or hours, so the data is frozen first in a temporary snapshot with the
//! backup's name and a mark. The first call that sees the backup complete removes the snapshot: the next creation of
//! the same name, or the deletion of the backup or of the volume. A deletion removes the snapshot before the backup,
//! because only the backup refers to it.

pub(crate) mod create;
pub(crate) mod delete;
