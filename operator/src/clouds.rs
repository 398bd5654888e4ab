// SPDX-License-Identifier: Apache-2.0
//! The clouds of all drivers, as the operator talks to them: what their services and facts are like, and what they say of volumes
//! that wait. Both are asked at a fixed interval beside the reconciles.

mod inquiry;
mod probe;
mod sessions;

pub use inquiry::Inquiries;
pub use sessions::Clouds;
