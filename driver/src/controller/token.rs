// SPDX-License-Identifier: Apache-2.0
//! Where a list goes on. A token names a walk, a cloud and the last entry that was shown; the next page begins behind it in the order
//! of ids, whether that entry still exists or not.

use std::fmt;

use cinder_cloud::VolumeId;

/// What a token is good for: one of another list is a bad one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Volumes,
    Health,
    Snapshots,
}

impl List {
    fn letter(self) -> char {
        match self {
            Self::Volumes => 'v',
            Self::Health => 'h',
            Self::Snapshots => 's',
        }
    }
}

/// A place in a list over several clouds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PagePosition {
    /// The walk, whose lists the next page is cut from where they are still kept.
    pub(super) walk: u32,
    /// The cloud, by its name.
    pub(super) cloud: String,
    /// The last entry that was shown.
    pub(super) after: VolumeId,
}

impl PagePosition {
    /// The token for this place: a letter for the list, a hash of the cloud's name (which may be longer than a token), the walk, the id
    /// and a check of all that. 72 characters; CSI allows 128.
    pub(super) fn token(&self, list: List) -> String {
        let body = Body {
            list,
            cloud: hash(&self.cloud),
            walk: self.walk,
            after: self.after.as_str(),
        };
        let body = body.to_string();
        format!("{body}.{:08x}", check(&body))
    }

    /// The place that a token names among these clouds; `None` for one that is none of ours, or whose cloud is not there any more.
    pub(super) fn read<'a>(list: List, token: &str, clouds: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (body, sum) = token.rsplit_once('.')?;
        if sum != format!("{:08x}", check(body)) {
            return None;
        }
        let rest = body.strip_prefix(list.letter())?;
        let (cloud, rest) = rest.split_once('.')?;
        let (walk, after) = rest.split_once('.')?;
        let walk = u32::from_str_radix(walk, 16).ok()?;
        let after = VolumeId::new(after);
        let mut clouds = clouds.filter(|name| format!("{:016x}", hash(name)) == cloud);
        clouds.next().filter(|_| after.is_uuid()).map(|name| Self {
            walk,
            cloud: name.to_owned(),
            after,
        })
    }
}

struct Body<'a> {
    list: List,
    cloud: u64,
    walk: u32,
    after: &'a str,
}

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{:016x}.{:08x}.{}",
            self.list.letter(),
            self.cloud,
            self.walk,
            self.after
        )
    }
}

/// The lower half of the hash is enough to tell a token from a text that only looks like one.
fn check(text: &str) -> u64 {
    hash(text) & 0xffff_ffff
}

/// FNV-1a, whose result is the same in every process and every version of this program.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ID: &str = "11111111-2222-4333-8444-555555555555";

    fn place(cloud: &str) -> PagePosition {
        PagePosition {
            walk: 7,
            cloud: cloud.into(),
            after: VolumeId::new(ID),
        }
    }

    #[rstest]
    #[case("")]
    #[case("east")]
    #[case(&"a cloud with a long name ".repeat(20))]
    fn a_token_leads_back_to_its_place_and_is_short(#[case] cloud: &str) {
        let token = place(cloud).token(List::Volumes);
        assert!(token.len() <= 72, "{token}");
        let read = PagePosition::read(List::Volumes, &token, ["", "east", cloud].into_iter());
        assert_eq!(read, Some(place(cloud)));
    }

    #[test]
    fn a_token_that_is_none_of_ours_leads_nowhere() {
        let token = place("east").token(List::Volumes);
        let read = |text: &str| PagePosition::read(List::Volumes, text, ["east"].into_iter());
        for bad in [
            "",
            "invalid-token",
            ID,
            &token[1..],
            &token[..token.len() - 1],
            &token.replace("1111-", "1112-"),
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(PagePosition::read(List::Health, &token, ["east"].into_iter()), None);
        assert_eq!(PagePosition::read(List::Volumes, &token, ["west"].into_iter()), None);
    }
}
