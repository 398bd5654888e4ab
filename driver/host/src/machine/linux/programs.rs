// SPDX-License-Identifier: Apache-2.0
//! Runs programs as child processes, without a shell.
// The parent module allows disallowed methods. This module must not read output without a limit.
#![warn(clippy::disallowed_methods)]

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::Access;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::confinement;
use crate::tool::{MORE_PATH, TimeUp, ToolError, ToolExit, ToolOutput, ToolTask, tool_name};

/// Bytes that one call reads from a pipe: the whole buffer of the pipe.
const READ_AT_ONCE: usize = 64 << 10;

/// Runs `tool` with `args` and then `device` as its last argument. `launcher` confines it first.
///
/// Dropping the future ends the program, or lets it continue: see [`ToolTask::time_up`].
pub(super) async fn run(
    launcher: Option<&Path>,
    tool: &Path,
    args: &[&str],
    device: &Path,
    limit: Duration,
    task: ToolTask,
) -> Result<ToolExit, ToolError> {
    let time_up = task.time_up();
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(OsString::from(MORE_PATH));
    // Resolves the program itself. For a bare name with a changed PATH, the standard library would copy this whole
    // process at each start.
    let program = find_program(tool, &path).ok_or_else(|| ToolError::Missing { tool: tool_name(tool) })?;
    let command = match launcher {
        Some(launcher) => confinement::confined_command(launcher, task, &program, device),
        None => process::Command::new(&program),
    };
    let child = Command::from(command)
        .args(args)
        .arg(device)
        // Excludes the variables of this process, which may be secret or configure the program.
        .env_clear()
        .env("PATH", path)
        // The messages are for administrators, who search for them. No code matches them.
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(time_up == TimeUp::Kill)
        .spawn()
        .map_err(|source| not_started(tool, source))?;
    let left_running = time_up == TimeUp::LeaveRunning;
    let ended = if left_running {
        // Runs in a task, which outlives this future. A pipe without a reader would end the program at its next write.
        let ended = async {
            tokio::spawn(finish(child))
                .await
                .unwrap_or_else(|lost| Err(io::Error::other(lost)))
        };
        timeout(limit, ended).await
    } else {
        timeout(limit, finish(child)).await
    };
    let (status, stdout, stderr) = ended
        .map_err(|_| ToolError::TimedOut {
            tool: tool_name(tool),
            device: device.to_owned(),
            limit,
            left_running,
        })?
        .map_err(|source| not_started(tool, source))?;
    if launcher.is_some() && confinement::has_failed(status.code()) {
        return Err(not_started(tool, io::Error::other(stderr.message())));
    }
    Ok(ToolExit {
        code: status.code(),
        how: status.to_string(),
        stdout,
        stderr,
    })
}

fn not_started(tool: &Path, source: io::Error) -> ToolError {
    let tool = tool_name(tool);
    ToolError::Start { tool, source }
}

/// Waits for the end of a program. Drains both pipes at the same time, so that the program never blocks on one of them.
async fn finish(mut child: Child) -> io::Result<(ExitStatus, ToolOutput, ToolOutput)> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    tokio::try_join!(child.wait(), drain(stdout), drain(stderr))
}

/// Reads a pipe to its end, in bounded memory.
async fn drain(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<ToolOutput> {
    let mut output = ToolOutput::default();
    let Some(mut pipe) = pipe else { return Ok(output) };
    let mut buffer = vec![0; READ_AT_ONCE];
    loop {
        let length = pipe.read(&mut buffer).await?;
        if length == 0 {
            return Ok(output);
        }
        output.push(buffer.get(..length).unwrap_or_default());
    }
}

/// Returns the first executable file of this name in a search path. A name with a directory is the program itself.
#[expect(clippy::disallowed_methods, reason = "programs are part of the machine")]
fn find_program(tool: &Path, path: &OsStr) -> Option<PathBuf> {
    if tool.components().count() != 1 {
        return tool.exists().then(|| tool.to_owned());
    }
    let is_program = |path: &PathBuf| rustix::fs::access(path, Access::EXEC_OK).is_ok() && path.is_file();
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(tool))
        .find(is_program)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests create programs as files")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rstest::rstest;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn missing_program_error_names_remedy() {
        let error = run(
            None,
            Path::new("mkfs.nothing"),
            &[],
            Path::new("/dev/null"),
            LIMIT,
            ToolTask::Probe,
        )
        .await
        .expect_err("it does not exist");
        assert!(matches!(&error, ToolError::Missing { tool } if tool == "mkfs.nothing"));
        assert!(
            error.to_string().contains("not installed in the driver's image"),
            "{error}"
        );
    }

    /// `timeout` returns the exit status of a failed launcher, and rejects the first argument of a launcher.
    #[rstest]
    #[case("timeout", "invalid time interval")]
    #[case("/nonexistent/launcher", "No such file or directory")]
    #[tokio::test]
    async fn failed_launcher_is_a_start_error(#[case] launcher: &str, #[case] reason: &str) {
        let (launcher, device) = (Some(Path::new(launcher)), Path::new("/dev/null"));
        let ended = run(launcher, Path::new("ls"), &[], device, LIMIT, ToolTask::Probe).await;
        let error = ended.expect_err("ls was not started");
        let ToolError::Start { tool, source } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(tool, "ls");
        assert!(source.to_string().contains(reason), "{source}");
    }

    #[test]
    fn resolves_bare_name_to_executable_file() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (plain, good) = (dir.path().join("plain"), dir.path().join("good"));
        for (directory, mode) in [(&plain, 0o644), (&good, 0o755)] {
            std::fs::create_dir(directory).expect("a directory");
            std::fs::write(directory.join("mkfs.x"), "").expect("a file");
            std::fs::set_permissions(directory.join("mkfs.x"), PermissionsExt::from_mode(mode)).expect("a mode");
        }
        let path = std::env::join_paths([Path::new("relative"), &plain, &good]).expect("a search path");
        assert_eq!(find_program(Path::new("mkfs.x"), &path), Some(good.join("mkfs.x")));
        assert_eq!(find_program(Path::new("mkfs.y"), &path), None);
        assert_eq!(find_program(&good.join("mkfs.x"), &path), Some(good.join("mkfs.x")));
    }

    #[tokio::test]
    async fn failure_includes_output_of_program() {
        let ended = run(
            None,
            Path::new("ls"),
            &["-d"],
            Path::new("/nonexistent"),
            LIMIT,
            ToolTask::Probe,
        )
        .await
        .expect("ls runs");
        assert_eq!(ended.code, Some(2));
        let error = ended.failed(Path::new("ls"), Path::new("/nonexistent"));
        assert!(error.to_string().contains("No such file or directory"), "{error}");
    }

    #[tokio::test]
    async fn writing_program_continues_after_timeout() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let done = dir.path().join("done");
        let script = r#"while ! [ -e "$0.go" ]; do sleep 0.01; done; echo said; echo more; : > "$0""#;
        let error = run(
            None,
            Path::new("sh"),
            &["-c", script],
            &done,
            Duration::from_millis(50),
            ToolTask::Check,
        )
        .await
        .expect_err("it waits");
        assert!(
            matches!(error, ToolError::TimedOut { left_running: true, .. }),
            "{error}"
        );
        std::fs::write(dir.path().join("done.go"), "").expect("a file");
        let ends = async {
            while !done.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, ends).await.expect("it comes to its end");
    }

    #[tokio::test]
    async fn reading_program_is_killed_after_timeout() {
        let error = run(
            None,
            Path::new("sleep"),
            &[],
            Path::new("1000"),
            Duration::from_millis(50),
            ToolTask::Probe,
        )
        .await
        .expect_err("it sleeps");
        assert!(matches!(
            error,
            ToolError::TimedOut {
                left_running: false,
                ..
            }
        ));
    }
}
