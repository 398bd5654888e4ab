// SPDX-License-Identifier: Apache-2.0
//! Runs the commands of `docs/desk.md` in their order. Needs no root.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use harness::{wait_for_some, workspace_root};
use suites::process::Process;
use suites::programs;
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(30);

/// Returns the lines of all blocks of commands, without the prompt.
fn commands() -> Result<Vec<String>> {
    let page = fs::read_to_string(workspace_root().join("docs/desk.md")).context("cannot read docs/desk.md")?;
    let blocks = page.split("```console\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let commands = blocks.flat_map(|block| {
        let block = block.replace("\\\n", " ");
        let lines = block.lines().filter_map(|line| line.trim_start().strip_prefix("$ "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    });
    Ok(commands.collect())
}

/// Returns the built program in place of `cargo run`, with its arguments.
fn program(command: &str, directory: &Path) -> Result<Command> {
    let command = command.replace("$PWD", &directory.to_string_lossy());
    let parts: Vec<&str> = command.split_whitespace().collect();
    let ["cargo", "run", kind, name, "--", arguments @ ..] = parts.as_slice() else {
        bail!("`{command}` does not start with `cargo run`");
    };
    let program = match (*kind, *name) {
        ("--bin", "openstack-sim") => programs::simulator()?,
        ("--bin", "cinder-csi-driver") => programs::driver()?,
        ("--example", example) => programs::example(example)?,
        _ => bail!("`{command}` runs an unknown program"),
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    Ok(command)
}

#[tokio::test]
async fn commands_of_desk_page_work() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join("target").join(name);
    fs::create_dir(path(""))?;
    let mut commands = commands()?.into_iter();
    let mut next = || commands.next().context("docs/desk.md has fewer commands");

    let mut servers = Vec::new();
    for file in ["cloud.conf", "csi.sock"] {
        let mut server = Process::spawn(file, program(&next()?, directory.path())?, &path("log"))?;
        let exists = async || {
            server.check()?;
            Ok(path(file).exists().then_some(()))
        };
        wait_for_some(file, LIMIT, exists).await?;
        servers.push(server);
    }

    let created = run(program(&next()?, directory.path())?).await?;
    let id = created
        .split("volume_id: \"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let id = id.with_context(|| format!("no volume in {created}"))?;
    let listed = run(program(&next()?, directory.path())?).await?;
    ensure!(listed.contains(id), "{listed}");
    let delete = next()?.replace("VOLUME_ID", id);
    run(program(&delete, directory.path())?).await?;
    ensure!(next().is_err(), "docs/desk.md has more commands");
    for server in servers.into_iter().rev() {
        server.stop().await?;
    }
    Ok(())
}

/// Runs a program that must succeed, and returns its output.
async fn run(mut command: Command) -> Result<String> {
    let output = tokio::time::timeout(LIMIT, command.kill_on_drop(true).output()).await??;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {stderr}");
    Ok(String::from_utf8(output.stdout)?)
}
