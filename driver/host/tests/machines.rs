// SPDX-License-Identifier: Apache-2.0
//! Devices and slots on machines that differ from the test machine.
//!
//! A file of `machines` describes the sysfs of one machine: first the expected answers, then `PATH = CONTENT` for files
//! and `PATH -> TARGET` for symbolic links.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that cannot do its part fails the test"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use csi_host::{DeviceError, Host, HostPaths};
use rstest::rstest;

/// A machine in a directory, with its expected answers.
struct Machine {
    dir: tempfile::TempDir,
    answers: Vec<(String, String)>,
}

impl Machine {
    fn read(description: &Path) -> Self {
        let text = fs::read_to_string(description).expect("a description");
        let (answers, tree) = text.split_once("\n\n").expect("answers and a tree");
        let answers = answers
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_once(": ").expect("an answer"))
            .map(|(question, answer)| (question.to_owned(), answer.to_owned()))
            .collect();
        let machine = Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
            answers,
        };
        for name in ["dev", "sys/block"] {
            fs::create_dir_all(machine.path(name)).expect("a directory");
        }
        for line in tree.lines() {
            machine.add(line);
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn add(&self, line: &str) {
        let place = |path: &str| {
            let path = self.path("sys").join(path);
            fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
            path
        };
        if let Some((path, target)) = line.split_once(" -> ") {
            symlink(target, place(path)).expect("a link");
        } else {
            let (path, content) = line.split_once(" =").expect("a file");
            fs::write(place(path), unescape(content.trim_start())).expect("a file");
        }
    }

    fn host(&self) -> Host {
        Host::new(HostPaths {
            sys: self.path("sys"),
            dev: self.path("dev"),
            proc: "/proc".into(),
        })
    }

    /// Checks one expected answer.
    async fn check(&self, question: &str, answer: &str) {
        let host = self.host();
        let volume = || {
            let (question, _) = self
                .answers
                .iter()
                .find(|(question, _)| question.starts_with("volume "))
                .expect("a volume");
            question.trim_start_matches("volume ").to_owned()
        };
        let find = |size| async move { host.find_device(&volume(), size, Duration::ZERO).await };
        match question.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["volume", _] => {
                let found = match find(None).await {
                    Ok(device) => format!("{} {} GiB", device.name, device.size_bytes >> 30),
                    Err(DeviceError::NotFound { .. }) => "not found".to_owned(),
                    Err(error) => error.to_string(),
                };
                assert_eq!(found, answer);
            }
            ["grown", size, "GiB"] => {
                let size: u64 = size.parse().expect("a size");
                let error = find(Some(size << 30))
                    .await
                    .expect_err("the map is too small")
                    .to_string();
                assert!(error.contains(answer), "{error}");
            }
            ["rescanned"] => {
                for disk in answer.split_whitespace() {
                    let rescan = self.path("sys/block").join(disk).join("device/rescan");
                    assert_eq!(fs::read_to_string(rescan).expect("a file"), "1", "{disk}");
                }
            }
            ["slots"] => {
                let slots = self.host().volume_slots().await.expect("a count");
                let bus = slots.bus.map(|bus| format!("{bus:?}")).unwrap_or_default();
                assert_eq!(format!("{bus} {} {}", slots.attached, slots.free), answer);
            }
            other => panic!("unknown question {other:?}"),
        }
    }
}

/// Decodes `\xNN`, which describes a byte outside of text.
fn unescape(content: &str) -> Vec<u8> {
    let mut parts = content.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (byte, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(byte, 16).expect("a byte"));
        bytes.extend(rest.bytes());
    }
    bytes
}

#[rstest]
#[tokio::test]
async fn detects_devices_and_slots_of_machines(#[files("tests/machines/*.txt")] description: PathBuf) {
    let machine = Machine::read(&description);
    for (question, answer) in &machine.answers {
        machine.check(question, answer).await;
    }
}
