// SPDX-License-Identifier: Apache-2.0
//! Checks that a node has no remains when no pod uses a volume.

use std::path::Path;

use super::SimMachine;
use super::state::{Opener, State};

/// Names of paths that a call creates: staging paths, targets, and temporary bind targets.
const PLACES: [&str; 2] = ["globalmount", "mount"];
const DRAFT: &str = ".preparing";
/// Directory of raw devices, where names are ids.
const DEVICES: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices";

impl SimMachine {
    /// Lists the driver's remains.
    pub fn leftovers(&self) -> Vec<String> {
        let state = self.node.state();
        let mounts = state
            .mounts
            .iter()
            .map(|mount| format!("a mount at {}", mount.target.display()));
        let held = state
            .held
            .iter()
            .map(|(path, ..)| format!("an open file below {}", path.display()));
        let openings = state.openings.values().filter(|opening| opening.by != Opener::Agent);
        let openings = openings.map(|opening| format!("a device that {:?} has open", opening.by));
        let superblocks = state.superblocks.values().filter(|found| !found.is_elsewhere());
        let superblocks = superblocks.map(|found| format!("a superblock of {}", found.source.display()));
        let programs = (!state.programs.is_empty()).then(|| format!("{} programs", state.programs.len()));
        let calls = (state.calls > 0).then(|| format!("{} system calls", state.calls));
        let places = state.places().map(|path| format!("{}", path.display()));
        let uses = mounts.chain(held).chain(openings).chain(superblocks);
        uses.chain(programs).chain(calls).chain(places).collect()
    }
}

impl State {
    fn places(&self) -> impl Iterator<Item = &Path> {
        let is_place = |path: &&Path| {
            let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            PLACES.contains(&&*name) || name.ends_with(DRAFT) || self.tree.get(*path) == Some(&false)
        };
        let is_device = |path: &&Path| path.parent() == Some(&Path::new(DEVICES).join("staging"));
        let paths = self.tree.keys().map(std::path::PathBuf::as_path);
        paths.filter(move |path| is_place(path) || is_device(path))
    }
}
