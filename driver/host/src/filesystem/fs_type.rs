// SPDX-License-Identifier: Apache-2.0
//! The supported file systems and the mkfs options that a class may set.

use std::fmt;

/// A supported file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum FsType {
    #[default]
    Ext4,
    Xfs,
    Btrfs,
    /// Mounted if it exists. Created only if a request names it.
    Ext3,
    /// Mounted if it exists. Created only if a request names it.
    Ext2,
}

impl FsType {
    /// Returns the name in the kernel and in blkid.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Ext3 => "ext3",
            Self::Ext2 => "ext2",
        }
    }

    /// Returns the file system with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Ext4, Self::Xfs, Self::Btrfs, Self::Ext3, Self::Ext2]
            .into_iter()
            .find(|fs_type| fs_type.name() == name)
    }

    /// Whether this is ext2, ext3 or ext4. They share one kernel driver and one on-disk format with feature flags.
    pub fn is_ext(self) -> bool {
        matches!(self, Self::Ext4 | Self::Ext3 | Self::Ext2)
    }

    /// Whether a volume with the file system `found` fulfills a request for this one. All ext file systems are
    /// interchangeable: an ext3 volume fulfills a request for ext4.
    pub fn is_served_by(self, found: Self) -> bool {
        self == found || (self.is_ext() && found.is_ext())
    }

    /// Returns the mount option that prevents a journal replay on a read-only mount. ext2 has no journal.
    pub fn without_recovery(self) -> Option<&'static str> {
        match self {
            Self::Ext4 | Self::Ext3 => Some("noload"),
            Self::Xfs => Some("norecovery"),
            Self::Btrfs => Some("rescue=nologreplay"),
            Self::Ext2 => None,
        }
    }
}

impl fmt::Display for FsType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The driver does not pass this option to mkfs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("mkfs option {option:?} is not allowed for {fs_type}: {reason}; remove it from mkfsOptions")]
pub struct MkfsOptionError {
    option: String,
    fs_type: FsType,
    reason: &'static str,
}

/// The mkfs options of a class, in the syntax of the Go driver's parameter `mkfsOptions`.
///
/// The syntax is a list of arguments separated by commas and white space, such as `-E nodiscard,-O ^metadata_csum`. An
/// item after a comma that does not begin with `-` belongs to the value before the comma: `-E
/// stride=16,stripe_width=64` is one option.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MkfsOptions {
    options: Vec<(String, Option<String>)>,
}

/// Prints the options separated by white space alone, which cinder-csi-plugin after 1.36 requires.
impl fmt::Display for MkfsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self
            .options
            .iter()
            .flat_map(|(option, value)| std::iter::once(option).chain(value));
        let words: Vec<&str> = words.map(String::as_str).collect();
        f.write_str(&words.join(" "))
    }
}

/// Allowed options with a value. They affect only the layout of the file system.
fn with_value(fs_type: FsType) -> &'static [&'static str] {
    match fs_type {
        FsType::Ext4 | FsType::Ext3 | FsType::Ext2 => &[
            "-b", "-C", "-E", "-G", "-i", "-I", "-J", "-m", "-e", "-N", "-O", "-T", "-L", "-U",
        ],
        FsType::Xfs => &["-b", "-d", "-i", "-l", "-n", "-m", "-s", "-L"],
        FsType::Btrfs => &[
            "-d",
            "-m",
            "-n",
            "-s",
            "-O",
            "-R",
            "-L",
            "-U",
            "--data",
            "--metadata",
            "--nodesize",
            "--sectorsize",
            "--features",
            "--csum",
            "--checksum",
            "--label",
            "--uuid",
        ],
    }
}

fn without_value(fs_type: FsType) -> &'static [&'static str] {
    match fs_type {
        FsType::Ext4 | FsType::Ext3 | FsType::Ext2 => &["-F", "-q"],
        FsType::Xfs => &["-f", "-K", "-q"],
        FsType::Btrfs => &["-f", "-K", "-M", "-q", "--nodiscard", "--mixed", "--force", "--quiet"],
    }
}

/// Keys of mkfs and mount options that name another device or file, or a part of the device.
const ELSEWHERE: [&str; 11] = [
    "offset",
    "sizelimit",
    "loop",
    "device",
    "name",
    "file",
    "logdev",
    "rtdev",
    "journal_path",
    "journal_dev",
    "datadev",
];

/// Whether an option of mkfs or of a mount refers to something other than the whole device of the volume.
pub(crate) fn leads_elsewhere(key: &str) -> bool {
    // Compares whole keys, because `filetype` is a feature.
    ELSEWHERE.contains(&key)
}

impl MkfsOptions {
    /// No options in addition to the defaults.
    pub const NONE: Self = Self { options: Vec::new() };

    /// Splits `text` into options. [`MkfsOptions::arguments`] validates them, because their meaning depends on the file
    /// system.
    pub fn parse(text: &str) -> Self {
        let mut options: Vec<(String, Option<String>)> = Vec::new();
        for (part, words) in text.split(',').enumerate() {
            for (index, word) in words.split_whitespace().enumerate() {
                let after_comma = part > 0 && index == 0;
                match options.last_mut() {
                    _ if word.starts_with('-') => match word.split_once('=') {
                        Some((name, value)) if word.starts_with("--") => {
                            options.push((name.to_owned(), Some(value.to_owned())));
                        }
                        _ if word.starts_with("--") || word.len() <= 2 => options.push((word.to_owned(), None)),
                        // `-m0`
                        _ => match word.char_indices().nth(2) {
                            Some((at, _)) => {
                                let (name, value) = word.split_at(at);
                                options.push((name.to_owned(), Some(value.to_owned())));
                            }
                            None => options.push((word.to_owned(), None)),
                        },
                    },
                    Some((_, Some(value))) if after_comma => {
                        value.push(',');
                        value.push_str(word);
                    }
                    Some((_, value @ None)) => *value = Some(word.to_owned()),
                    // No option precedes this value. [`MkfsOptions::arguments`] rejects it by its text.
                    _ => options.push((word.to_owned(), None)),
                }
            }
        }
        Self { options }
    }

    /// Returns the arguments for the mkfs of `fs_type`, after the `defaults`. Merges the extended options of ext with
    /// `extended`, because mke2fs uses only the last `-E`.
    ///
    /// Accepts only options that affect the layout of the file system. Rejects options that name another device, an
    /// offset, a size or a file to copy.
    pub fn arguments(
        &self,
        fs_type: FsType,
        defaults: &[&str],
        extended: &str,
    ) -> Result<Vec<String>, MkfsOptionError> {
        let mut extended = extended.to_owned();
        let mut arguments: Vec<String> = defaults.iter().map(|&argument| argument.to_owned()).collect();
        for (option, value) in &self.options {
            let refused = |reason| MkfsOptionError {
                option: option.clone(),
                fs_type,
                reason,
            };
            match value {
                None if without_value(fs_type).contains(&option.as_str()) => arguments.push(option.clone()),
                None if with_value(fs_type).contains(&option.as_str()) => return Err(refused("it needs a value")),
                Some(value) if with_value(fs_type).contains(&option.as_str()) => {
                    let elsewhere = value.split(',').any(|part| {
                        let key = part.split('=').next().unwrap_or_default();
                        // `size` of a block, an inode or a log is a property of the file system.
                        leads_elsewhere(key) || (key == "size" && fs_type == FsType::Xfs && option == "-d")
                    });
                    if elsewhere {
                        return Err(refused("its value names another place or size than the volume's"));
                    }
                    if fs_type.is_ext() && option == "-E" {
                        extended.push(',');
                        extended.push_str(value);
                    } else {
                        arguments.push(option.clone());
                        arguments.push(value.clone());
                    }
                }
                _ => return Err(refused("it is not among those that only shape the file system")),
            }
        }
        if fs_type.is_ext() {
            arguments.extend(["-E".to_owned(), extended]);
        }
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn arguments(fs_type: FsType, text: &str) -> Result<String, MkfsOptionError> {
        let extended = "nodiscard";
        MkfsOptions::parse(text)
            .arguments(fs_type, &["-q"], extended)
            .map(|arguments| arguments.join(" "))
    }

    #[rstest]
    #[case::none(FsType::Ext4, "", "-q -E nodiscard")]
    #[case::example_of_go_driver(
        FsType::Ext4,
        "-E nodiscard,-O ^metadata_csum",
        "-q -O ^metadata_csum -E nodiscard,nodiscard"
    )]
    #[case::list_as_value(
        FsType::Ext4,
        "-E stride=16,stripe_width=64,-i 8192",
        "-q -i 8192 -E nodiscard,stride=16,stripe_width=64"
    )]
    #[case::value_attached(FsType::Ext4, "-m5 -b 4096", "-q -m 5 -b 4096 -E nodiscard")]
    #[case::xfs(FsType::Xfs, "-m reflink=0,crc=1 -i size=512", "-q -m reflink=0,crc=1 -i size=512")]
    #[case::feature_with_prefix_of_key(FsType::Ext4, "-O filetype,^64bit", "-q -O filetype,^64bit -E nodiscard")]
    #[case::btrfs(FsType::Btrfs, "--csum=xxhash,-m single", "-q --csum xxhash -m single")]
    fn parses_options_like_go_driver(#[case] fs_type: FsType, #[case] text: &str, #[case] given: &str) {
        assert_eq!(arguments(fs_type, text).as_deref(), Ok(given));
    }

    #[rstest]
    #[case::commas("-E stride=16,stripe_width=64,-i 8192", "-E stride=16,stripe_width=64 -i 8192")]
    #[case::white_space("-N  1000\t-q", "-N 1000 -q")]
    #[case::values_attached("-m5 --csum=xxhash", "-m 5 --csum xxhash")]
    #[case::none("", "")]
    fn prints_options_without_separating_commas(#[case] text: &str, #[case] printed: &str) {
        let options = MkfsOptions::parse(text);
        assert_eq!(options.to_string(), printed);
        assert_eq!(MkfsOptions::parse(printed), options);
    }

    #[rstest]
    #[case(FsType::Ext4, "/dev/sda")]
    #[case(FsType::Ext4, "-E offset=4096")]
    #[case(FsType::Ext4, "-J device=/dev/sda")]
    #[case(FsType::Ext4, "-n")]
    #[case(FsType::Ext4, "-d /etc")]
    #[case(FsType::Ext4, "-b")]
    #[case(FsType::Ext4, "-b 4096 8192")]
    #[case(FsType::Xfs, "-d name=/dev/sda")]
    #[case(FsType::Xfs, "-d size=1g")]
    #[case(FsType::Xfs, "-d file")]
    #[case(FsType::Xfs, "-d file=1,agcount=2")]
    #[case(FsType::Xfs, "-l logdev=/dev/sda,size=10m")]
    #[case(FsType::Xfs, "-r rtdev=/dev/sda")]
    #[case(FsType::Xfs, "-p proto")]
    #[case(FsType::Btrfs, "-r /etc")]
    #[case(FsType::Btrfs, "--rootdir=/etc")]
    #[case(FsType::Btrfs, "-b 1g")]
    #[case(FsType::Btrfs, "-K,/dev/sda")]
    fn refuses_options_beyond_the_volume(#[case] fs_type: FsType, #[case] text: &str) {
        let error = arguments(fs_type, text).expect_err("it is not given to mkfs");
        assert!(error.to_string().contains("mkfsOptions"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_becomes_a_path_argument(text in "[-a-zA-Z0-9=,./ ]{0,40}") {
            for fs_type in [FsType::Ext4, FsType::Xfs, FsType::Btrfs] {
                if let Ok(arguments) = MkfsOptions::parse(&text).arguments(fs_type, &[], "nodiscard") {
                    // Every argument is an option or the value of the preceding option.
                    let mut words = arguments.iter().peekable();
                    while let Some(word) = words.next() {
                        prop_assert!(word.starts_with('-'), "{arguments:?}");
                        if with_value(fs_type).contains(&word.as_str()) {
                            prop_assert!(words.next().is_some());
                        }
                    }
                }
            }
        }
    }
}
