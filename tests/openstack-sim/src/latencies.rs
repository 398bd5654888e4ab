// SPDX-License-Identifier: Apache-2.0
//! Durations of simulated work.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::SpecError;

/// Durations of asynchronous work, from the response of the API to the final state. All zero by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latencies {
    /// `creating` to `available`.
    pub create: Duration,
    /// From `deleting` to the removal.
    pub delete: Duration,
    /// `extending` to the new size.
    pub extend: Duration,
    /// A snapshot's `creating` to `available`.
    pub snapshot: Duration,
    /// A backup's `creating` to `available`, and the additional time of a volume that is created from a backup.
    pub backup: Duration,
    /// `retyping` to the new type; a migration takes it twice.
    pub retype: Duration,
    /// End of a group's `creating` or `deleting`.
    pub group: Duration,
    /// End of a group's `updating`, which adds or removes volumes.
    pub members: Duration,
    /// From Nova's response to an attach call to `in-use`; half of it in `reserved`, half in `attaching`.
    pub attach: Duration,
    /// Additional time in `attaching`.
    pub connect: Duration,
    /// From Nova's response to a detach call to `available`.
    pub detach: Duration,
    /// Time for which Nova waits for a guest that does not release its device. Then Nova rolls the detach back, and the
    /// volume is `in-use` again (real Nova: 8 attempts of 20 s). Zero is the default of 20 s.
    pub release: Duration,
    /// Time between the removals of Cinder's and of Nova's record of a detached volume.
    pub settle: Duration,
    /// Delay of each request before it takes effect.
    pub answer: Duration,
    /// Delay of the response to a mutating call after it took effect.
    pub accept: Duration,
}

impl Latencies {
    /// Returns the latencies of real services on an idle machine: create 0.8 s, attach 1.1 s, detach 0.6 s, delete and
    /// extend 0.3 s.
    pub fn real() -> Self {
        Self {
            create: Duration::from_millis(800),
            delete: Duration::from_millis(300),
            extend: Duration::from_millis(300),
            snapshot: Duration::from_millis(500),
            backup: Duration::from_millis(1500),
            retype: Duration::from_secs(1),
            group: Duration::from_millis(300),
            members: Duration::from_millis(300),
            attach: Duration::from_millis(1100),
            detach: Duration::from_millis(600),
            ..Self::default()
        }
    }

    /// Sets the latency with this name.
    pub fn set(&mut self, name: &str, latency: Duration) -> Result<(), SpecError> {
        let slot = match name {
            "create" => &mut self.create,
            "delete" => &mut self.delete,
            "extend" => &mut self.extend,
            "snapshot" => &mut self.snapshot,
            "backup" => &mut self.backup,
            "retype" => &mut self.retype,
            "group" => &mut self.group,
            "members" => &mut self.members,
            "attach" => &mut self.attach,
            "connect" => &mut self.connect,
            "detach" => &mut self.detach,
            "release" => &mut self.release,
            "settle" => &mut self.settle,
            "answer" => &mut self.answer,
            "accept" => &mut self.accept,
            _ => {
                return Err(SpecError {
                    text: name.to_owned(),
                    reason: "is not a latency".to_owned(),
                    form: "create, delete, extend, snapshot, backup, retype, group, members, attach, connect, detach, release, settle, answer or accept",
                });
            }
        };
        *slot = latency;
        Ok(())
    }

    /// Parses `create=800ms,attach=1.1s` and updates `self`.
    pub fn apply(&mut self, text: &str) -> Result<(), SpecError> {
        let error = |reason: String| SpecError {
            text: text.to_owned(),
            reason,
            form: "NAME=800ms or NAME=1.1s, joined by commas",
        };
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| error(format!("`{part}` has no value")))?;
            let latency = parse_duration(value).ok_or_else(|| error(format!("`{value}` is no duration")))?;
            self.set(name, latency)?;
        }
        Ok(())
    }

    /// Returns the latencies by name, in milliseconds.
    pub fn as_millis(&self) -> BTreeMap<&'static str, u128> {
        BTreeMap::from([
            ("create", self.create.as_millis()),
            ("delete", self.delete.as_millis()),
            ("extend", self.extend.as_millis()),
            ("snapshot", self.snapshot.as_millis()),
            ("backup", self.backup.as_millis()),
            ("retype", self.retype.as_millis()),
            ("group", self.group.as_millis()),
            ("members", self.members.as_millis()),
            ("attach", self.attach.as_millis()),
            ("connect", self.connect.as_millis()),
            ("detach", self.detach.as_millis()),
            ("release", self.release.as_millis()),
            ("settle", self.settle.as_millis()),
            ("answer", self.answer.as_millis()),
            ("accept", self.accept.as_millis()),
        ])
    }
}

/// Parses `800ms`, `1.1s`, `2m` or `1h`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations_with_unit() {
        for (text, expected) in [
            ("800ms", Some(Duration::from_millis(800))),
            ("1.1s", Some(Duration::from_millis(1100))),
            ("2m", Some(Duration::from_mins(2))),
            ("1h", Some(Duration::from_hours(1))),
            ("800", None),
            ("ms", None),
            ("-1s", None),
            ("1d", None),
        ] {
            assert_eq!(parse_duration(text), expected, "{text}");
        }
    }

    #[test]
    fn rejects_and_names_invalid_latency() {
        let mut latencies = Latencies::default();
        latencies.apply("create=800ms,attach=1.1s").expect("both are known");
        assert_eq!(latencies.attach, Duration::from_millis(1100));
        assert!(
            latencies
                .apply("fly=1s")
                .expect_err("not known")
                .to_string()
                .contains("`fly`")
        );
        assert!(
            latencies
                .apply("create")
                .expect_err("no value")
                .to_string()
                .contains("`create` has no value")
        );
    }
}
