// SPDX-License-Identifier: Apache-2.0
//! Which login the settings of a cloud mean.

mod fields;
mod go;
mod sdk;

use super::raw::{RawCloud, ReadContext};
use super::{Auth, ConfigError};
pub(super) use fields::Original;
use fields::{CREDENTIAL, DomainKeys, Domains, LOG_IN, has_any, present, secret};

pub(super) fn understand(raw: &RawCloud, context: &ReadContext<'_>, original: Original) -> Result<Auth, ConfigError> {
    match original {
        Original::GoDriver => go::understand(raw, context),
        Original::OpenStackSdk => sdk::understand(raw, context),
    }
}
