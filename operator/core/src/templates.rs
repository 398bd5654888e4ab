// SPDX-License-Identifier: Apache-2.0
//! Templates: YAML files in the program. A template is parsed once. The values of one driver are inserted into the
//! parsed structure.

use std::sync::LazyLock;

use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;

/// A template, or why it cannot be parsed. A test parses every template.
pub type Template<T> = LazyLock<Result<T, String>>;

/// Parses the text of a template.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let value: Value = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    T::deserialize(value).map_err(|error| error.to_string())
}

/// Returns the parsed template.
pub fn get<T>(template: &'static Template<T>) -> Result<&'static T, serde_json::Error> {
    let parsed = LazyLock::force(template).as_ref();
    parsed.map_err(|error| serde_json::Error::custom(format!("read a template of the program: {error}")))
}
