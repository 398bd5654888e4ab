// SPDX-License-Identifier: Apache-2.0
//! Paths of the repository.

/// The root of the repository.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
