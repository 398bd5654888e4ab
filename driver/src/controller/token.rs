// SPDX-License-Identifier: Apache-2.0
//! Tokens that mark a position in a list.
//!
//! A token contains the number of the cached lists, a cloud and the last returned entry. The next page begins after
//! that entry in the order of ids, even if the entry was deleted.

use std::fmt;

use cinder_cloud::VolumeId;

/// The list that a token belongs to. A token of another list is invalid.
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

/// A position in a list over several clouds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PagePosition {
    /// The number of the cached lists from which the next page is taken.
    pub(super) list_id: u32,
    /// The name of the cloud.
    pub(super) cloud: String,
    /// The last returned entry.
    pub(super) after: VolumeId,
}

impl PagePosition {
    /// Formats the token for this position. It has 72 characters; CSI allows 128.
    ///
    /// It contains a letter for the list, a hash of the cloud's name, the number of the cached lists, the id and a
    /// checksum. The name itself may exceed the limit.
    pub(super) fn token(&self, list: List) -> String {
        let body = Body {
            list,
            cloud: hash(&self.cloud),
            list_id: self.list_id,
            after: self.after.as_str(),
        };
        let body = body.to_string();
        format!("{body}.{:08x}", check(&body))
    }

    /// Parses a token; `None` if the token is invalid or its cloud is no longer served.
    pub(super) fn parse<'a>(list: List, token: &str, clouds: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (body, sum) = token.rsplit_once('.')?;
        if sum != format!("{:08x}", check(body)) {
            return None;
        }
        let rest = body.strip_prefix(list.letter())?;
        let (cloud, rest) = rest.split_once('.')?;
        let (list_id, after) = rest.split_once('.')?;
        let list_id = u32::from_str_radix(list_id, 16).ok()?;
        let after = VolumeId::new(after);
        let mut clouds = clouds.filter(|name| format!("{:016x}", hash(name)) == cloud);
        clouds.next().filter(|_| after.is_uuid()).map(|name| Self {
            list_id,
            cloud: name.to_owned(),
            after,
        })
    }
}

struct Body<'a> {
    list: List,
    cloud: u64,
    list_id: u32,
    after: &'a str,
}

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{:016x}.{:08x}.{}",
            self.list.letter(),
            self.cloud,
            self.list_id,
            self.after
        )
    }
}

/// Half of the hash is enough to detect texts that are not tokens.
fn check(text: &str) -> u64 {
    hash(text) & 0xffff_ffff
}

/// FNV-1a. The result is the same in every process and every version of this program.
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

    fn position(cloud: &str) -> PagePosition {
        PagePosition {
            list_id: 7,
            cloud: cloud.into(),
            after: VolumeId::new(ID),
        }
    }

    #[rstest]
    #[case("")]
    #[case("east")]
    #[case(&"a cloud with a long name ".repeat(20))]
    fn token_round_trips_and_is_short(#[case] cloud: &str) {
        let token = position(cloud).token(List::Volumes);
        assert!(token.len() <= 72, "{token}");
        let read = PagePosition::parse(List::Volumes, &token, ["", "east", cloud].into_iter());
        assert_eq!(read, Some(position(cloud)));
    }

    #[test]
    fn rejects_foreign_token() {
        let token = position("east").token(List::Volumes);
        let read = |text: &str| PagePosition::parse(List::Volumes, text, ["east"].into_iter());
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
        assert_eq!(PagePosition::parse(List::Health, &token, ["east"].into_iter()), None);
        assert_eq!(PagePosition::parse(List::Volumes, &token, ["west"].into_iter()), None);
    }
}
