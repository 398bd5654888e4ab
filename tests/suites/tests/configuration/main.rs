// SPDX-License-Identifier: Apache-2.0
//! Compares how the driver and the originals read configurations. openstacksdk reads `clouds.yaml`; gophercloud reads
//! it if openstacksdk cannot log in. The reader of cinder-csi-plugin reads `cloud.conf` and the flags with several
//! values.
//!
//! Compares the login, the region, the interface, TLS and the options. Prints the number of files that are equal,
//! refused by the driver, and accepted only by the driver. Fails on files with a different meaning.

mod generated;
mod meaning;
mod originals;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use cinder_cloud::{CloudConfig, Configuration};
use cinder_csi_driver::args::Args;
use serde_json::{Value, json};

use generated::{ConfFile, YamlFile};
use meaning::{Meaning, of_go_driver, of_sdk};
use originals::{go_reader, sdk_reader};

/// Number of generated files of each kind.
const GENERATED: usize = 1500;

/// Result of a comparison.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Same,
    /// The driver refuses the file.
    Refused,
    /// The original does not use the file.
    AcceptedAlone,
    Different(String),
}

#[derive(Debug, Default)]
struct Counts {
    files: usize,
    same: usize,
    refused: usize,
    alone: usize,
    different: Vec<String>,
}

impl Counts {
    fn add(&mut self, name: &str, outcome: Outcome) {
        self.files += 1;
        match outcome {
            Outcome::Same => self.same += 1,
            Outcome::Refused => self.refused += 1,
            Outcome::AcceptedAlone => self.alone += 1,
            Outcome::Different(reason) => self.different.push(format!("{name}: {reason}")),
        }
    }

    /// Prints the counts, and fails on a difference.
    fn check(&self, kind: &str) -> Result<()> {
        println!("{kind}: {self}");
        ensure!(self.same > 0, "no file means the same");
        let shown: Vec<&str> = self.different.iter().take(20).map(String::as_str).collect();
        ensure!(self.different.is_empty(), "{kind}, different:\n{}", shown.join("\n"));
        Ok(())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let different = self.different.len();
        write!(
            f,
            "{} files, {} same, {} refused, {} accepted here alone, {different} different",
            self.files, self.same, self.refused, self.alone
        )
    }
}

/// Reads the files of the driver's unit tests.
fn shared(kind: &str) -> Result<BTreeMap<String, String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../driver/cloud/tests/configuration")
        .join(kind);
    let mut files = BTreeMap::new();
    for file in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.insert(name, fs::read_to_string(&path)?);
    }
    Ok(files)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    Ok(path)
}

fn compare_texts(ours: &str, theirs: &str, text: &str) -> Outcome {
    if ours == theirs {
        return Outcome::Same;
    }
    Outcome::Different(format!("ours {ours}\n  theirs {theirs}\n{text}"))
}

/// Returns all clouds of the shared files, and the generated files.
fn yaml_files() -> Result<Vec<YamlFile>> {
    let mut files = Vec::new();
    for (name, text) in shared("clouds_yaml")? {
        let document: Value = serde_yaml::from_str(&text.replace(": 1234567890123456789012345678901", ": x"))?;
        let clouds = document["clouds"].as_object().context("clouds")?.keys().cloned();
        files.extend(clouds.map(|cloud| YamlFile {
            name: name.clone(),
            text: text.clone(),
            cloud,
            is_plain: true,
        }));
    }
    files.extend(generated::yaml_files(GENERATED));
    Ok(files)
}

#[test]
fn clouds_yaml_matches_openstacksdk() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let files = yaml_files()?;
    let mut queries = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let path = write(folder.path(), &format!("{number}.yaml"), &file.text)?;
        queries.push((path, file.cloud.clone()));
    }
    let requests = queries
        .iter()
        .map(|(path, cloud)| json!({"file": path, "cloud": cloud}));
    let sdk = sdk_reader()?.answers(requests.collect())?;
    let requests = queries
        .iter()
        .map(|(path, cloud)| json!({"clouds_yaml": path, "cloud": cloud}));
    let go = go_reader()?.answers(requests.collect())?;
    let mut counts = Counts::default();
    for ((file, sdk), go) in files.iter().zip(sdk).zip(go) {
        let outcome = match CloudConfig::from_clouds_yaml(&file.text, &file.cloud) {
            Err(_) => Outcome::Refused,
            Ok(config) => match of_sdk(&sdk, file.is_plain.then_some(&go)) {
                None => Outcome::AcceptedAlone,
                Some(theirs) => {
                    let mut ours = Meaning::new(&config);
                    ours.forget_what_is_unknown(&theirs);
                    compare_texts(&ours.connection(), &theirs.connection(), &file.text)
                }
            },
        };
        counts.add(&format!("{} {}", file.name, file.cloud), outcome);
    }
    counts.check("clouds.yaml")
}

/// Returns the shared and the generated files, each with the `clouds.yaml` that it may refer to.
fn conf_files() -> Result<Vec<ConfFile>> {
    let yaml = shared("clouds_yaml")?.remove("two.yaml").context("two.yaml")?;
    let mut files: Vec<ConfFile> = shared("cloud_conf")?
        .into_iter()
        .map(|(name, text)| ConfFile {
            name,
            text,
            yaml: yaml.clone(),
        })
        .collect();
    files.extend(generated::conf_files(GENERATED));
    Ok(files)
}

#[test]
fn cloud_conf_matches_go_driver() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let files = conf_files()?;
    let mut paths = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let yaml = write(folder.path(), &format!("{number}.yaml"), &file.yaml)?;
        let text = file
            .text
            .replace("/etc/config/clouds.yaml", &yaml.display().to_string());
        paths.push(write(folder.path(), &format!("{number}.conf"), &text)?);
    }
    let requests = paths.iter().map(|path| json!({"file": path, "cloud": ""}));
    let go = go_reader()?.answers(requests.collect())?;
    let mut counts = Counts::default();
    for ((file, path), go) in files.iter().zip(&paths).zip(go) {
        let read = Configuration::load(std::slice::from_ref(path), &[String::new()]);
        let outcome = match read {
            Err(_) => Outcome::Refused,
            Ok(_) if go.get("error").is_some() => Outcome::AcceptedAlone,
            Ok(configuration) => {
                let config = configuration.clouds.values().next().context("a cloud")?;
                let theirs = of_go_driver(&go);
                compare_texts(&Meaning::new(config).everything(), &theirs.everything(), &file.text)
            }
        };
        counts.add(&file.name, outcome);
    }
    counts.check("cloud.conf")
}

#[test]
fn flags_match_pflag() -> Result<()> {
    let flags = generated::flags();
    let requests = flags
        .iter()
        .map(|(flag, values)| json!({"flag": flag, "values": values}));
    let go = go_reader()?.answers(requests.collect())?;
    let mut counts = Counts::default();
    for ((flag, values), go) in flags.iter().zip(go) {
        let words = values.iter().map(|value| format!("--{flag}={value}"));
        let words = ["cinder-csi-driver".to_owned(), "--endpoint=unix:///csi.sock".to_owned()]
            .into_iter()
            .chain(words);
        let outcome = match Args::from_argv(words) {
            Err(_) => Outcome::Refused,
            Ok(_) if go.get("error").is_some() => Outcome::AcceptedAlone,
            Ok(args) => {
                let pairs: BTreeMap<_, _> = args.additional_topology.into_iter().collect();
                let ours = if *flag == "cloud-name" {
                    json!(args.cloud_name)
                } else {
                    json!(pairs)
                };
                compare_texts(&ours.to_string(), &go.to_string(), &values.join(" "))
            }
        };
        counts.add(flag, outcome);
    }
    counts.check("flags")
}
