// SPDX-License-Identifier: Apache-2.0
//! Configuration of clouds: `cloud.conf` in the dialect of the Go driver, or `clouds.yaml`.

mod assembly;
mod assignments;
mod cloud_conf;
mod clouds_yaml;
mod document;
mod error;
mod file;
mod gcfg;
mod ignored;
mod insecurity;
pub mod keys;
mod login;
mod raw;
mod secrets;
mod services;
mod tls;
mod types;
mod unvalidated;
mod write;
mod yaml;

pub use assignments::{Assignment, assignments_of};
pub use error::{ConfigError, FileLocation};
pub use file::{Configuration, credentials_hash};
pub use insecurity::Insecurity;
pub(crate) use raw::PROJECT_NAMES;
pub use services::{Interface, ServiceAccess, Services};
pub use tls::{ClientCertificate, ClientPem, Tls};
pub use types::{
    ApplicationCredential, Auth, BlockStorageOptions, CloudConfig, Domain, MetadataOptions, Project, Proxies,
    TopologyOptions, User,
};
pub use unvalidated::UnvalidatedCloud;
pub use yaml::refuse_yaml;
