// SPDX-License-Identifier: Apache-2.0
//! Commands of the program. `run` is in [`crate::wiring`].

pub mod error;
pub mod render;
