// SPDX-License-Identifier: Apache-2.0
//! States, in the services' words.

/// An enumeration whose members have a word each, in JSON and in texts.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $(#[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All there are.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Cinder's word for it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The one with this name.
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
    /// State of a volume, in Cinder's words.
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
    /// State of an attachment, in Cinder's words.
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
    /// State of a snapshot, in Cinder's words.
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
    /// State of a backup, in Cinder's words.
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
    /// State of a group or of a group's snapshot, in Cinder's words.
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
