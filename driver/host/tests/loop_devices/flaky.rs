// SPDX-License-Identifier: Apache-2.0
//! A disk that can be told to hang or to fail: a loop device on a file whose file system is this process (FUSE).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use csi_host::Device;
use parking_lot::{Condvar, Mutex};
use rustix::mount::MountFlags;
use tokio::sync::Notify;

use crate::lab::Lab;

const EIO: i32 = 5;
const ENOSYS: i32 = 38;
/// The largest write that the kernel may send, and room for its header.
const MOST: usize = 128 << 10;

/// How the disk answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// Reads and writes wait until the mood changes.
    Hanging,
    /// Reads and writes fail.
    Failing,
}

/// The disk's side of things.
#[derive(Debug, Clone)]
pub(crate) struct Flaky {
    mood: Arc<(Mutex<Mood>, Condvar)>,
    asked: Arc<Notify>,
}

impl Flaky {
    pub(crate) fn be(&self, mood: Mood) {
        *self.mood.0.lock() = mood;
        self.mood.1.notify_all();
    }

    /// Ends when somebody reads or writes and is kept waiting.
    pub(crate) async fn keeps_somebody_waiting(&self) {
        self.asked.notified().await;
    }

    /// The mood, once it is not to hang.
    fn settled(&self) -> Mood {
        let mut mood = self.mood.0.lock();
        if *mood == Mood::Hanging {
            self.asked.notify_one();
        }
        self.mood.1.wait_while(&mut mood, |mood| *mood == Mood::Hanging);
        *mood
    }
}

impl Lab {
    /// A disk of `size` bytes that is `volume` and does as it is told.
    pub(crate) async fn flaky(&self, volume: &str, size: u64) -> (Device, Flaky) {
        let backing = self.at(&format!("{volume}.backing"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&backing);
        let file = file.expect("a file");
        file.set_len(size).expect("a sparse file");
        let shown = self.at(&format!("{volume}.fuse"));
        File::create(&shown).expect("a place to mount on");
        let flaky = Flaky {
            mood: Arc::new((Mutex::new(Mood::Well), Condvar::new())),
            asked: Arc::default(),
        };
        serve(&shown, file, size, flaky.clone());
        (self.attach(&shown, volume).await, flaky)
    }
}

/// Mounts a file system whose root is one file, and answers for it until the kernel is done with it.
fn serve(target: &Path, file: File, size: u64, flaky: Flaky) {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = Arc::new(device.expect("the kernel has FUSE"));
    let options = format!(
        "fd={},rootmode=100644,user_id=0,group_id=0,allow_other",
        device.as_raw_fd()
    );
    let options = std::ffi::CString::new(options).expect("no zero byte");
    rustix::mount::mount("flaky", target, "fuse", MountFlags::empty(), options.as_c_str()).expect("it mounts");
    let file = Arc::new(file);
    thread::spawn(move || {
        let mut buffer = vec![0; MOST + 4096];
        while let Ok(length) = (&*device).read(&mut buffer) {
            let request = buffer.get(..length).expect("the kernel's own length").to_vec();
            let (device, file, flaky) = (device.clone(), file.clone(), flaky.clone());
            // Each on its own, so that one that hangs does not keep the others.
            let answer = move || {
                let answer = answer(&request, &file, size, &flaky);
                if let Some(answer) = answer {
                    drop((&*device).write(&answer));
                }
            };
            thread::spawn(answer);
        }
    });
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The answer to one request of the kernel's, as in its header `fuse.h`; some want none.
fn answer(request: &[u8], file: &File, size: u64, flaky: &Flaky) -> Option<Vec<u8>> {
    const HEADER: usize = 40;
    let (operation, unique) = (word(request, 4), number(request, 8));
    let body = &request[HEADER..];
    let result: Result<Vec<u8>, i32> = match operation {
        // FORGET, BATCH_FORGET, INTERRUPT
        2 | 42 | 36 => return None,
        // GETATTR
        3 => Ok([vec![0; 16], attributes(size)].concat()),
        // OPEN: a handle, and no caching
        14 => Ok([&0_u64.to_le_bytes()[..], &1_u32.to_le_bytes(), &[0; 4]].concat()),
        // READ: handle, offset, size
        15 => transfer(flaky, || {
            let mut bytes = vec![0; word(body, 16) as usize];
            file.read_exact_at(&mut bytes, number(body, 8)).map(|()| bytes)
        }),
        // WRITE: the same, and the data after 40 bytes
        16 => transfer(flaky, || {
            let data = &body[40..40 + word(body, 16) as usize];
            file.write_all_at(data, number(body, 8))?;
            Ok([&word(body, 16).to_le_bytes()[..], &[0; 4]].concat())
        }),
        // RELEASE, FSYNC, FLUSH
        18 | 20 | 25 => Ok(Vec::new()),
        // INIT: version 7.31, whatever the kernel says, and none of its options
        26 => {
            let mut init = vec![0; 64];
            init[0..4].copy_from_slice(&7_u32.to_le_bytes());
            init[4..8].copy_from_slice(&31_u32.to_le_bytes());
            init[8..12].copy_from_slice(&word(body, 8).to_le_bytes());
            init[16..18].copy_from_slice(&64_u16.to_le_bytes());
            init[18..20].copy_from_slice(&48_u16.to_le_bytes());
            init[20..24].copy_from_slice(&(128_u32 << 10).to_le_bytes());
            init[24..28].copy_from_slice(&1_u32.to_le_bytes());
            Ok(init)
        }
        _ => Err(ENOSYS),
    };
    let (error, body) = match result {
        Ok(body) => (0, body),
        Err(errno) => (-errno, Vec::new()),
    };
    let length = u32::try_from(16 + body.len()).expect("it is small");
    Some(
        [
            &length.to_le_bytes()[..],
            &error.to_le_bytes(),
            &unique.to_le_bytes(),
            &body,
        ]
        .concat(),
    )
}

fn transfer(flaky: &Flaky, call: impl FnOnce() -> io::Result<Vec<u8>>) -> Result<Vec<u8>, i32> {
    match flaky.settled() {
        Mood::Failing => Err(EIO),
        Mood::Well | Mood::Hanging => call().map_err(|_| EIO),
    }
}

/// `fuse_attr` of a regular file of `size` bytes.
fn attributes(size: u64) -> Vec<u8> {
    let mut attributes = vec![0; 88];
    attributes[0..8].copy_from_slice(&1_u64.to_le_bytes());
    attributes[8..16].copy_from_slice(&size.to_le_bytes());
    attributes[16..24].copy_from_slice(&(size / 512).to_le_bytes());
    attributes[60..64].copy_from_slice(&0o100_644_u32.to_le_bytes());
    attributes[64..68].copy_from_slice(&1_u32.to_le_bytes());
    attributes[80..84].copy_from_slice(&4096_u32.to_le_bytes());
    attributes
}
