// SPDX-License-Identifier: Apache-2.0
//! The login that the settings of a cloud describe.

mod fields;
mod go;
mod sdk;

use super::raw::{RawCloud, ReadContext};
use super::{Auth, ConfigError};
pub(super) use fields::Original;
use fields::{CREDENTIAL, DomainKeys, Domains, LOG_IN, has_any, present, secret};

pub(super) fn resolve(raw: &RawCloud, context: &ReadContext<'_>, original: Original) -> Result<Auth, ConfigError> {
    match original {
        Original::GoDriver => go::resolve(raw, context),
        Original::OpenStackSdk => sdk::resolve(raw, context),
    }
}
