// SPDX-License-Identifier: Apache-2.0
//! Creates, adopts and reads backups.
//!
//! A backup reads its volume for minutes or hours, so the data is frozen first, in a snapshot that bears the backup's name and a
//! mark. It goes when the backup is made, at whichever call sees that first: the next creation of the same name, or the deletion of
//! the backup or of the volume. A deletion removes it before the backup, which is all that tells of it.

pub(crate) mod create;
