// SPDX-License-Identifier: Apache-2.0
//! `kubectl_complete-cinder_csi`: kubectl runs this program for each completion of the plugin's command line, with the
//! present arguments. The program prints the candidates for the last argument, one per line, and a directive for the
//! shell.

use std::{ffi::OsString, fmt::Write as _};

use clap::CommandFactory as _;
use clap_complete::engine;

use crate::args::{PROGRAM, PluginArgs};

/// The name under which kubectl finds the completion.
const COMPLETION: &str = "kubectl_complete-cinder_csi";
/// Cobra's directive that suppresses file names as further candidates.
const NO_FILES: &str = ":4";

/// Whether kubectl ran the program under its name for completion.
pub fn is_requested(program: Option<&str>) -> bool {
    let name = program.and_then(|path| path.rsplit('/').next());
    name == Some(COMPLETION)
}

/// Completes the last of the arguments.
pub fn complete(words: &[String]) -> String {
    let mut line = vec![OsString::from(PROGRAM)];
    line.extend(words.iter().map(OsString::from));
    let (mut command, last) = (PluginArgs::command(), words.len());
    let directory = std::env::current_dir().ok();
    let choices = engine::complete(&mut command, line, last, directory.as_deref()).unwrap_or_default();
    let mut text = String::new();
    for choice in choices.iter().filter(|choice| !choice.is_hide_set()) {
        let help = choice.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}\t{help}", choice.get_value().display());
    }
    text + NO_FILES + "\n"
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Some("/usr/local/bin/kubectl_complete-cinder_csi"), true)]
    #[case(Some("kubectl_complete-cinder_csi"), true)]
    #[case(Some("/usr/local/bin/kubectl-cinder_csi"), false)]
    #[case(Some("/srv/kubectl_complete-cinder_csi/plugin"), false)]
    #[case(None, false)]
    fn completion_is_recognized_by_program_name(#[case] program: Option<&str>, #[case] expected: bool) {
        assert_eq!(is_requested(program), expected);
    }

    #[rstest]
    #[case::subcommands(&["sta"], "status\tShow each driver")]
    #[case::flags(&["diagnose", "--na"], "--namespace\tIts namespace")]
    #[case::flags_of_all_commands(&["status", "--kube"], "--kubeconfig\t")]
    #[case::values(&["status", "-o", "j"], "json\tFor programs")]
    #[case::after_a_flag_with_its_value(&["--context=adopt", "stat"], "status\t")]
    #[case::kinds(&["diagnose", "volumea"], "volumeattachment\tA VolumeAttachment")]
    #[case::nothing(&["diagnose", "claim", "x"], ":4")]
    fn completes_the_last_word(#[case] words: &[&str], #[case] expected: &str) {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let text = complete(&words);
        assert!(text.starts_with(expected) && text.ends_with(":4\n"), "{text}");
    }
}
