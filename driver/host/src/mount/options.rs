// SPDX-License-Identifier: Apache-2.0
//! Mount options: which are the mount's, which the file system's, which nobody's but `/etc/fstab`'s.

use rustix::mount::MountFlags;

use crate::Mount;
use crate::filesystem::leads_elsewhere;

/// An option that cannot be given to the kernel. Its value is not in the message: options may be secret.
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
    /// The option has a byte that no option may have.
    #[error("a mount option contains a zero byte: remove it from mountOptions")]
    ZeroByte,
}

/// How something is to be mounted.
#[derive(Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Of this mount alone.
    flags: MountFlags,
    /// Of the file system: `key` or `key=value`.
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
    /// Without the values, which may be secret.
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
    /// Takes `mountOptions` apart; each may itself be a list with commas. Later ones override earlier ones.
    pub fn parse<S: AsRef<str>>(options: &[S]) -> Result<Self, OptionError> {
        let mut parsed = Self::default();
        for list in options {
            for option in split(list.as_ref()) {
                parsed.add(option.trim())?;
            }
        }
        Ok(parsed)
    }

    /// The same without writes, for the mount and for the file system.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.flags |= MountFlags::RDONLY;
        self
    }

    /// The same with one more option of the file system, unless it is already there.
    #[must_use]
    pub fn with(mut self, option: &str) -> Self {
        if !self.filesystem.iter().any(|present| present == option) {
            self.filesystem.push(option.to_owned());
        }
        self
    }

    /// The same without what belongs to the file system as a whole: what a bind can have.
    #[must_use]
    pub fn of_the_mount_alone(mut self) -> Self {
        self.filesystem.clear();
        self
    }

    /// The flags of the mount alone.
    pub fn flags(&self) -> MountFlags {
        self.flags
    }

    /// The options of the file system, each `key` or `key=value`. They may be secret.
    pub fn of_the_filesystem(&self) -> &[String] {
        &self.filesystem
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.flags.contains(MountFlags::RDONLY)
    }

    /// Whether `mount` already has every option of a mount that is asked for here.
    pub fn are_met_by(&self, mount: &Mount) -> bool {
        Self::parse(&[&mount.options]).is_ok_and(|present| present.flags.contains(self.flags))
    }

    /// Whether nothing was asked for.
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

/// Splits at commas outside double quotes, which SELinux contexts use: `context="system_u:object_r:t:s0:c1,c2"`.
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
    fn options_of_the_mount_and_of_the_file_system_are_told_apart() {
        let options =
            MountOptions::parse(&["defaults,noatime", "discard", "commit=30", "nodev"]).expect("all are known");
        assert_eq!(options.flags, MountFlags::NOATIME | MountFlags::NODEV);
        assert_eq!(options.filesystem, ["discard", "commit=30"]);
    }

    #[test]
    fn a_later_option_overrides_an_earlier_one() {
        let options = MountOptions::parse(&["ro", "noatime", "rw", "relatime"]).expect("all are known");
        assert_eq!(options.flags, MountFlags::RELATIME);
        assert!(!options.is_read_only());
    }

    #[test]
    fn a_quoted_selinux_context_keeps_its_commas() {
        let options = MountOptions::parse(&["context=\"system_u:object_r:t:s0:c1,c2\",noexec"]).expect("all are known");
        assert_eq!(options.filesystem, ["context=\"system_u:object_r:t:s0:c1,c2\""]);
    }

    #[test]
    fn an_option_for_another_kind_of_mount_is_refused_by_name() {
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
    fn options_with_another_device_are_refused(#[case] options: &str) {
        let error = MountOptions::parse(&[options]).expect_err("the volume is one device");
        assert!(!error.to_string().contains("/dev"), "{error}");
    }

    #[test]
    fn values_are_not_shown() {
        let options = MountOptions::parse(&["password=geheim", "noatime"]).expect("the file system knows");
        let shown = format!("{options:?}");
        assert!(shown.contains("password") && !shown.contains("geheim"), "{shown}");
    }
}
