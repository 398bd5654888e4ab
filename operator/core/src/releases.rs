// SPDX-License-Identifier: Apache-2.0
//! Releases of the programs: a table by the version of Kubernetes, and the origin of each image.

mod component;
mod images;
mod inputs;
pub mod sidecars;

pub use component::{COMPONENTS, Component, ComponentRow, DRIVER_CONTAINER};
pub use images::{Image, ImageSet, InstalledImages};
pub use inputs::{TEMPLATE_INPUTS, TemplateInputs};
