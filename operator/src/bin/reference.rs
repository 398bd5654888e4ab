// SPDX-License-Identifier: Apache-2.0
//! Writes what is made from the operator's own words, or checks that it is there (`--check`): the pages of `docs/reference`
//! and the alerts about the operator in `config/monitoring`.

use std::{env, fs, io, path::Path, process::ExitCode};

use cinder_csi_operator::commands::reference::pages;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let check = env::args().skip(1).any(|argument| argument == "--check");
    let pages = match pages() {
        Ok(pages) => pages,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut result = ExitCode::SUCCESS;
    for (name, text) in pages {
        let path = root.join(name);
        let done = if check {
            fs::read_to_string(&path).map(|there| there == text)
        } else {
            write(&path, &text).map(|()| true)
        };
        match done {
            Ok(true) => {}
            Ok(false) => {
                eprintln!("{name} is not what the code says: run `make reference`");
                result = ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("{name}: {error}");
                result = ExitCode::FAILURE;
            }
        }
    }
    result
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text)
}
