// SPDX-License-Identifier: Apache-2.0
//! Memory of a process that holds credentials.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Keeps the memory of this process out of core dumps, and from processes that could attach to it without privileges.
///
/// Programs that it starts write no core dump either.
pub fn protect() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    // A kernel with a program for core dumps (`core_pattern` with a pipe) ignores a limit of 0 bytes.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
