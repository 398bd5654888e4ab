// SPDX-License-Identifier: Apache-2.0
//! Typed calls to the OpenStack services: Cinder and Nova.

pub(crate) mod block_storage;
pub(crate) mod compute;
mod pages;
