// SPDX-License-Identifier: Apache-2.0
//! Commands of the program and of its kubectl plugin. `run` is in [`crate::wiring`].

pub mod error;
pub mod plugin;
pub mod render;
mod table;
