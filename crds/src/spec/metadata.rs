// SPDX-License-Identifier: Apache-2.0
//! Labels and annotations of objects that the operator makes.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Labels: how long and of what a value may be, Kubernetes' own type does not say. (A rule for the keys would be too dear: the
/// operator reports a wrong one.)
pub(super) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
        },
    })
}
