// SPDX-License-Identifier: Apache-2.0
//! Statuses of Cinder as enums, and the status of a volume.

/// Defines an enum of the statuses that the driver knows, with a variant for any other status.
macro_rules! statuses {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$about])* $variant,)*
            /// Any other status, as Cinder writes it.
            Other(String),
        }

        impl $name {
            /// The status as Cinder writes it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)*
                    Self::Other(text) => text,
                }
            }

            /// Whether the status is that of a failed operation.
            pub fn is_error(&self) -> bool {
                self.as_str().starts_with("error")
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($word => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl crate::memory_size::MemorySize for $name {
            fn heap_size(&self) -> usize {
                match self {
                    Self::Other(text) => text.heap_size(),
                    _ => 0,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(|text| Self::from(text.as_str()))
            }
        }
    };
}

pub(super) use statuses;

statuses! {
    VolumeStatus {
        Creating = "creating",
        /// Cinder creates the volume from an image.
        Downloading = "downloading",
        /// Cinder restores a backup to the volume.
        RestoringBackup = "restoring-backup",
        /// Complete and not attached.
        Available = "available",
        /// Reserved for a server by an incomplete attachment.
        Reserved = "reserved",
        /// Nova is attaching the volume to a server.
        Attaching = "attaching",
        InUse = "in-use",
        /// Nova is detaching the volume from a server.
        Detaching = "detaching",
        /// Cinder is extending the volume.
        Extending = "extending",
        /// Cinder is changing the type of the volume.
        Retyping = "retyping",
        Deleting = "deleting",
        /// Offered to another project, which may accept it.
        AwaitingTransfer = "awaiting-transfer",
        Error = "error",
        /// The deletion failed.
        ErrorDeleting = "error_deleting",
    }
}

impl VolumeStatus {
    /// Whether Cinder is still creating the volume.
    pub(crate) fn is_coming(&self) -> bool {
        matches!(self, Self::Creating | Self::Downloading | Self::RestoringBackup)
    }

    /// Whether Cinder deletes an unattached volume in this status.
    pub(crate) fn is_deletable(&self) -> bool {
        let failed = ["error", "error_restoring", "error_extending", "error_managing"];
        *self == Self::Available || failed.contains(&self.as_str())
    }

    /// The remedy for a volume that remains in this status.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::AwaitingTransfer => "accept or delete its transfer: openstack volume transfer request list",
            status if status.is_error() => "an administrator has to find out why and reset its status",
            _ => "if that does not end, an administrator has to find out why and reset its status",
        }
    }

    /// Whether an operation is in progress that ends without intervention.
    pub(crate) fn is_transition(&self) -> bool {
        self.is_coming()
            || matches!(
                self,
                Self::Reserved | Self::Attaching | Self::Detaching | Self::Extending | Self::Retyping | Self::Deleting
            )
    }

    /// Whether an operation of a user or an administrator is in progress, which ends without intervention by the
    /// driver.
    pub(crate) fn is_under_work(&self) -> bool {
        self.is_transition()
            || matches!(
                self.as_str(),
                "backing-up" | "uploading" | "maintenance" | "reverting" | "managing"
            )
    }
}
