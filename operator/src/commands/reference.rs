// SPDX-License-Identifier: Apache-2.0
//! The pages of the documentation that are made from the code.

mod fields;
mod flags;
mod pages;
mod settings;

pub use pages::{PageError, pages};
