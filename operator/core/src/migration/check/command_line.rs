// SPDX-License-Identifier: Apache-2.0
//! Containers of the other installation and the flags of their command lines.

use std::collections::BTreeMap;

use csi_sources::UntrustedText;

use super::environment::{Argument, ProxyVariables};
use super::go;

/// The program of the Go driver, and the last part of its image's name.
pub const PROGRAM: &str = "cinder-csi-plugin";

/// Whether a word of a command line runs the Go driver: it is the program, a path to it, or a script of a shell that
/// runs it. A script that only mentions the name, for example as the container of `kubectl logs -c`, does not run it.
pub fn runs_driver(word: &str) -> bool {
    let commands = word.split(['\n', ';', '&', '|', '(', ')', '{', '}']);
    commands
        .map(str::trim)
        .filter(|command| !command.starts_with('#'))
        .any(|command| {
            let mut parts = command.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
            // A flag of another program may have a path with this name.
            let is_path =
                |word: &str| !word.starts_with('-') && word.rsplit_once('/').is_some_and(|(_, name)| name == PROGRAM);
            let first = parts.clone().find(|word| *word != "exec" && !word.contains('='));
            first == Some(PROGRAM) || parts.any(is_path)
        })
}

/// Maximum number of characters of a flag's name in messages.
const LONGEST_NAME: usize = 100;

/// A container of the other installation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OldContainer {
    /// Kind, namespace and name of the workload.
    pub workload: String,
    pub name: String,
    /// The program: the last part of the image's name, without its tag.
    pub program: String,
    /// Its arguments, after substitution of its environment variables.
    pub arguments: Vec<Argument>,
    /// Whether the arguments belong to a script that a shell runs.
    pub is_script: bool,
    /// Its proxies.
    pub proxies: ProxyVariables,
}

/// A flag of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flag {
    /// The name with dashes, without the leading dashes.
    pub(super) name: String,
    /// The value, which may be the next argument of the command line.
    pub(super) value: Option<String>,
    /// Variables with values of Secrets in the value.
    pub(super) secrets: Vec<String>,
    /// Variables of unknown value, each with the reason.
    pub(super) unknown: BTreeMap<String, String>,
}

impl Flag {
    /// Returns the value. A flag without a value counts as true.
    pub(super) fn text(&self) -> &str {
        self.value.as_deref().unwrap_or("true")
    }

    /// Returns the name for messages.
    pub(super) fn shown(&self) -> String {
        format!("--{}", UntrustedText::with_limit(&self.name, LONGEST_NAME))
    }

    /// Returns the flag as one argument.
    pub(super) fn word(&self) -> String {
        match &self.value {
            Some(value) => format!("--{}={value}", self.name),
            None => format!("--{}", self.name),
        }
    }

    fn take_value(&mut self, word: &Argument, value: &str) {
        self.value = Some(value.to_owned());
        self.secrets.extend(word.secrets.iter().cloned());
        self.unknown.extend(word.unknown.clone());
    }
}

impl OldContainer {
    /// Returns workload and container.
    pub fn place(&self) -> String {
        format!("{}, container {}", self.workload, self.name)
    }

    /// Whether it runs cinder-csi-plugin, or this driver in its place.
    pub fn is_driver(&self) -> bool {
        self.program == PROGRAM
    }

    /// Returns the flags of the command line in order.
    pub(super) fn flags(&self) -> Vec<Flag> {
        let mut flags: Vec<Flag> = Vec::new();
        let mut awaits_value = false;
        for word in &self.arguments {
            let flag = word.text.trim_start_matches('-');
            if flag.is_empty() || !word.text.starts_with('-') {
                if let Some(flag) = flags.last_mut().filter(|_| awaits_value) {
                    flag.take_value(word, &word.text);
                }
                awaits_value = false;
                continue;
            }
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => short_verbosity(&word.text).unwrap_or((flag, None)),
            };
            awaits_value = value.is_none();
            let mut flag = Flag {
                name: name.replace('_', "-"),
                value: None,
                secrets: word.secrets.clone(),
                unknown: word.unknown.clone(),
            };
            flag.value = value.map(str::to_owned);
            flags.push(flag);
        }
        flags
    }

    /// Returns the paths of `--cloud-config`, without paths of unknown value.
    pub fn cloud_config(&self) -> Vec<String> {
        self.list("cloud-config")
    }

    /// Returns the names of `--cloud-name`, without names of unknown value.
    pub fn cloud_names(&self) -> Vec<String> {
        self.list("cloud-name")
    }

    /// Whether a file of `--cloud-config` is unknown. A finding contains the flag.
    pub fn has_unknown_configuration(&self) -> bool {
        let flags = self.flags();
        let mut flags = flags.iter().filter(|flag| flag.name == "cloud-config");
        flags.any(|flag| {
            let text = flag.value.as_deref().unwrap_or_default();
            !flag.unknown.is_empty() || !flag.secrets.is_empty() || go::parse_slice(text).is_none()
        })
    }

    fn list(&self, name: &str) -> Vec<String> {
        let flags = self.flags().into_iter();
        let known = flags.filter(|flag| flag.name == name && flag.unknown.is_empty() && flag.secrets.is_empty());
        known
            .flat_map(|flag| go::parse_slice(flag.value.as_deref().unwrap_or_default()).unwrap_or_default())
            .collect()
    }

    /// Whether the driver serves the controller. Unknown counts as yes.
    pub fn serves_controller(&self) -> bool {
        self.is_driver() && self.has_switch("provide-controller-service")
    }

    /// Whether the driver serves its node. Unknown counts as yes.
    pub fn serves_node(&self) -> bool {
        self.is_driver() && self.has_switch("provide-node-service")
    }

    /// Returns the last value of a flag that defaults to true.
    fn has_switch(&self, name: &str) -> bool {
        let flags = self.flags();
        let last = flags.iter().rev().find(|flag| flag.name == name);
        last.and_then(|flag| go::parse_bool(flag.text())).unwrap_or(true)
    }
}

/// Parses the short form of klog's verbosity: `-v5`.
fn short_verbosity(word: &str) -> Option<(&str, Option<&str>)> {
    let level = word.strip_prefix("-v")?;
    let is_level = !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit());
    is_level.then_some(("v", Some(level)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mk_driver(words: &[&str]) -> OldContainer {
        OldContainer {
            program: PROGRAM.to_owned(),
            arguments: words.iter().map(|&word| word.into()).collect(),
            ..OldContainer::default()
        }
    }

    #[rstest]
    #[case(&["--a_b=1"], &["--a-b=1"])]
    #[case(&["--a", "1", "-c"], &["--a=1", "--c"])]
    #[case(&["-v", "5"], &["--v=5"])]
    #[case(&["-v5"], &["--v=5"])]
    #[case(&["--a=b=c", "stray", "--d"], &["--a=b=c", "--d"])]
    fn flags_are_read_in_all_spellings(#[case] words: &[&str], #[case] expected: &[&str]) {
        let words: Vec<String> = mk_driver(words).flags().iter().map(Flag::word).collect();
        assert_eq!(words, expected);
    }

    #[test]
    fn cloud_config_is_repeatable_and_quoted() {
        let driver = mk_driver(&[
            "--cloud-config=/a,\"/b\"",
            "--cloud-config",
            "/c",
            "--cloud-name=\"region-one\"",
        ]);
        assert_eq!(driver.cloud_config(), ["/a", "/b", "/c"]);
        assert_eq!(driver.cloud_names(), ["region-one"]);
    }

    #[rstest]
    #[case(&[], (true, true))]
    #[case(&["--provide-controller-service=F"], (false, true))]
    #[case(&["--provide-node-service=0", "--provide-node-service"], (true, true))]
    #[case(&["--provide-node-service=false"], (true, false))]
    fn services_follow_last_flag(#[case] words: &[&str], #[case] expected: (bool, bool)) {
        let driver = mk_driver(words);
        assert_eq!((driver.serves_controller(), driver.serves_node()), expected);
    }
}
