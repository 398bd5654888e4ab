// SPDX-License-Identifier: Apache-2.0
//! How long things take.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::SpecError;

/// How long the asynchronous work takes, from the answer of the API to the final state. All zero by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latencies {
    /// `creating` to `available`.
    pub create: Duration,
    /// `deleting` to gone.
    pub delete: Duration,
    /// `extending` to the new size.
    pub extend: Duration,
    /// A snapshot's `creating` to `available`.
    pub snapshot: Duration,
    /// A backup's `creating` to `available`, and how much longer a volume is `creating` that is restored from one.
    pub backup: Duration,
    /// `retyping` to the new type; a migration takes it twice.
    pub retype: Duration,
    /// A group's `creating` or `deleting` to its end.
    pub group: Duration,
    /// A group's `updating` to its end: volumes enter it or leave it.
    pub members: Duration,
    /// Nova's answer to an attach call to `in-use`; the first half is spent in `reserved`, the second in `attaching`.
    pub attach: Duration,
    /// How much longer than its half of `attach` a volume is `attaching`.
    pub connect: Duration,
    /// Nova's answer to a detach call to `available`.
    pub detach: Duration,
    /// How long Nova waits for a guest that does not release its device before it gives the detachment up and the
    /// volume is `in-use` again (real Nova: 8 attempts of 20 s). Zero means the default of 20 s.
    pub release: Duration,
    /// How much longer than Cinder's record Nova's record of a detached volume lives.
    pub settle: Duration,
    /// How long each answer of the APIs takes, before the request has an effect.
    pub answer: Duration,
    /// How much longer the answer to a call that changes something is held back, after the call took effect.
    pub accept: Duration,
}

impl Latencies {
    /// Those of the real services on an idle machine: create 0.8 s, attach 1.1 s, detach 0.6 s, delete and extend 0.3 s.
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

    /// Changes the latency called `name`.
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

    /// Reads `create=800ms,attach=1.1s` over `self`.
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

    /// The latencies by name, in milliseconds.
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

/// `800ms`, `1.1s`, `2m` or `1h`.
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
    fn durations_are_numbers_with_a_unit() {
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
    fn what_is_no_latency_is_named() {
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
