// SPDX-License-Identifier: Apache-2.0
//! A run: the directory with all files of a cluster, and its reliable removal.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::tools::workspace_root;

const KEEPER: &str = include_str!("scripts/keeper.sh");
const TEARDOWN: &str = include_str!("scripts/teardown.sh");
const OWNER: &str = "owner";

/// Number of bytes reserved for socket paths below the run's directory. The path of a unix socket has at most 107
/// bytes.
const ROOM_FOR_SOCKETS: usize = 60;

/// Limit for the lock of all runs, which is locked while one directory is created or removed.
const LOCK_TIMEOUT: Duration = Duration::from_mins(1);

/// The directory of a cluster, and the keeper process that removes everything when this process ends.
#[derive(Debug)]
pub(crate) struct Run {
    directory: PathBuf,
    logs: PathBuf,
    keeper: Child,
    pipe: Option<ChildStdin>,
    released: bool,
}

impl Run {
    /// Creates the directory of a new run and starts its keeper.
    pub(crate) fn begin() -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "a cluster needs root: namespaces, mounts and loop devices are made. Run the same command as root"
        );
        let base = base_directory()?;
        fs::create_dir_all(&base).with_context(|| format!("cannot make {}", base.display()))?;
        let id = format!("cc{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let directory = base.join(&id);
        fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let logs = logs_directory().join(&id);
        fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
        fs::write(directory.join(OWNER), process_identity(std::process::id())?)
            .with_context(|| format!("cannot write in {}", directory.display()))?;
        make_dev_disk(&base)?;

        let keeper_log = fs::File::create(logs.join("keeper.log")).context("cannot make the keeper's log")?;
        let mut keeper = std::process::Command::new("sh")
            .args(["-c", KEEPER, "keeper", TEARDOWN])
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(keeper_log)
            .process_group_of_its_own()
            .spawn()
            .context("cannot start the process that cleans up after this one")?;
        let pipe = keeper.stdin.take();
        Ok(Self {
            directory,
            logs,
            keeper,
            pipe,
            released: false,
        })
    }

    /// Returns the directory of this run, which is deleted at the end.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the name of this run, unique on this machine.
    pub(crate) fn id(&self) -> String {
        self.directory
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// Returns the log directory of this run, which remains afterwards.
    pub(crate) fn logs(&self) -> &Path {
        &self.logs
    }

    /// Detaches the run from this process; `harness down` removes it.
    pub(crate) fn detach_run(mut self) -> Result<DetachedRun> {
        fs::remove_file(self.directory.join(OWNER)).context("cannot give the run up")?;
        self.release();
        Ok(DetachedRun {
            directory: self.directory.clone(),
        })
    }

    /// Removes everything of this run. Fails if something remains.
    pub(crate) fn end(mut self) -> Result<()> {
        let removed = tear_down(&self.directory);
        self.release();
        removed
    }

    fn release(&mut self) {
        self.released = true;
        if let Some(mut pipe) = self.pipe.take() {
            // The keeper may have ended already.
            drop(pipe.write_all(b"release\n"));
        }
        drop(self.keeper.wait());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        if let Err(error) = tear_down(&self.directory) {
            eprintln!("harness: {error:#}");
        }
        self.release();
    }
}

/// A run without an owner process.
#[derive(Debug)]
pub struct DetachedRun {
    directory: PathBuf,
}

impl DetachedRun {
    /// Returns the directory of the run.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Returns every run on this machine, and whether its owner process lives.
pub fn find_runs() -> Result<Vec<(DetachedRun, bool)>> {
    let base = base_directory()?;
    let mut runs = Vec::new();
    let entries = match fs::read_dir(&base) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(runs),
        Err(error) => return Err(error).with_context(|| format!("cannot list {}", base.display())),
    };
    for entry in entries {
        let directory = entry.with_context(|| format!("cannot list {}", base.display()))?.path();
        if directory.is_dir() {
            let owned = owner_lives(&directory);
            runs.push((DetachedRun { directory }, owned));
        }
    }
    Ok(runs)
}

/// Removes every run without a living owner, including those whose keeper failed. Returns their number.
pub fn clean_up_all() -> Result<usize> {
    let mut failures = Vec::new();
    let mut removed = 0;
    for (run, owned) in find_runs()? {
        if owned {
            continue;
        }
        match tear_down(run.directory()) {
            Ok(()) => removed += 1,
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(removed)
}

fn tear_down(directory: &Path) -> Result<()> {
    // The script limits each of its waits, in total to less than two minutes.
    let output = std::process::Command::new("timeout")
        .args(["--kill-after=5", "150", "sh", "-c", TEARDOWN, "teardown"])
        .arg(directory)
        .stdin(Stdio::null())
        .process_group_of_its_own()
        .output()
        .context("cannot run the script that removes the cluster")?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} could not be removed whole ({}): {}",
            directory.display(),
            output.status,
            message.trim()
        );
    }
    Ok(())
}

/// Returns `HARNESS_DIR`, or `cinder-csi/run` in the cache directory of the tools. It must be on a disk, because it
/// stores containerd's images, and outside of /var and /run, which every node mounts privately.
fn base_directory() -> Result<PathBuf> {
    let base = std::env::var_os("HARNESS_DIR").map_or_else(|| cache_directory().join("run"), PathBuf::from);
    ensure!(
        base.is_absolute(),
        "HARNESS_DIR is {}, which is not an absolute path",
        base.display()
    );
    let base = base.components().collect::<PathBuf>();
    ensure_seen_by_nodes(&base).context("set HARNESS_DIR to a directory elsewhere")?;
    ensure!(
        base.as_os_str().len() + ROOM_FOR_SOCKETS < 107,
        "{} is too long a path for the unix sockets below it. Set HARNESS_DIR to a shorter one",
        base.display()
    );
    Ok(base)
}

/// Fails if the path is below /var or /run, because nodes mount their own.
pub(crate) fn ensure_seen_by_nodes(path: &Path) -> Result<()> {
    let hidden = ["/var", "/run"].iter().any(|place| path.starts_with(place));
    ensure!(
        !hidden,
        "{} is not seen by the nodes, which have a /var and a /run of their own",
        path.display()
    );
    Ok(())
}

/// Returns the cache for expensive files: `cinder-csi` in the user's cache directory.
pub(crate) fn cache_directory() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache");
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .filter(|path| !path.is_empty())
        .map_or_else(home, PathBuf::from);
    cache.join("cinder-csi")
}

/// Returns `HARNESS_LOGS`, or `target/harness` of the workspace.
fn logs_directory() -> PathBuf {
    std::env::var_os("HARNESS_LOGS").map_or_else(|| workspace_root().join("target/harness"), PathBuf::from)
}

/// Identifies a process by id and start time, because ids are reused.
fn process_identity(pid: u32) -> Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("there is no process {pid}"))?;
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let started = after_name
        .split(' ')
        .nth(19)
        .context("/proc/PID/stat has no start time")?;
    Ok(format!("{pid} {started}\n"))
}

fn owner_lives(directory: &Path) -> bool {
    let Ok(owner) = fs::read_to_string(directory.join(OWNER)) else {
        return false;
    };
    let Some(pid) = owner.split(' ').next().and_then(|pid| pid.parse().ok()) else {
        return false;
    };
    process_identity(pid).is_ok_and(|identity| identity == owner)
}

/// Creates /dev/disk on a machine without udev, because nodes mount their own over it. The last run removes it again.
fn make_dev_disk(base: &Path) -> Result<()> {
    let lock = fs::File::create(base.join("lock")).context("cannot make the lock of all runs")?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    while lock.try_lock().is_err() {
        ensure!(
            Instant::now() < deadline,
            "{} stays locked by another run",
            base.join("lock").display()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    match fs::create_dir("/dev/disk") {
        Ok(()) => fs::write(base.join("made-dev-disk"), "").context("cannot note that /dev/disk was made"),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error).context("cannot make /dev/disk"),
    }
}

/// Starts a child in a new process group. A terminal interrupt reaches the whole group, but the harness itself stops
/// its children.
pub(crate) trait OwnProcessGroup {
    fn process_group_of_its_own(&mut self) -> &mut Self;
}

impl OwnProcessGroup for std::process::Command {
    fn process_group_of_its_own(&mut self) -> &mut Self {
        use std::os::unix::process::CommandExt;
        self.process_group(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_identity_includes_start_time() {
        let directory = tempfile::tempdir().unwrap();
        let mine = process_identity(std::process::id()).unwrap();
        fs::write(directory.path().join(OWNER), &mine).unwrap();
        assert!(owner_lives(directory.path()));
        fs::write(directory.path().join(OWNER), format!("{} 1\n", std::process::id())).unwrap();
        assert!(!owner_lives(directory.path()));
    }

    #[test]
    fn rejects_paths_that_nodes_hide() {
        assert!(ensure_seen_by_nodes(Path::new("/root/.cache/x")).is_ok());
        assert!(ensure_seen_by_nodes(Path::new("/variable/x")).is_ok());
        let error = ensure_seen_by_nodes(Path::new("/var/lib/x")).unwrap_err().to_string();
        assert!(error.contains("/var/lib/x"), "{error}");
    }

    #[test]
    fn scripts_are_valid_shell() {
        for script in [KEEPER, TEARDOWN, include_str!("scripts/node.sh")] {
            let status = std::process::Command::new("sh")
                .args(["-n", "-c", script])
                .status()
                .unwrap();
            assert!(status.success(), "{script}");
        }
    }

    #[test]
    fn teardown_of_empty_run_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        tear_down(&directory.path().join("never-made")).unwrap();
    }
}
