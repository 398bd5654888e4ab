// SPDX-License-Identifier: Apache-2.0
//! Models of the driver's clients. Like the real ones, they time out, retry, give up and change their requests.

mod attacher;
mod claim;
mod lister;
mod order;
mod provisioner;
mod resizer;
mod snapshotter;

pub use claim::{Claim, run_claim};
pub use lister::list;
