// SPDX-License-Identifier: Apache-2.0
//! A disk that hangs or fails on request: a loop device on a file that this process serves through FUSE.

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
/// The largest write that the kernel may send, without its header.
const MOST: usize = 128 << 10;

/// Response of the disk to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Healthy,
    /// Reads and writes wait until the mood changes.
    Hanging,
    /// Reads and writes fail.
    Failing,
}

/// Controls the responses of a disk.
#[derive(Debug, Clone)]
pub(crate) struct Flaky {
    mood: Arc<(Mutex<Mood>, Condvar)>,
    hung: Arc<Notify>,
}

impl Flaky {
    pub(crate) fn set_mood(&self, mood: Mood) {
        *self.mood.0.lock() = mood;
        self.mood.1.notify_all();
    }

    /// Completes when a request to the disk hangs.
    pub(crate) async fn wait_for_hung_request(&self) {
        self.hung.notified().await;
    }

    /// Waits until the mood is not `Hanging`, and returns it.
    fn wait_for_mood(&self) -> Mood {
        let mut mood = self.mood.0.lock();
        if *mood == Mood::Hanging {
            self.hung.notify_one();
        }
        self.mood.1.wait_while(&mut mood, |mood| *mood == Mood::Hanging);
        *mood
    }
}

impl Lab {
    /// Attaches a disk of `size` bytes that is `volume`, with a control of its responses.
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
            mood: Arc::new((Mutex::new(Mood::Healthy), Condvar::new())),
            hung: Arc::default(),
        };
        serve(&shown, file, size, flaky.clone());
        (self.attach(&shown, volume).await, flaky)
    }
}

/// Mounts a file system whose root is one file, and responds to its requests until the kernel closes it.
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
            // Uses a thread for each request, so that a hung request does not block other requests.
            let answer = move || {
                let answer = respond(&request, &file, size, &flaky);
                if let Some(answer) = answer {
                    drop((&*device).write(&answer));
                }
            };
            thread::spawn(answer);
        }
    });
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Responds to one request of the kernel, as defined in its header `fuse.h`. Some requests have no response.
fn respond(request: &[u8], file: &File, size: u64, flaky: &Flaky) -> Option<Vec<u8>> {
    const HEADER: usize = 40;
    let (operation, unique) = (read_u32(request, 4), read_u64(request, 8));
    let body = &request[HEADER..];
    let result: Result<Vec<u8>, i32> = match operation {
        // FORGET, BATCH_FORGET, INTERRUPT
        2 | 42 | 36 => return None,
        // GETATTR
        3 => Ok([vec![0; 16], attributes(size)].concat()),
        // OPEN: a handle, without caching
        14 => Ok([&0_u64.to_le_bytes()[..], &1_u32.to_le_bytes(), &[0; 4]].concat()),
        // READ: handle, offset, size
        15 => transfer(flaky, || {
            let mut bytes = vec![0; read_u32(body, 16) as usize];
            file.read_exact_at(&mut bytes, read_u64(body, 8)).map(|()| bytes)
        }),
        // WRITE: handle, offset, size, and the data after 40 bytes
        16 => transfer(flaky, || {
            let data = &body[40..40 + read_u32(body, 16) as usize];
            file.write_all_at(data, read_u64(body, 8))?;
            Ok([&read_u32(body, 16).to_le_bytes()[..], &[0; 4]].concat())
        }),
        // RELEASE, FSYNC, FLUSH
        18 | 20 | 25 => Ok(Vec::new()),
        // INIT: version 7.31 for any kernel, without its options
        26 => {
            let mut init = vec![0; 64];
            init[0..4].copy_from_slice(&7_u32.to_le_bytes());
            init[4..8].copy_from_slice(&31_u32.to_le_bytes());
            init[8..12].copy_from_slice(&read_u32(body, 8).to_le_bytes());
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
    match flaky.wait_for_mood() {
        Mood::Failing => Err(EIO),
        Mood::Healthy | Mood::Hanging => call().map_err(|_| EIO),
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
