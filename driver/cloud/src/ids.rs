// SPDX-License-Identifier: Apache-2.0
//! Identifiers and sizes as types, so that the compiler rejects a server id in place of a volume id.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::memory_size::MemorySize;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps an identifier without a check or a change.
            pub fn new(id: impl Into<String>) -> Self {
                Self(id.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether this is a UUID in the hyphenated form of OpenStack. Other identifiers never reach OpenStack: an
            /// identifier becomes a part of a URL, and no object of Cinder or Nova has another form.
            pub fn is_uuid(&self) -> bool {
                self.0.len() == 36 && uuid::Uuid::try_parse(&self.0).is_ok()
            }
        }

        impl MemorySize for $name {
            fn heap_size(&self) -> usize {
                self.0.heap_size()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self(id)
            }
        }
    };
}

id! {
    VolumeId
}
id! {
    ServerId
}
id! {
    AttachmentId
}
id! {
    SnapshotId
}
id! {
    /// A snapshot of several volumes in Cinder.
    GroupSnapshotId
}
id! {
    BackupId
}
id! {
    ProjectId
}

/// A size in gibibytes, the unit of Cinder's volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GiB(u64);

impl GiB {
    const BYTES: u64 = 1 << 30;
    /// Zero, for clouds without free capacity. No volume has this size.
    pub const ZERO: Self = Self(0);
    /// The largest size with a number of bytes that fits into 64 bits.
    pub const MAX: Self = Self(u64::MAX / Self::BYTES);

    /// Creates a size of so many gibibytes. `None` if the number of bytes does not fit into 64 bits.
    pub fn new(gibibytes: u64) -> Option<Self> {
        gibibytes.checked_mul(Self::BYTES).map(|_| Self(gibibytes))
    }

    /// The smallest size of at least `bytes`, and at least 1 GiB because Cinder has no smaller volume. `None` if the
    /// number of bytes of that size does not fit into 64 bits.
    pub fn from_bytes_rounded_up(bytes: u64) -> Option<Self> {
        Self::new(bytes.div_ceil(Self::BYTES).max(1))
    }

    /// The size in bytes. Saturates for a size from the network that exceeds 64 bits.
    pub fn bytes(self) -> u64 {
        self.0.saturating_mul(Self::BYTES)
    }

    /// The minimum number of bytes of a volume of this size. Cinder rounds up the size of a volume that it imports
    /// (`cinder manage`), so the volume can be smaller by less than one gibibyte. It is still larger than any smaller
    /// volume that Cinder created.
    pub fn least_bytes(self) -> u64 {
        self.0.saturating_sub(1).saturating_mul(Self::BYTES).saturating_add(1)
    }

    /// The number of gibibytes.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl MemorySize for GiB {
    fn heap_size(&self) -> usize {
        0
    }
}

impl fmt::Display for GiB {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} GiB", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("11111111-2222-4333-8444-555555555555", true)]
    #[case("11111111-2222-4333-8444-55555555555", false)]
    #[case("11111111222243338444555555555555", false)]
    #[case("{11111111-2222-4333-8444-555555555555}", false)]
    #[case("../servers", false)]
    #[case("", false)]
    fn only_hyphenated_uuids_are_openstack_ids(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(VolumeId::new(text).is_uuid(), expected);
    }

    #[rstest]
    #[case(0, 1)]
    #[case(1, 1)]
    #[case(1 << 30, 1)]
    #[case((1 << 30) + 1, 2)]
    #[case(u64::MAX - (1 << 30) + 1, (1 << 34) - 1)]
    fn bytes_round_up_to_whole_gibibytes(#[case] bytes: u64, #[case] gib: u64) {
        assert_eq!(GiB::from_bytes_rounded_up(bytes).map(GiB::get), Some(gib));
    }

    #[test]
    fn size_beyond_64_bits_is_rejected() {
        assert_eq!(GiB::from_bytes_rounded_up(u64::MAX), None);
        assert_eq!(GiB::new(1 << 34), None);
    }

    proptest! {
        #[test]
        fn rounding_adds_less_than_one_gibibyte(bytes in 1..u64::MAX / 2) {
            let size = GiB::from_bytes_rounded_up(bytes).expect("fits").bytes();
            prop_assert!(size >= bytes && size - bytes < 1 << 30);
        }
    }
}
