// SPDX-License-Identifier: Apache-2.0
//! Models of what calls the driver: they time out, repeat, give up and change their minds as the real ones do.

mod attacher;
mod claim;
mod lister;
mod order;
mod provisioner;
mod resizer;
mod snapshotter;

pub use claim::{Claim, live};
pub use lister::list;
