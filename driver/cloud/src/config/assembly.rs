// SPDX-License-Identifier: Apache-2.0
//! Builds the configuration of a cloud from its settings.

use super::keys::Setting;
use super::login::{self, Original};
use super::raw::{FileFormat, Options, PROJECT_NAMES, RawCloud, ReadContext};
use super::{ClientCertificate, CloudConfig, ConfigError, Proxies, ServiceAccess, Services, Tls};

impl RawCloud {
    /// Validates the settings. Errors name `file` and the keys without effect.
    pub(super) fn validate(
        mut self,
        file: &str,
        names: FileFormat,
        original: Original,
        options: Options,
    ) -> Result<CloudConfig, ConfigError> {
        let ignored = std::mem::take(&mut self.ignored);
        let validated = self.validate_all(&ReadContext { file, names }, original, options);
        let mut config = validated.map_err(|error| error.with_ignored(&ignored))?;
        config.warnings = ignored.iter().map(ToString::to_string).collect();
        Ok(config)
    }

    fn validate_all(
        &self,
        context: &ReadContext<'_>,
        original: Original,
        options: Options,
    ) -> Result<CloudConfig, ConfigError> {
        let auth = login::resolve(self, context, original)?;
        let auth_url = self
            .owned(Setting::AuthUrl)
            .ok_or_else(|| context.missing(Setting::AuthUrl, "give the address of Keystone"))?;
        context.check_address(Setting::AuthUrl, &auth_url)?;
        Ok(CloudConfig {
            auth_url,
            auth,
            region: self.owned(Setting::Region),
            interface: self.interface(Setting::Interface).unwrap_or_default(),
            services: self.services(context)?,
            tls: Tls {
                ca_file: self.path(Setting::CaFile),
                ca_pem: self.owned(Setting::CaPem).filter(|_| !self.has(Setting::CaFile)),
                also_public_roots: self.flag(Setting::AlsoPublicRoots).unwrap_or_default(),
                insecure: self.flag(Setting::Insecure).unwrap_or_default(),
                client: self.client(context)?,
                ..Tls::default()
            },
            allow_http_endpoints: self.flag(Setting::AllowHttpEndpoints).unwrap_or_default(),
            block_storage: options.block_storage,
            topology: options.topology,
            metadata: options.metadata,
            proxies: Proxies::default(),
            warnings: Vec::new(),
        })
    }

    fn services(&self, context: &ReadContext<'_>) -> Result<Services, ConfigError> {
        let access = |endpoint, region, interface| -> Result<ServiceAccess, ConfigError> {
            let address = self.owned(endpoint);
            if let Some(address) = &address {
                context.check_address(endpoint, address)?;
                let rest = PROJECT_NAMES
                    .iter()
                    .fold(address.clone(), |rest, name| rest.replace(name, ""));
                if rest.contains("%(") {
                    return Err(context.bad(endpoint, "may have %(project_id)s and no other name in it"));
                }
            }
            Ok(ServiceAccess {
                endpoint: address,
                region: self.owned(region),
                interface: self.interface(interface),
            })
        };
        Ok(Services {
            block_storage: access(
                Setting::BlockStorageEndpoint,
                Setting::BlockStorageRegion,
                Setting::BlockStorageInterface,
            )?,
            compute: access(
                Setting::ComputeEndpoint,
                Setting::ComputeRegion,
                Setting::ComputeInterface,
            )?,
        })
    }

    fn client(&self, context: &ReadContext<'_>) -> Result<Option<ClientCertificate>, ConfigError> {
        match (self.path(Setting::CertFile), self.path(Setting::KeyFile)) {
            (Some(cert_file), Some(key_file)) => Ok(Some(ClientCertificate { cert_file, key_file })),
            (None, None) => Ok(None),
            // The file of the certificate also contains the key: the documented form of openstacksdk.
            (Some(file), None) if matches!(context.names, FileFormat::CloudsYaml) => Ok(Some(ClientCertificate {
                cert_file: file.clone(),
                key_file: file,
            })),
            (Some(_), None) => {
                Err(context.missing(Setting::KeyFile, "it belongs to the certificate; they may be one file"))
            }
            (None, Some(_)) => Err(context.missing(Setting::CertFile, "it belongs to the key; they may be one file")),
        }
    }
}
