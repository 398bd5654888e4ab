// SPDX-License-Identifier: Apache-2.0
//! Renders [`Args`] as a command line.

use std::path::PathBuf;
use std::time::Duration;

use csi_host::FsType;

use super::lists;
use super::values::render_duration;
use super::{Args, CipherSuite, LogFormat, TlsVersion};
use crate::disabled_capabilities::AlphaCapability;
use crate::topology::ZoneLabels;

/// Renders each field that differs from its default as a flag of the same name.
macro_rules! render {
    ($args:ident, $defaults:ident; $($field:ident)*) => {
        [$((stringify!($field), $args.$field.flag_values(), $defaults.$field.flag_values())),*]
    };
}

impl Args {
    /// Returns the flags that differ from the defaults, without the program's name. `--endpoint` is always included.
    ///
    /// [`Args::from_argv`] parses them into an equal value.
    pub fn to_argv(&self) -> Vec<String> {
        let defaults = Self::default();
        let flags = render! {
            self, defaults;
            cloud_config cloud_name project_id with_topology additional_topology cluster http_endpoint health_endpoint
            provide_controller_service provide_node_service pvc_annotations master kubeconfig kube_api_qps kube_api_burst
            min_resync_period user_agent nodeid node_service_no_os_client verbosity vmodule log_flush_frequency driver_name
            instance_id availability_zone metadata_url search_order max_volumes_per_node reserved_volumes default_fs_type
            volume_metadata zone_labels disable_capability protect_other_clusters register unregister kubelet_dir sys_dir dev_dir
            proc_dir log_level log_format request_timeout attach_timeout device_in_use_timeout secure_metrics tls_min_version
            tls_cipher_suites
        };
        let changed = flags.into_iter().filter(|(_, words, defaults)| words != defaults);
        let rendered = changed.flat_map(|(field, words, _)| {
            let flag = match field {
                "verbosity" => "v".to_owned(),
                field => field.replace('_', "-"),
            };
            words
                .into_iter()
                .map(move |word| format!("--{flag}={}", lists::quote(&flag, &word)))
        });
        std::iter::once(format!("--endpoint={}", self.endpoint))
            .chain(rendered)
            .collect()
    }
}

/// Renders a field as the values of its flag.
trait FlagValues {
    fn flag_values(&self) -> Vec<String>;
}

macro_rules! displayed {
    ($($kind:ty)*) => {
        $(impl FlagValues for $kind {
            fn flag_values(&self) -> Vec<String> {
                vec![self.to_string()]
            }
        })*
    };
}

displayed! { bool u8 u32 String FsType ZoneLabels AlphaCapability LogFormat TlsVersion CipherSuite }

impl FlagValues for PathBuf {
    fn flag_values(&self) -> Vec<String> {
        vec![self.display().to_string()]
    }
}

impl FlagValues for Duration {
    fn flag_values(&self) -> Vec<String> {
        vec![render_duration(*self)]
    }
}

impl FlagValues for (String, String) {
    fn flag_values(&self) -> Vec<String> {
        match self {
            // The project of the cloud without a name.
            (key, value) if key.is_empty() => vec![value.clone()],
            (key, value) => vec![format!("{key}={value}")],
        }
    }
}

impl<T: FlagValues> FlagValues for Option<T> {
    fn flag_values(&self) -> Vec<String> {
        self.iter().flat_map(T::flag_values).collect()
    }
}

impl<T: FlagValues> FlagValues for Vec<T> {
    fn flag_values(&self) -> Vec<String> {
        self.iter().flat_map(T::flag_values).collect()
    }
}
