// SPDX-License-Identifier: Apache-2.0
//! Contents of a volume that are neither blank nor a valid file system.

use super::Node;
use super::medium::Medium;

/// State of an ext file system after a crash, as reported by e2fsck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    /// Errors are corrected.
    Corrected,
    /// Errors are corrected; a mounted root would require a reboot.
    CorrectedWithReboot,
    /// Errors remain until an administrator repairs them.
    Uncorrected,
}

impl Damage {
    const ALL: [Self; 3] = [Self::Corrected, Self::CorrectedWithReboot, Self::Uncorrected];

    /// Returns the exit status and the report of `e2fsck -p`.
    pub(super) fn report(self) -> (i32, &'static str) {
        match self {
            Self::Corrected => (1, "FIXED"),
            Self::CorrectedWithReboot => (2, "FIXED; REBOOT"),
            Self::Uncorrected => (4, "UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY"),
        }
    }
}

/// Exit status and output of blkid.
pub(super) type Probed = (i32, &'static str);

/// Content that does not come from the cluster.
struct Foreign {
    name: &'static str,
    /// Bytes and their offsets.
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

/// Length of a run of bytes in the middle of a device, and the step of its writes. A device of up to 7 GiB has a sample
/// within it.
const RUN: u64 = 128 << 20;
const RUN_STEP: u64 = 16 << 10;

impl Medium {
    /// Returns blkid's result for foreign content. `None` if it has no signature.
    pub(super) fn probed_as_foreign(&self) -> Option<Probed> {
        self.is_foreign().then_some(())?;
        let is_there = |(at, bytes): &(u64, &[u8])| {
            let mut read = vec![0; bytes.len()];
            self.read_at(&mut read, *at);
            read == *bytes
        };
        let foreign_content = FOREIGN.iter().find(|foreign| foreign.bytes.iter().all(is_there));
        Some(foreign_content.map_or((2, ""), |foreign| foreign.probed))
    }
}

impl Node {
    /// Writes foreign content to a blank volume, as from a backend that does not wipe. Returns its name for the trace.
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

    /// Damages an ext file system with this probability.
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
