// SPDX-License-Identifier: Apache-2.0
//! The machine, as all modules of this crate see it.

use std::sync::Arc;

use super::filesystem::FsType;
use super::machine::{Linux, Machine};
use super::paths::HostPaths;
use super::tool::Tools;

/// A machine with its disks and mounts. Cheap to clone; all clones share the record of hung calls.
#[derive(Debug, Clone)]
pub struct Host {
    pub(crate) inner: Arc<Inner>,
    pub(crate) default_fs_type: FsType,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) paths: HostPaths,
    pub(crate) tools: Tools,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) calls: super::offload::Calls,
    pub(crate) stale_links: super::device::StaleLinks,
}

impl Host {
    /// Creates a host that uses `paths` and the tools that `PATH` contains.
    pub fn new(paths: HostPaths) -> Self {
        Self::with_tools(paths, Tools::default())
    }

    /// Creates a host that uses `paths` and the named `tools`.
    pub fn with_tools(paths: HostPaths, tools: Tools) -> Self {
        Self::with_machine(Arc::new(Linux::default()), paths, tools)
    }

    /// Creates a host that uses `machine` instead of the machine that runs this process.
    pub fn with_machine(machine: Arc<dyn Machine>, paths: HostPaths, tools: Tools) -> Self {
        Self {
            inner: Arc::new(Inner {
                paths,
                tools,
                calls: super::offload::Calls::on(machine.clone()),
                machine,
                stale_links: super::device::StaleLinks::default(),
            }),
            default_fs_type: FsType::default(),
        }
    }

    /// Sets the file system of empty volumes for requests that name no type.
    #[must_use]
    pub fn with_default_fs_type(self, default_fs_type: FsType) -> Self {
        Self {
            default_fs_type,
            ..self
        }
    }

    pub(crate) fn machine(&self) -> &dyn Machine {
        &*self.inner.machine
    }

    pub fn paths(&self) -> &HostPaths {
        &self.inner.paths
    }
}
