// SPDX-License-Identifier: Apache-2.0
//! Checks of values. Their errors contain the expected and the actual value.

use std::fmt::Debug;

use anyhow::{Result, bail, ensure};
use serde_json::Value;

/// Length of a text in an error.
const LONGEST: usize = 4_000;

/// Fails unless the field of an object at a JSON pointer has this value. A missing field is null.
pub fn expect_field(object: &Value, pointer: &str, expected: impl Into<Value>) -> Result<()> {
    let expected = expected.into();
    let actual = object.pointer(pointer).unwrap_or(&Value::Null);
    if *actual == expected {
        return Ok(());
    }
    let label = match (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
        (Some(kind), Some(name)) => format!(" of {kind} {name}"),
        _ => String::new(),
    };
    match &object["status"] {
        Value::Object(_) => bail!("{pointer}{label} is {actual}, not {expected}: {}", object["status"]),
        _ => bail!("{pointer}{label} is {actual}, not {expected}"),
    }
}

/// Fails unless both values are equal.
pub fn expect_equal<T, U>(what: &str, actual: &T, expected: &U) -> Result<()>
where
    T: Debug + PartialEq<U> + ?Sized,
    U: Debug + ?Sized,
{
    ensure!(actual == expected, "{what}: {actual:?}, expected {expected:?}");
    Ok(())
}

/// Fails unless the text contains all parts.
pub fn expect_parts(text: &str, parts: &[&str]) -> Result<()> {
    let missing: Vec<_> = parts.iter().filter(|part| !text.contains(**part)).collect();
    // A page of metrics would hide the other lines of a report.
    let text = text.get(..LONGEST).unwrap_or(text);
    ensure!(missing.is_empty(), "{missing:?} missing in {text}");
    Ok(())
}

/// Fails if anything remains.
pub fn expect_none<T: Debug>(what: &str, remaining: &[T]) -> Result<()> {
    ensure!(remaining.is_empty(), "{what} left: {remaining:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_contain_expected_and_actual_value() {
        let claim =
            json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "status": {"phase": "Pending"}});
        expect_field(&claim, "/status/phase", "Pending").unwrap();
        expect_field(&claim, "/status/capacity", Value::Null).unwrap();
        assert_eq!(
            expect_field(&claim, "/status/phase", "Bound").unwrap_err().to_string(),
            r#"/status/phase of PersistentVolumeClaim data is "Pending", not "Bound": {"phase":"Pending"}"#
        );
        assert_eq!(
            expect_equal("volumes", &1, &2).unwrap_err().to_string(),
            "volumes: 1, expected 2"
        );
        assert_eq!(
            expect_parts("one two", &["two", "three"]).unwrap_err().to_string(),
            r#"["three"] missing in one two"#
        );
        assert_eq!(
            expect_none("volumes", &["a"]).unwrap_err().to_string(),
            r#"volumes left: ["a"]"#
        );
    }
}
