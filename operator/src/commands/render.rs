// SPDX-License-Identifier: Apache-2.0
//! The commands `crd` and `render`: print the objects that the operator would apply, as YAML, without a cluster.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use cinder_csi_crds::{CinderCSIDriver, to_yaml};
use cinder_operator_core::{
    manifests::{DriverCredentials, Operand, RenderError, operands},
    problem::Problem,
    resolve::{ControllerSight, Environment, namespace_of, resolve},
};
use csi_sources::Sources;
use serde_json::Value;

use crate::args::{RenderArgs, VERSION};

/// Maximum size of the input in bytes. The API server does not accept an object of this size.
const LARGEST_INPUT: u64 = 2 << 20;

/// Errors of `crd` and `render`.
#[derive(Debug, thiserror::Error)]
pub enum RenderCommandError {
    #[error("read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not one YAML document: {source}", path = path.display())]
    Parse { path: PathBuf, source: serde_yaml::Error },
    /// The object is of a different kind, or has unknown fields.
    #[error("{path} is no CinderCSIDriver of csi.openstack.org/v1beta1: {source}", path = path.display())]
    Decode { path: PathBuf, source: serde_json::Error },
    /// The spec is valid YAML but cannot be rendered.
    #[error("{}", sentences(.0))]
    Resolve(Vec<Problem>),
    #[error(transparent)]
    Operand(#[from] RenderError),
    #[error("write YAML: {0}")]
    Encode(#[from] serde_json::Error),
    /// The output is closed.
    #[error("print: {0}")]
    Print(#[from] io::Error),
}

/// Prints the CustomResourceDefinition.
pub fn crd(out: &mut impl Write) -> Result<(), RenderCommandError> {
    out.write_all(to_yaml(&cinder_csi_crds::crd())?.as_bytes())?;
    Ok(())
}

/// Prints the objects for the CinderCSIDriver in a file.
pub fn render(args: &RenderArgs, out: &mut impl Write) -> Result<(), RenderCommandError> {
    let driver = read_driver(&args.file)?;
    let credentials = read_credentials(args)?;
    let environment = Environment {
        namespace: namespace_of(&driver, &args.namespace).to_owned(),
        operator_version: VERSION.into(),
        kubernetes_version: args.kubernetes_version,
        cluster_uid: Some(args.cluster_uid.clone()),
        nodes: args.nodes,
        apis: args.apis(),
        default_classes: Vec::new(),
        snapshot_controller: ControllerSight::Unseen,
        snapshot_contents: cinder_operator_core::cluster::SnapshotContents::default(),
        silent_clouds: std::collections::BTreeSet::new(),
        zoned_volumes: 0,
        records: std::collections::BTreeMap::new(),
        definition_mismatch: None,
        now: Sources::system().now(),
        clouds: std::collections::BTreeMap::new(),
        images: args.images.0.clone(),
        restrictions: cinder_operator_core::restrictions::Restrictions::default(),
        other_drivers: Vec::new(),
    };
    let resolved = resolve(&driver, &environment).map_err(RenderCommandError::Resolve)?;
    print_all(&operands(&resolved, credentials.as_ref())?, out)
}

/// Prints objects as one YAML stream.
fn print_all(operands: &[Operand], out: &mut impl Write) -> Result<(), RenderCommandError> {
    for operand in operands {
        writeln!(out, "---")?;
        out.write_all(to_yaml(&operand.object)?.as_bytes())?;
    }
    Ok(())
}

/// Reads the CinderCSIDriver in a file of YAML or JSON; `-` is standard input.
pub fn read_driver(path: &Path) -> Result<CinderCSIDriver, RenderCommandError> {
    let text = read(path)?;
    let value: Value = serde_yaml::from_str(&text).map_err(|source| RenderCommandError::Parse {
        path: path.into(),
        source,
    })?;
    let decode = |source| RenderCommandError::Decode {
        path: path.into(),
        source,
    };
    let (api_version, kind) = (&value["apiVersion"], &value["kind"]);
    if api_version != "csi.openstack.org/v1beta1" || kind != "CinderCSIDriver" {
        return Err(decode(serde::de::Error::custom(format!(
            "it is {kind} of {api_version}"
        ))));
    }
    serde_json::from_value(value).map_err(decode)
}

fn read_credentials(args: &RenderArgs) -> Result<Option<DriverCredentials>, RenderCommandError> {
    let Some(path) = &args.cloud_conf else { return Ok(None) };
    let cloud_conf = read(path)?.into();
    let ca_pem = args.ca_bundle.as_deref().map(read).transpose()?;
    Ok(Some(DriverCredentials::new(cloud_conf, ca_pem)))
}

fn read(path: &Path) -> Result<String, RenderCommandError> {
    let read = if path == Path::new("-") {
        read_bounded(io::stdin().lock())
    } else {
        File::open(path).and_then(read_bounded)
    };
    read.map_err(|source| RenderCommandError::Read {
        path: path.into(),
        source,
    })
}

/// Reads a file or a pipe to its end.
fn read_bounded(input: impl Read) -> io::Result<String> {
    let mut text = String::new();
    input.take(LARGEST_INPUT + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_INPUT {
        return Err(io::Error::other(format!("it is larger than {LARGEST_INPUT} bytes")));
    }
    Ok(text)
}

fn sentences(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|problem| problem.message.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser;

    use super::{crd, render};
    use crate::args::{Args, Command};

    fn mk_args(words: &[&str]) -> crate::args::RenderArgs {
        let words = ["cinder-csi-operator", "render"].iter().chain(words);
        match Args::try_parse_from(words).unwrap().command {
            Command::Render(args) => args,
            other => panic!("not render: {other:?}"),
        }
    }

    fn sample(name: &str) -> String {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../config/samples")
            .join(name)
            .display()
            .to_string()
    }

    #[test]
    fn sample_is_rendered_without_a_cluster() {
        let mut out = Vec::new();

        render(&mk_args(&[&sample("cindercsidriver.yaml")]), &mut out).unwrap();

        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("kind: DaemonSet\n") && text.contains("name: cinder-retain\n"),
            "{text}"
        );
        assert!(!text.contains("kind: Secret\n"), "{text}");
    }

    #[test]
    fn sidecars_depend_on_kubernetes_version() {
        let resizer = |words: &[&str]| {
            let mut out = Vec::new();
            let file = sample("cindercsidriver.yaml");
            let mut all = vec![file.as_str()];
            all.extend_from_slice(words);
            render(&mk_args(&all), &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let image = text.lines().find(|line| line.contains("sig-storage/csi-resizer:"));
            image.unwrap().trim().to_owned()
        };

        assert!(resizer(&["--kubernetes-version", "1.33"]).contains(":v1."));
        assert_eq!(resizer(&["--kubernetes-version", "1.37"]), resizer(&[]));
    }

    #[test]
    fn version_without_minor_is_rejected() {
        let words = ["cinder-csi-operator", "render", "-", "--kubernetes-version", "1"];
        let error = Args::try_parse_from(words).unwrap_err();
        assert!(error.to_string().contains("as in 1.33"), "{error}");
    }

    #[test]
    fn object_of_wrong_kind_is_rejected() {
        let error = render(&mk_args(&[&sample("openstack-credentials.yaml")]), &mut Vec::new()).unwrap_err();

        let text = error.to_string();
        assert!(
            text.contains("openstack-credentials.yaml") && text.contains("\"Secret\""),
            "{text}"
        );
    }

    #[test]
    fn endless_input_is_rejected() {
        let mut out = Vec::new();
        let error = render(&mk_args(&["/dev/zero"]), &mut out).unwrap_err();
        assert_eq!(error.to_string(), "read /dev/zero: it is larger than 2097152 bytes");
        assert!(out.is_empty());
    }

    #[test]
    fn error_names_missing_file() {
        let error = render(&mk_args(&["/nowhere/driver.yaml"]), &mut Vec::new()).unwrap_err();

        assert!(error.to_string().contains("/nowhere/driver.yaml"), "{error}");
    }

    #[test]
    fn printed_crd_is_valid_yaml() {
        let mut out = Vec::new();

        crd(&mut out).unwrap();

        assert!(
            String::from_utf8(out)
                .unwrap()
                .contains("kind: CustomResourceDefinition\n")
        );
    }
}
