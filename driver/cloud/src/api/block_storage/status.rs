// SPDX-License-Identifier: Apache-2.0
//! Statuses by Cinder's words for them, and that of a volume.

/// An enum of the words that the driver knows; any other word is kept as it is.
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

            /// Whether it has failed for good.
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
    /// The status of a volume.
    VolumeStatus {
        Creating = "creating",
        /// Being made from an image.
        Downloading = "downloading",
        /// Being filled from a backup.
        RestoringBackup = "restoring-backup",
        /// Complete and free.
        Available = "available",
        /// Promised to a server; half of an attachment.
        Reserved = "reserved",
        /// On its way to a server.
        Attaching = "attaching",
        /// Attached.
        InUse = "in-use",
        /// On its way from a server.
        Detaching = "detaching",
        /// Growing.
        Extending = "extending",
        /// On its way to another type.
        Retyping = "retyping",
        Deleting = "deleting",
        /// Offered to another project, which may accept it.
        AwaitingTransfer = "awaiting-transfer",
        Error = "error",
        /// Failed to be deleted.
        ErrorDeleting = "error_deleting",
    }
}

impl VolumeStatus {
    /// Whether the volume is still being made.
    pub(crate) fn is_coming(&self) -> bool {
        matches!(self, Self::Creating | Self::Downloading | Self::RestoringBackup)
    }

    /// Whether Cinder deletes a free volume in this status.
    pub(crate) fn is_deletable(&self) -> bool {
        let failed = ["error", "error_restoring", "error_extending", "error_managing"];
        *self == Self::Available || failed.contains(&self.as_str())
    }

    /// The remedy for a volume that stays in this status.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::AwaitingTransfer => "accept or delete its transfer: openstack volume transfer request list",
            status if status.is_error() => "an administrator has to find out why and reset its status",
            _ => "if that does not end, an administrator has to find out why and reset its status",
        }
    }

    /// Whether an operation is under way that ends by itself.
    pub(crate) fn is_transition(&self) -> bool {
        self.is_coming()
            || matches!(
                self,
                Self::Reserved | Self::Attaching | Self::Detaching | Self::Extending | Self::Retyping | Self::Deleting
            )
    }

    /// Whether something is being done to the volume that ends by itself, an administrator's work included.
    pub(crate) fn is_under_work(&self) -> bool {
        self.is_transition()
            || matches!(
                self.as_str(),
                "backing-up" | "uploading" | "maintenance" | "reverting" | "managing"
            )
    }
}
