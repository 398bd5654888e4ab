// SPDX-License-Identifier: Apache-2.0
//! JSON pointers, for tests that change every value of an object.

use serde_json::Value;

/// Returns the pointers of all values in an object, without the object itself.
pub(crate) fn json_pointers(object: &Value) -> Vec<String> {
    let mut pointers = Vec::new();
    collect(object, "", &mut pointers);
    pointers
}

fn collect(value: &Value, pointer: &str, pointers: &mut Vec<String>) {
    if !pointer.is_empty() {
        pointers.push(pointer.to_owned());
    }
    match value {
        Value::Object(fields) => {
            let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
            fields
                .iter()
                .for_each(|(name, value)| collect(value, &format!("{pointer}/{}", escape(name)), pointers));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, value)| collect(value, &format!("{pointer}/{index}"), pointers));
        }
        _ => {}
    }
}
