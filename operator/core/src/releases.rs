// SPDX-License-Identifier: Apache-2.0
//! Which release of each program runs: the table by the version of Kubernetes, and whose choice an image is.

mod component;
mod images;
mod inputs;
pub mod sidecars;

pub use component::{COMPONENTS, Component, ComponentRow, DRIVER_CONTAINER};
pub use images::{Image, ImageSet, InstalledImages};
pub use inputs::{TEMPLATE_INPUTS, TemplateInputs};
