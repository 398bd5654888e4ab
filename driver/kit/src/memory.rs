// SPDX-License-Identifier: Apache-2.0
//! Protects the memory of a process that has credentials.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Excludes the memory of this process from core dumps, and prevents unprivileged processes from attaching to it.
///
/// Child processes write no core file either. With a pipe in `core_pattern`, the kernel still dumps them; they have no
/// credentials.
pub fn protect() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    // With a pipe in `core_pattern`, the kernel ignores a limit of 0 bytes.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
