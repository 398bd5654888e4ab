// SPDX-License-Identifier: Apache-2.0
//! Splits mount options into flags of the mount, options of the file system, and options of `/etc/fstab` that the
//! driver ignores.

use rustix::mount::MountFlags;

use crate::Mount;
use crate::filesystem::leads_elsewhere;

/// An option that the driver does not pass to the kernel. The message omits its value, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The option requests another kind of mount, or names another device.
    #[error(
        "mount option `{name}` asks for another kind of mount than this driver makes, or names another device: remove it from mountOptions"
    )]
    Unsupported {
        /// The option without its value.
        name: String,
    },
    /// The option contains a zero byte.
    #[error("a mount option contains a zero byte: remove it from mountOptions")]
    ZeroByte,
}

/// Options of a mount.
#[derive(Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Flags of the mount.
    flags: MountFlags,
    /// Options of the file system, as `key` or `key=value`.
    filesystem: Vec<String>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            flags: MountFlags::empty(),
            filesystem: Vec::new(),
        }
    }
}

impl std::fmt::Debug for MountOptions {
    /// Omits the values, which may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.filesystem.iter().map(|option| name_of(option)).collect();
        f.debug_struct("MountOptions")
            .field("flags", &self.flags)
            .field("filesystem", &names)
            .finish()
    }
}

fn name_of(option: &str) -> &str {
    option.split_once('=').map_or(option, |(name, _)| name)
}

impl MountOptions {
    /// Parses `mountOptions`. Each item may be a list with commas. Later options override earlier ones.
    pub fn parse<S: AsRef<str>>(options: &[S]) -> Result<Self, OptionError> {
        let mut parsed = Self::default();
        for list in options {
            for option in split(list.as_ref()) {
                parsed.add(option.trim())?;
            }
        }
        Ok(parsed)
    }

    /// Makes the mount and the file system read-only.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.flags |= MountFlags::RDONLY;
        self
    }

    /// Adds an option of the file system if it is missing.
    #[must_use]
    pub fn with(mut self, option: &str) -> Self {
        if !self.filesystem.iter().any(|present| present == option) {
            self.filesystem.push(option.to_owned());
        }
        self
    }

    /// Removes the options of the file system, which a bind cannot have.
    #[must_use]
    pub fn of_the_mount_alone(mut self) -> Self {
        self.filesystem.clear();
        self
    }

    /// Returns the flags of the mount.
    pub fn flags(&self) -> MountFlags {
        self.flags
    }

    /// Returns the options of the file system, as `key` or `key=value`. They may be secret.
    pub fn of_the_filesystem(&self) -> &[String] {
        &self.filesystem
    }

    pub fn is_read_only(&self) -> bool {
        self.flags.contains(MountFlags::RDONLY)
    }

    /// Whether `mount` has all requested flags.
    pub fn are_met_by(&self, mount: &Mount) -> bool {
        Self::parse(&[&mount.options]).is_ok_and(|present| present.flags.contains(self.flags))
    }

    /// Whether there are no options.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, option: &str) -> Result<(), OptionError> {
        let atime = MountFlags::NOATIME | MountFlags::RELATIME | MountFlags::STRICTATIME;
        let (remove, insert) = match option {
            "" | "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "nouser" | "users" | "owner"
            | "group" | "loud" => return Ok(()),
            "ro" => (MountFlags::empty(), MountFlags::RDONLY),
            "rw" => (MountFlags::RDONLY, MountFlags::empty()),
            "nosuid" => (MountFlags::empty(), MountFlags::NOSUID),
            "suid" => (MountFlags::NOSUID, MountFlags::empty()),
            "nodev" => (MountFlags::empty(), MountFlags::NODEV),
            "dev" => (MountFlags::NODEV, MountFlags::empty()),
            "noexec" => (MountFlags::empty(), MountFlags::NOEXEC),
            "exec" => (MountFlags::NOEXEC, MountFlags::empty()),
            "noatime" => (atime, MountFlags::NOATIME),
            "relatime" => (atime, MountFlags::RELATIME),
            "strictatime" => (atime, MountFlags::STRICTATIME),
            "atime" | "norelatime" | "nostrictatime" => (atime, MountFlags::empty()),
            "nodiratime" => (MountFlags::empty(), MountFlags::NODIRATIME),
            "diratime" => (MountFlags::NODIRATIME, MountFlags::empty()),
            "nosymfollow" => (MountFlags::empty(), MountFlags::NOSYMFOLLOW),
            "symfollow" => (MountFlags::NOSYMFOLLOW, MountFlags::empty()),
            "bind" | "rbind" | "move" | "remount" | "shared" | "rshared" | "slave" | "rslave" | "private"
            | "rprivate" | "unbindable" | "runbindable" => {
                return Err(OptionError::Unsupported {
                    name: option.to_owned(),
                });
            }
            comment if comment.starts_with("x-") || comment.starts_with("comment=") => return Ok(()),
            zero if zero.contains('\0') => return Err(OptionError::ZeroByte),
            filesystem => {
                if leads_elsewhere(name_of(filesystem).trim()) {
                    return Err(OptionError::Unsupported {
                        name: name_of(filesystem).to_owned(),
                    });
                }
                *self = std::mem::take(self).with(filesystem);
                return Ok(());
            }
        };
        self.flags.remove(remove);
        self.flags.insert(insert);
        Ok(())
    }
}

/// Splits at commas outside double quotes. SELinux contexts use quotes: `context="system_u:object_r:t:s0:c1,c2"`.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    list.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn separates_mount_and_file_system_options() {
        let options =
            MountOptions::parse(&["defaults,noatime", "discard", "commit=30", "nodev"]).expect("all are known");
        assert_eq!(options.flags, MountFlags::NOATIME | MountFlags::NODEV);
        assert_eq!(options.filesystem, ["discard", "commit=30"]);
    }

    #[test]
    fn later_option_overrides_earlier_one() {
        let options = MountOptions::parse(&["ro", "noatime", "rw", "relatime"]).expect("all are known");
        assert_eq!(options.flags, MountFlags::RELATIME);
        assert!(!options.is_read_only());
    }

    #[test]
    fn quoted_selinux_context_retains_commas() {
        let options = MountOptions::parse(&["context=\"system_u:object_r:t:s0:c1,c2\",noexec"]).expect("all are known");
        assert_eq!(options.filesystem, ["context=\"system_u:object_r:t:s0:c1,c2\""]);
    }

    #[test]
    fn refuses_option_of_other_mount_kind() {
        let error = MountOptions::parse(&["bind"]).expect_err("the driver decides what is bound");
        assert_eq!(error, OptionError::Unsupported { name: "bind".into() });
        let error = MountOptions::parse(&["offset=4096"]).expect_err("another part of the device");
        assert_eq!(error, OptionError::Unsupported { name: "offset".into() });
    }

    #[rstest]
    #[case("loop")]
    #[case("loop=/dev/loop7")]
    #[case("offset=4096")]
    #[case("sizelimit=4096")]
    #[case("device=/dev/vdc")]
    #[case("noatime,logdev=/dev/vdc")]
    #[case("rtdev=/dev/vdc")]
    #[case("journal_path=/dev/vdc")]
    #[case("journal_dev=0x101")]
    #[case(" device = /dev/vdc")]
    fn refuses_options_with_other_device(#[case] options: &str) {
        let error = MountOptions::parse(&[options]).expect_err("the volume is one device");
        assert!(!error.to_string().contains("/dev"), "{error}");
    }

    #[test]
    fn debug_output_omits_values() {
        let options = MountOptions::parse(&["password=geheim", "noatime"]).expect("the file system knows");
        let shown = format!("{options:?}");
        assert!(shown.contains("password") && !shown.contains("geheim"), "{shown}");
    }
}
