// SPDX-License-Identifier: Apache-2.0
//! `kubectl_complete-cinder_csi`: kubectl runs this program for each completion of the plugin's command line, with the words that are there.
//! The last word is the one to complete. The program prints the choices, one a line, and a directive for the shell.

use clap::{Arg, Command, CommandFactory as _, Parser as _};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    ResourceExt,
    api::{ListParams, PartialObjectMeta},
};

use crate::kubernetes::GuardedApi;

use super::{PROGRAM, PluginArgs, PluginCommand, PluginError, client, drivers};

/// The name under which kubectl finds the program.
pub const COMPLETION: &str = "kubectl_complete-cinder_csi";

/// Cobra's directive that files are choices too.
const WITH_FILES: &str = ":0";
/// Cobra's directive that files are no choices.
const WITHOUT_FILES: &str = ":4";

/// What may come next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// One of these words, each with its description after a tab.
    Words(Vec<String>),
    /// A file or a directory.
    File,
    /// The name of an object.
    Object,
}

/// What kubectl is to read about the last of these words.
pub async fn complete(words: &[String]) -> String {
    let (last, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let (choices, directive) = match next(last, before) {
        Next::Words(words) => (words, WITHOUT_FILES),
        Next::File => (Vec::new(), WITH_FILES),
        // Without an answer of the API server there are no choices.
        Next::Object => (objects(before).await.unwrap_or_default(), WITHOUT_FILES),
    };
    let fitting = choices.iter().filter(|choice| choice.starts_with(last));
    fitting
        .map(String::as_str)
        .chain([directive, ""])
        .collect::<Vec<_>>()
        .join("\n")
}

fn next(last: &str, before: &[String]) -> Next {
    let mut command = PluginArgs::command();
    // Global flags become flags of each subcommand.
    command.build();
    let mut at = &command;
    let mut awaits_value = None;
    let mut positionals = 0;
    for word in before {
        if awaits_value.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            awaits_value = flag(at, word).filter(|flag| flag.get_action().takes_values());
        } else if let Some(subcommand) = at.find_subcommand(word) {
            at = subcommand;
        } else {
            positionals += 1;
        }
    }
    if let Some(flag) = awaits_value {
        return value(flag);
    }
    if last.starts_with('-') {
        let flags = at.get_arguments().filter_map(|flag| {
            let help = flag.get_help().map(ToString::to_string);
            Some(described(&format!("--{}", flag.get_long()?), help))
        });
        return Next::Words(flags.collect());
    }
    if at.has_subcommands() {
        let subcommands = at.get_subcommands();
        let named = |command: &Command| described(command.get_name(), command.get_about().map(ToString::to_string));
        return Next::Words(subcommands.map(named).collect());
    }
    if positionals == 0 && at.get_positionals().next().is_some() {
        return Next::Object;
    }
    Next::Words(Vec::new())
}

/// The flag that a word names, unless the word has the value too.
fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|flag| {
        let long = flag.get_long().map(|name| format!("--{name}"));
        let short = flag.get_short().map(|letter| format!("-{letter}"));
        [long, short].iter().flatten().any(|name| name == word)
    })
}

fn value(flag: &Arg) -> Next {
    let names = flag.get_value_names().into_iter().flatten();
    if names
        .into_iter()
        .any(|name| ["FILE", "DIRECTORY"].contains(&name.as_str()))
    {
        return Next::File;
    }
    let values = flag.get_possible_values().into_iter();
    let values = values.map(|value| described(value.get_name(), value.get_help().map(ToString::to_string)));
    Next::Words(values.collect())
}

/// A choice with the first line of its description.
fn described(word: &str, about: Option<String>) -> String {
    let about = about.unwrap_or_default();
    format!("{word}\t{}", about.lines().next().unwrap_or_default())
}

/// The names that the command takes: of claims or of drivers.
async fn objects(before: &[String]) -> Result<Vec<String>, PluginError> {
    let words = [PROGRAM].into_iter().chain(before.iter().map(String::as_str));
    // Any name makes the command line complete.
    let Ok(args) = PluginArgs::try_parse_from(words.chain(["name"])) else {
        return Ok(Vec::new());
    };
    let client = client(&args).await?;
    let PluginCommand::Diagnose { namespace, .. } = args.command else {
        let drivers = drivers(&client, None).await?;
        return Ok(drivers.iter().map(ResourceExt::name_any).collect());
    };
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let claims: GuardedApi<PartialObjectMeta<PersistentVolumeClaim>> = GuardedApi::namespaced(client, &namespace);
    let claims = claims
        .list_guarded(&ListParams::default())
        .await
        .map_err(PluginError::read("list the PersistentVolumeClaims"))?;
    Ok(claims.items.iter().map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn words(line: &[&str]) -> Vec<String> {
        line.iter().map(|&word| word.to_owned()).collect()
    }

    /// The words that fit, without their descriptions, and the directive.
    async fn completed(line: &[&str]) -> Vec<String> {
        let text = complete(&words(line)).await;
        text.lines()
            .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
            .collect()
    }

    #[rstest]
    #[case::flags_of_one(&["adopt", "--ch"], &["--check", ":4"])]
    #[case::subcommands(&["d"], &["diagnose", "diff", ":4"])]
    #[case::flags(&["diagnose", "--na"], &["--namespace", ":4"])]
    #[case::flags_of_all(&["status", "--kube"], &["--kubeconfig", ":4"])]
    #[case::values(&["status", "-o", ""], &["text", "json", ":4"])]
    #[case::a_file(&["diff", "--filename", "dri"], &[":0"])]
    #[case::after_a_flag_with_its_value(&["--context", "diff", "stat"], &["status", ":4"])]
    #[case::nothing_after_the_name(&["diagnose", "claim", ""], &[":4"])]
    #[tokio::test]
    async fn what_may_come_next_is_offered(#[case] line: &[&str], #[case] expected: &[&str]) {
        assert_eq!(completed(line).await, expected);
    }

    #[rstest]
    #[case(&["diagnose", "-n", "shop"])]
    #[case(&["status"])]
    #[case(&["diff", "-o", "json"])]
    fn names_come_from_the_cluster(#[case] before: &[&str]) {
        assert_eq!(next("", &words(before)), Next::Object);
    }

    #[test]
    fn every_choice_has_a_description() {
        let Next::Words(choices) = next("", &[]) else {
            panic!("no words")
        };
        for choice in choices {
            let (word, about) = choice.split_once('\t').expect("a tab");
            assert!(!about.is_empty(), "{word}");
        }
    }
}
