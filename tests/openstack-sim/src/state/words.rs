// SPDX-License-Identifier: Apache-2.0
//! Enumerations of states with the services' names.

/// Defines an enumeration whose variants have a name in JSON and in texts.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $(#[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the service's name of the variant.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Returns the variant with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == name)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Status of a volume.
    VolumeStatus {
        Creating = "creating",
        Available = "available",
        Reserved = "reserved",
        Attaching = "attaching",
        InUse = "in-use",
        Detaching = "detaching",
        Extending = "extending",
        Retyping = "retyping",
        BackingUp = "backing-up",
        RestoringBackup = "restoring-backup",
        Uploading = "uploading",
        Downloading = "downloading",
        AwaitingTransfer = "awaiting-transfer",
        Reverting = "reverting",
        Maintenance = "maintenance",
        Managing = "managing",
        Deleting = "deleting",
        Error = "error",
        ErrorDeleting = "error_deleting",
        ErrorExtending = "error_extending",
        ErrorRestoring = "error_restoring",
        ErrorBackingUp = "error_backing-up",
        ErrorManaging = "error_managing",
    }
}

words! {
    /// Status of an attachment.
    AttachmentStatus {
        Reserved = "reserved",
        Attaching = "attaching",
        Attached = "attached",
        Detaching = "detaching",
        Detached = "detached",
        ErrorAttaching = "error_attaching",
        ErrorDetaching = "error_detaching",
    }
}

words! {
    /// Status of a snapshot.
    SnapshotStatus {
        Creating = "creating",
        Available = "available",
        BackingUp = "backing-up",
        Restoring = "restoring",
        Unmanaging = "unmanaging",
        Deleting = "deleting",
        Deleted = "deleted",
        Error = "error",
        ErrorDeleting = "error_deleting",
    }
}

words! {
    /// Status of a backup.
    BackupStatus {
        Creating = "creating",
        Available = "available",
        Restoring = "restoring",
        Deleting = "deleting",
        Deleted = "deleted",
        Error = "error",
        ErrorDeleting = "error_deleting",
    }
}

words! {
    /// Status of a group or group snapshot.
    GroupStatus {
        Creating = "creating",
        Available = "available",
        Updating = "updating",
        Deleting = "deleting",
        Deleted = "deleted",
        InUse = "in-use",
        Error = "error",
        ErrorDeleting = "error_deleting",
    }
}
