// SPDX-License-Identifier: Apache-2.0
//! Labels and annotations of objects that the operator creates.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Schema of labels with the length and the pattern of a value, which the Kubernetes type does not limit. A
/// rule for the keys would exceed the CEL cost limit. The operator reports an invalid key.
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
