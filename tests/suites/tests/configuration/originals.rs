// SPDX-License-Identifier: Apache-2.0
//! Programs that read configurations like the originals: openstacksdk in its own Python environment, and the reader of
//! cinder-csi-plugin.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use serde_json::Value;
use suites::programs::go_program;

/// A program that responds to each line of its input with a line.
pub(crate) struct Reader(Command);

impl Reader {
    pub(crate) fn answers(mut self, queries: Vec<Value>) -> Result<Vec<Value>> {
        let mut child = self.0.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("its input")?;
        let output = child.stdout.take().context("its output")?;
        let count = queries.len();
        let writer = thread::spawn(move || -> std::io::Result<()> {
            for query in queries {
                writeln!(input, "{query}")?;
            }
            Ok(())
        });
        let mut answers = Vec::with_capacity(count);
        for line in BufReader::new(output).lines() {
            answers.push(serde_json::from_str(&line?)?);
        }
        let status = child.wait()?;
        writer.join().ok().context("the writer ended early")??;
        ensure!(
            status.success() && answers.len() == count,
            "the reader ended early ({status})"
        );
        Ok(answers)
    }
}

pub(crate) fn go_reader() -> Result<Reader> {
    Ok(Reader(Command::new(go_program("configuration", "reader")?)))
}

pub(crate) fn sdk_reader() -> Result<Reader> {
    let mut command = Command::new(python()?);
    command.arg("-B").arg(tools().join("sdk.py"));
    Ok(Reader(command))
}

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/configuration")
}

static INSTALLED: Mutex<()> = Mutex::new(());

/// Returns the interpreter of the environment, which is installed once.
fn python() -> Result<PathBuf> {
    let _one_at_a_time = INSTALLED.lock();
    let constraints = fs::read_to_string(tools().join("constraints.txt"))?;
    let mut hasher = DefaultHasher::new();
    constraints.hash(&mut hasher);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let folder = cache.context("HOME is not set")?.join("cinder-csi");
    let target = folder.join(format!("openstacksdk-{:016x}", hasher.finish()));
    let python = target.join("bin/python");
    if target.join("complete").exists() {
        return Ok(python);
    }
    fs::create_dir_all(&folder)?;
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&target))?;
    let mut pip = Command::new(target.join("bin/pip"));
    pip.args(["install", "--quiet", "--progress-bar=off", "--retries=5", "-r"]);
    run(pip
        .arg(tools().join("requirements.txt"))
        .arg("-c")
        .arg(tools().join("constraints.txt")))?;
    fs::write(target.join("complete"), "")?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{command:?} failed ({status})");
    Ok(())
}
