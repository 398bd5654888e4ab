// SPDX-License-Identifier: Apache-2.0
//! OpenStack's services, typed: the calls that this product makes.

pub(crate) mod block_storage;
pub(crate) mod compute;
mod pages;
