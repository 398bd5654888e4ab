// SPDX-License-Identifier: Apache-2.0
//! Converts a capacity range in bytes to a size of Cinder.

use cinder_cloud::GiB;
use csi_proto::csi::v1::CapacityRange;
use tonic::Status;

use crate::status;

const FIELD: &str = "capacity_range";

/// Returns the size of a new volume: the required bytes rounded up to whole GiB, or 1 GiB if nothing is required.
///
/// `OUT_OF_RANGE` if the size exceeds the limit or a signed 64-bit number of bytes.
pub(super) fn size(range: Option<&CapacityRange>) -> Result<GiB, Status> {
    let Some(range) = range else { return smallest(0) };
    let (Ok(required), Ok(limit)) = (u64::try_from(range.required_bytes), u64::try_from(range.limit_bytes)) else {
        return Err(status::invalid(FIELD, "bytes cannot be negative"));
    };
    if required == 0 && limit == 0 {
        return Err(status::invalid(FIELD, "it needs required_bytes, limit_bytes or both"));
    }
    if limit != 0 && required > limit {
        return Err(status::invalid(
            FIELD,
            format_args!("required_bytes {required} is more than limit_bytes {limit}"),
        ));
    }
    let size = smallest(required)?;
    if limit != 0 && size.bytes() > limit {
        return Err(status::out_of_range(format_args!(
            "Cinder makes volumes of whole GiB: {required} bytes become {size}, which is more than the limit of {limit} bytes"
        )));
    }
    Ok(size)
}

/// Returns the maximum number of bytes; `None` if the range sets no limit.
pub(super) fn limit(range: &CapacityRange) -> Option<u64> {
    u64::try_from(range.limit_bytes).ok().filter(|limit| *limit > 0)
}

/// Returns the largest size in whole GiB within the limit; `None` if the range sets no limit.
pub(super) fn largest(range: Option<&CapacityRange>) -> Option<GiB> {
    limit(range?).and_then(|limit| GiB::new(limit >> 30))
}

fn smallest(bytes: u64) -> Result<GiB, Status> {
    GiB::from_bytes_rounded_up(bytes)
        .filter(|size| i64::try_from(size.bytes()).is_ok())
        .ok_or_else(|| status::out_of_range(format_args!("{bytes} bytes are more than any volume can have")))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use tonic::Code;

    use super::*;

    const GIB: i64 = 1 << 30;

    #[rstest]
    #[case(None, Ok(1))]
    #[case(Some((1, 0)), Ok(1))]
    #[case(Some((GIB, GIB)), Ok(1))]
    #[case(Some((GIB + 1, 0)), Ok(2))]
    #[case(Some((GIB + 1, 2 * GIB)), Ok(2))]
    #[case(Some((0, GIB)), Ok(1))]
    #[case(Some((0, GIB - 1)), Err(Code::OutOfRange))]
    #[case(Some((GIB + 1, 2 * GIB - 1)), Err(Code::OutOfRange))]
    #[case(Some((i64::MAX, 0)), Err(Code::OutOfRange))]
    #[case(Some((0, 0)), Err(Code::InvalidArgument))]
    #[case(Some((-1, 0)), Err(Code::InvalidArgument))]
    #[case(Some((0, -1)), Err(Code::InvalidArgument))]
    #[case(Some((2 * GIB, GIB)), Err(Code::InvalidArgument))]
    fn capacity_range_rounds_up_to_whole_gib(#[case] range: Option<(i64, i64)>, #[case] expected: Result<u64, Code>) {
        let range = range.map(|(required_bytes, limit_bytes)| CapacityRange {
            required_bytes,
            limit_bytes,
        });
        assert_eq!(
            size(range.as_ref()).map(GiB::get).map_err(|status| status.code()),
            expected
        );
    }
}
