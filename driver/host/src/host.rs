// SPDX-License-Identifier: Apache-2.0
//! The machine, as all modules of this crate see it.

use std::sync::Arc;

use super::filesystem::FsType;
use super::machine::{Linux, Machine};
use super::paths::HostPaths;
use super::tool::Tools;

/// This machine. Cheap to clone; all clones share the bookkeeping of hung calls.
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
    /// A host seen through `paths`, with the distribution's tools from `PATH`.
    pub fn new(paths: HostPaths) -> Self {
        Self::with_tools(paths, Tools::default())
    }

    /// The same with tools named one by one.
    pub fn with_tools(paths: HostPaths, tools: Tools) -> Self {
        Self::on(Arc::new(Linux::default()), paths, tools)
    }

    /// The same on another machine than the one that this process runs on.
    pub fn on(machine: Arc<dyn Machine>, paths: HostPaths, tools: Tools) -> Self {
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

    /// The same, which makes this file system where none is asked for.
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

    /// The paths that this host is seen through.
    pub fn paths(&self) -> &HostPaths {
        &self.inner.paths
    }
}
