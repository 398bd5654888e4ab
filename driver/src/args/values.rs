// SPDX-License-Identifier: Apache-2.0
//! Parsers of single flag values, which accept the same spellings as a Go program.

use std::ffi::OsString;
use std::time::Duration;

use csi_host::FsType;

/// Parses a boolean like Go's `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("use true or false".into()),
    }
}

/// Parses a file system that the driver can format.
pub(super) fn parse_fs_type(text: &str) -> Result<FsType, String> {
    match FsType::from_name(text) {
        Some(fs_type @ (FsType::Ext4 | FsType::Xfs | FsType::Btrfs)) => Ok(fs_type),
        _ => Err("is none of ext4, xfs and btrfs".to_owned()),
    }
}

/// Parses one `key=value` pair.
pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("write KEY=VALUE".into()),
    }
}

/// Parses the id of a project, with the name of its cloud in front if the cloud has one. The name may contain `=`, the
/// id may not.
pub(super) fn parse_project(text: &str) -> Result<(String, String), String> {
    let (cloud, project) = text.rsplit_once('=').unwrap_or(("", text));
    if project.is_empty() {
        return Err("write ID or CLOUD=ID".into());
    }
    Ok((cloud.into(), project.into()))
}

/// Parses a duration like Go's `time.ParseDuration`, without signs: `30s`, `1h30m`, `1.5s`, `250ms`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    const HELP: &str = "write a duration such as 30s, 1m30s or 250ms";
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(HELP.into());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(HELP)?;
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| HELP)?;
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_end);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            _ => return Err(HELP.into()),
        };
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| HELP)?;
        total = total.checked_add(part).ok_or(HELP)?;
        rest = next;
    }
    if total.is_zero() {
        Err("it must be longer than nothing".into())
    } else {
        Ok(total)
    }
}

/// Like [`parse_duration`], but accepts 0 for an unlimited time.
pub(super) fn parse_timeout(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        _ => parse_duration(text),
    }
}

/// The inverse of [`parse_duration`], exact to the millisecond.
pub(super) fn render_duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

/// Replaces `_` by `-` in the name of a flag, as Go's component-base does.
pub(super) fn normalise(arg: OsString) -> OsString {
    match arg.to_str() {
        Some(text) if text.starts_with("--") => {
            let (name, value) = match text.find('=') {
                Some(at) => text.split_at(at),
                None => (text, ""),
            };
            format!("{}{value}", name.replace('_', "-")).into()
        }
        _ => arg,
    }
}
