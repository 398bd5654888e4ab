// SPDX-License-Identifier: Apache-2.0
//! Content of a volume that is neither blank nor a sound file system.

use super::Node;
use super::medium::Medium;

/// State of an ext file system after a crash, as e2fsck reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    /// Errors are corrected.
    Corrected,
    /// The same, and a mounted root would need a reboot.
    CorrectedWithReboot,
    /// Errors remain until an administrator repairs them.
    Uncorrected,
}

impl Damage {
    const ALL: [Self; 3] = [Self::Corrected, Self::CorrectedWithReboot, Self::Uncorrected];

    /// The exit status and the report of `e2fsck -p`.
    pub(super) fn report(self) -> (i32, &'static str) {
        match self {
            Self::Corrected => (1, "FIXED"),
            Self::CorrectedWithReboot => (2, "FIXED; REBOOT"),
            Self::Uncorrected => (4, "UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY"),
        }
    }
}

/// What blkid finds: exit status and output.
pub(super) type Probed = (i32, &'static str);

/// Content that is not the cluster's.
struct Foreign {
    name: &'static str,
    /// Bytes and where they are.
    bytes: &'static [(u64, &'static [u8])],
    probed: Probed,
}

const FOREIGN: [Foreign; 7] = [
    Foreign {
        name: "LUKS",
        bytes: &[(0, b"LUKS\xba\xbe\x00\x02")],
        probed: (0, "TYPE=crypto_LUKS\nUSAGE=crypto\n"),
    },
    Foreign {
        name: "a GPT",
        bytes: &[(512, b"EFI PART")],
        probed: (0, "PTTYPE=gpt\n"),
    },
    Foreign {
        name: "an MBR",
        bytes: &[(446, b"\x80\x01\x01\x00\x83"), (510, b"\x55\xaa")],
        probed: (0, "PTTYPE=dos\n"),
    },
    Foreign {
        name: "a physical volume of LVM",
        bytes: &[(512, b"LABELONE"), (536, b"LVM2 001")],
        probed: (0, "TYPE=LVM2_member\nUSAGE=raid\n"),
    },
    Foreign {
        name: "an f2fs",
        bytes: &[(1024, b"\x10\x20\xf5\xf2")],
        probed: (0, "TYPE=f2fs\nUSAGE=filesystem\n"),
    },
    Foreign {
        name: "an ext and an xfs",
        bytes: &[(0, b"XFSB"), (1024 + 0x38, b"\x53\xef")],
        probed: (8, ""),
    },
    Foreign {
        name: "bytes at its beginning",
        bytes: &[(2048, b"the header of a database")],
        probed: (2, ""),
    },
];

/// A run of bytes in the middle of a device is so long, and is written so often. A device of up to 7 GiB has a sample within it.
const RUN: u64 = 128 << 20;
const RUN_STEP: u64 = 16 << 10;

impl Medium {
    /// What blkid finds of content that is not the cluster's. Nothing where none of it has a signature.
    pub(super) fn probed_as_foreign(&self) -> Option<Probed> {
        self.is_foreign().then_some(())?;
        let is_there = |(at, bytes): &(u64, &[u8])| {
            let mut read = vec![0; bytes.len()];
            self.read_at(&mut read, *at);
            read == *bytes
        };
        let found = FOREIGN.iter().find(|foreign| foreign.bytes.iter().all(is_there));
        Some(found.map_or((2, ""), |foreign| foreign.probed))
    }
}

impl Node {
    /// Delivers a blank volume of a backend that does not wipe: its name for the trace.
    pub(super) fn spoil(&self, medium: &Medium, bytes: u64) -> &'static str {
        medium.set_foreign();
        let at = self.sources.random() % (FOREIGN.len() as u64 + 1);
        let foreign = usize::try_from(at).ok().and_then(|at| FOREIGN.get(at));
        if let Some(foreign) = foreign {
            for (at, bytes) in foreign.bytes {
                medium.write_at(bytes, *at);
            }
            return foreign.name;
        }
        let steps = RUN / RUN_STEP;
        let first = self.sources.random() % (bytes / RUN_STEP).saturating_sub(steps).max(1);
        for step in first..first + steps {
            medium.write_at(b"raw bytes", step * RUN_STEP);
        }
        "bytes in its middle"
    }

    /// Damages an ext file system by chance.
    pub(super) fn damage(&self, medium: &Medium, millionths: u64) -> Option<Damage> {
        if medium.damage().is_some() || !self.happens(millionths) {
            return None;
        }
        let at = self.sources.random() % Damage::ALL.len() as u64;
        let damage = usize::try_from(at).ok().and_then(|at| Damage::ALL.get(at).copied());
        medium.set_damage(damage);
        damage
    }
}
