// SPDX-License-Identifier: Apache-2.0
//! The client of the API server, and the drivers of the cluster.

use cinder_csi_crds::CinderCSIDriver;
use cinder_csi_operator::kubernetes::{GuardedApi, connect};
use kube::{
    Client, Config, ResourceExt,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{args::PluginArgs, error::PluginError};

/// Creates a client with the kubeconfig of the command line, or else the one that kubectl uses.
pub(crate) async fn create_client(args: &PluginArgs) -> Result<Client, PluginError> {
    // rustls checks the certificate of the API server. Its provider is chosen once per process.
    drop(rustls::crypto::ring::default_provider().install_default());
    let options = KubeConfigOptions {
        context: args.context.clone(),
        ..KubeConfigOptions::default()
    };
    let config = match &args.kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).map_err(PluginError::configure)?;
            Config::from_custom_kubeconfig(read, &options)
                .await
                .map_err(PluginError::configure)
        }
        None if args.context.is_some() => Config::from_kubeconfig(&options).await.map_err(PluginError::configure),
        // A pod has no kubeconfig; the client then uses the service account of the pod.
        None => Config::infer().await.map_err(PluginError::configure),
    }?;
    connect(config).map_err(PluginError::read("make a client of the API server"))
}

/// Reads the driver with this name, or all drivers in the order of their names.
pub(crate) async fn list_drivers(client: &Client, name: Option<&str>) -> Result<Vec<CinderCSIDriver>, PluginError> {
    let api: GuardedApi<CinderCSIDriver> = GuardedApi::all(client.clone());
    let Some(name) = name else {
        let mut drivers = api
            .list(&ListParams::default())
            .await
            .map_err(PluginError::read("list the CinderCSIDrivers"))?;
        drivers.sort_by_key(ResourceExt::name_any);
        return Ok(drivers);
    };
    let driver = api
        .get_opt(name)
        .await
        .map_err(PluginError::read(format!("read CinderCSIDriver {name}")))?;
    Ok(vec![driver.ok_or_else(|| PluginError::NoDriver(name.to_owned()))?])
}
