// SPDX-License-Identifier: Apache-2.0
//! Writes the CustomResourceDefinition into the file beside this crate, or checks that it is there (`--check`).

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use cinder_csi_crds::{GROUP, PLURAL, crd, to_yaml};

fn main() -> ExitCode {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{PLURAL}.{GROUP}.yaml"));
    let check = env::args().skip(1).any(|argument| argument == "--check");
    match generate(&path, check) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("{} is not what the types say: run `make crds`", path.display());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// Whether the file is now as the types want it.
fn generate(path: &Path, check: bool) -> io::Result<bool> {
    let yaml = to_yaml(&crd())?;
    if check {
        return Ok(fs::read_to_string(path)? == yaml);
    }
    fs::write(path, yaml)?;
    Ok(true)
}
