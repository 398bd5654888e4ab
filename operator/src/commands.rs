// SPDX-License-Identifier: Apache-2.0
//! What the program does when it is called: what prints and what compares. `run` is in [`crate::wiring`].

pub mod error;
pub mod plugin;
pub mod render;
mod table;
