// SPDX-License-Identifier: Apache-2.0
//! Runs the driver under faults and kills, on a node with reboots and with disks that are attached and detached.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tokio::task::JoinSet;

use super::*;

/// Number of runs; each takes some tenths of a second.
const SEEDS: u64 = 10;

/// State that a run of one seed shares.
#[derive(Debug, Clone)]
struct Run {
    machine: SimMachine,
    began: Instant,
    /// Log of events and their times.
    lines: Arc<Mutex<Vec<String>>>,
    /// Volumes and keys that pods have written.
    written: Arc<Mutex<BTreeSet<(String, u64)>>>,
}

impl Run {
    fn note(&self, line: &str) {
        lock(&self.lines).push(format!("{:?} {line}", self.began.elapsed()));
    }

    /// Formats, mounts, uses and unmounts a volume, as the driver and a pod do.
    async fn life(self, host: Host, volume_id: String, round: u64) {
        let place = PathBuf::from(format!("{STAGING}-{volume_id}"));
        let staged = async {
            let device = host
                .find_device(&volume_id, Some(GIB), Duration::from_secs(5))
                .await
                .ok()?;
            let _held = host.pin(&device).await.ok()?;
            let made = host
                .prepare_filesystem(&device, FilesystemRequest::default())
                .await
                .ok()?;
            host.create_place(&place, MountPointKind::Directory, 0o750).await.ok()?;
            let options = MountOptions::default();
            host.mount(&device, &place, made.fs_type, &options).await.ok()
        };
        let staged = staged.await;
        if self.machine.write(&place, round).is_ok() {
            lock(&self.written).insert((volume_id.clone(), round));
        }
        let unmounted = host.unmount(&place).await;
        self.note(&format!("{volume_id} {staged:?} {unmounted:?}"));
    }
}

/// Runs one seed; returns the log of events.
async fn history(seed: u64) -> Vec<String> {
    let violations = Violations::default();
    let run = Run {
        machine: node("node-1", seed, &violations),
        began: Instant::now(),
        lines: Arc::default(),
        written: Arc::default(),
    };
    let machine = &run.machine;
    machine.set_faults(Faults {
        hang: 5_000,
        hang_limit: Duration::from_mins(3),
        io_error: 10_000,
        unmount_busy: 200_000,
        slow_udev: 200_000,
        missing_link: 100_000,
        stale_link: 100_000,
        mkfs_fails: 300_000,
        late_size: 300_000,
        fsck_fails: 100_000,
        ..Faults::default()
    });
    let media: BTreeMap<String, Arc<Medium>> = (0..3)
        .map(|index| (format!("{index}{}", &VOLUME[1..]), Medium::blank()))
        .collect();
    let sources = machine.node.sources.clone();
    for round in 0..8 {
        for (volume_id, medium) in &media {
            machine.plug(volume_id, medium.clone(), GIB);
        }
        let host = host(machine);
        let mut lives = JoinSet::new();
        for volume_id in media.keys() {
            lives.spawn(run.clone().life(host.clone(), volume_id.clone(), round));
        }
        let patience = Duration::from_millis(sources.random() % 20_000);
        let end = sources.random() % 4;
        if end == 0 {
            while lives.join_next().await.is_some() {}
            continue;
        }
        sleep(patience).await;
        run.note(&format!("end {end}"));
        match end {
            1 => machine.kill_process(),
            2 => machine.reboot(),
            _ => media.keys().for_each(|volume_id| machine.unplug(volume_id)),
        }
        lives.shutdown().await;
        for volume_id in media.keys() {
            machine.unplug(volume_id);
        }
    }
    assert_eq!(violations.list(), []);

    machine.set_faults(Faults::default());
    machine.reboot();
    for (volume_id, medium) in &media {
        machine.plug(volume_id, medium.clone(), GIB);
        let of = |(of, key): &(String, u64)| (of == volume_id).then_some(*key);
        let expected: BTreeSet<u64> = lock(&run.written).iter().filter_map(of).collect();
        let host = host(machine);
        let device = find(&host, volume_id).await;
        let made = host.prepare_filesystem(&device, FilesystemRequest::default()).await;
        let fs_type = made.expect("it is ready in the end").fs_type;
        mount(&host, volume_id, STAGING, fs_type).await.expect("it is mounted");
        let read = machine.read(Path::new(STAGING)).expect("it answers");
        assert_eq!(read, expected, "nothing is lost of {volume_id}");
        host.unmount(Path::new(STAGING)).await.expect("no pod has it open");
    }
    lock(&run.lines).clone()
}

#[tokio::test(start_paused = true)]
async fn random_histories_lose_nothing_and_repeat() {
    for seed in 0..SEEDS {
        let first = history(seed).await;
        assert_eq!(first, history(seed).await);
        assert_ne!(first, history(seed + 100_000).await);
    }
}
