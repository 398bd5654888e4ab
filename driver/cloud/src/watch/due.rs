//! A look that somebody waits for.

use jiff::Timestamp;

use super::KeyOf;
use super::watched::Watched;
use crate::pace::Kind;

/// A look that is due, and whom it is for.
#[derive(Debug)]
pub(super) struct Due<T: Watched> {
    pub(super) key: KeyOf<T>,
    /// For a list of changes: since when.
    pub(super) since: Timestamp,
    /// The waiters that it has to serve, by registration. It serves others, too, where it tells about them.
    pub(super) waiters: Vec<(u64, T::Id, Kind)>,
}
