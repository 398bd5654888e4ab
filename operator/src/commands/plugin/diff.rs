// SPDX-License-Identifier: Apache-2.0
//! `diff` of the plugin: what the operator that runs in the cluster would change.

mod report;

use std::path::Path;

use cinder_csi_crds::CinderCSIDriver;
use cinder_operator_core::releases::{Component, InstalledImages};
use clap::Parser as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;

use super::{PluginError, drivers};
use crate::{
    args::{Args, Command},
    commands::render::read_driver,
    kubernetes::{GuardedApi, answer},
};

pub(crate) use report::report;
pub use report::{DiffError, DiffReport};

/// Name of the operator's Deployment.
const OPERATOR: &str = "cinder-csi-operator";

/// Compares drivers with the cluster: that of a file, that of a name, or all.
pub(super) async fn reports(
    client: &Client,
    name: Option<&str>,
    file: Option<&Path>,
    namespace: &str,
) -> Result<Vec<DiffReport>, PluginError> {
    let drivers: Vec<CinderCSIDriver> = match file {
        Some(file) => vec![read_driver(file).map_err(DiffError::File)?],
        None => drivers(client, name).await?,
    };
    let deployments: GuardedApi<Deployment> = GuardedApi::namespaced(client.clone(), namespace);
    let (images, note) = match deployments.get_opt(OPERATOR).await {
        Ok(Some(operator)) => (installed(&operator), None),
        Ok(None) => (InstalledImages::default(), Some("it does not exist".to_owned())),
        Err(error) => (InstalledImages::default(), Some(answer(&error))),
    };
    let mut reports = Vec::new();
    for driver in drivers {
        let mut report = Box::pin(report(client, driver, namespace, images.clone())).await?;
        report.notes.extend(note.as_ref().map(|why| {
            format!(
                "which images the operator was given is not known, because Deployment {namespace}/{OPERATOR} cannot be read: {why}; \
                 --operator-namespace says where it is"
            )
        }));
        reports.push(report);
    }
    Ok(reports)
}

/// The images that an operator was given: by its environment, and by its flags, which count more.
fn installed(operator: &Deployment) -> InstalledImages {
    let pod = operator.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers = pod.map(|pod| pod.containers.as_slice()).unwrap_or_default();
    let variables = containers.iter().flat_map(|container| container.env.iter().flatten());
    let by_environment = variables.filter_map(|variable| {
        let component = Component::ALL
            .into_iter()
            .find(|component| component.variable() == variable.name)?;
        let image = variable.value.clone().filter(|image| !image.is_empty())?;
        Some((component, image))
    });
    let by_flags = containers.iter().filter_map(|container| {
        let words = container.args.iter().flatten().map(String::as_str);
        match Args::try_parse_from(std::iter::once(OPERATOR).chain(words))
            .ok()?
            .command
        {
            Command::Run(run) => Some(run.images.installed()),
            _ => None,
        }
    });
    let by_flags: Vec<_> = by_flags.collect();
    let by_flags = by_flags.iter().flat_map(|images| {
        let named = Component::ALL.into_iter();
        named.filter_map(|component| Some((component, images.get(component)?.to_owned())))
    });
    by_environment.chain(by_flags).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_images_are_those_that_the_operator_was_given_and_flags_count_more() {
        let env = json!([{"name": "RELATED_IMAGE_DRIVER", "value": "site/driver:1"},
            {"name": "RELATED_IMAGE_RESIZER", "value": "site/resizer:1"}, {"name": "RELATED_IMAGE_ATTACHER", "value": ""},
            {"name": "OTHER", "value": "x"}]);
        let container = json!({"name": "operator", "args": ["run", "--driver-image=flag/driver:2"], "env": env});
        let operator = json!({"spec": {"selector": {}, "template": {"spec": {"containers": [container]}}}});
        let operator = serde_json::from_value(operator).expect("a Deployment");

        let images = installed(&operator);

        assert_eq!(images.get(Component::Driver), Some("flag/driver:2"));
        assert_eq!(images.get(Component::Resizer), Some("site/resizer:1"));
        assert_eq!(images.get(Component::Attacher), None);
    }
}
