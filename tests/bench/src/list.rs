// SPDX-License-Identifier: Apache-2.0
//! Measures ListVolumes of both drivers in a project with very many volumes. Reads all pages as external-attacher does
//! every minute, first without changes and then while volumes change between the pages. The cloud is the simulator,
//! which answers without latency.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use csi_proto::csi::v1::controller_client::ControllerClient;
use csi_proto::csi::v1::{CapacityRange, ControllerExpandVolumeRequest, ListVolumesRequest};
use suites::drivers::{Driver, Go, Ours, Role};
use suites::lab::Lab;
use suites::simulator::Simulator;
use tonic::transport::Channel;

use crate::process::{Memory, Processor, memory, processor_time};
use crate::table::{Goal, Row, count, mib, ms, table};

/// Page size of external-attacher.
const PAGE: i32 = 500;
/// Number of pages between two changes of a volume.
const PAGES_PER_CHANGE: usize = 10;
/// Pause between two walks. Our driver drops a list cursor one minute after its last page, and a cached list within
/// seconds.
const REST: Duration = Duration::from_secs(70);
const GIB: i64 = 1 << 30;

/// Figures of one driver.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    idle: Memory,
    /// A walk without changes.
    alone: ListWalk,
    /// A walk during which volumes grow between the pages.
    busy: ListWalk,
    walked: Memory,
    rested: Memory,
}

#[derive(Debug, Clone, Default)]
struct ListWalk {
    /// Number of list requests to Cinder, without the requests that the changes themselves cause.
    lists: usize,
    wall: Duration,
    processor: Duration,
    entries: Vec<String>,
}

/// Measures our driver, then the Go driver, each on its own cloud with this number of volumes.
pub(crate) async fn both(lab: &Lab, volumes: u32, program: &Path) -> Result<(Figures, Figures)> {
    let cloud = Simulator::start_with_volumes(lab, volumes).await?;
    let ours = Ours::new(Role::Controller).json_log().program(program.to_owned());
    let ours = measure(ours.start(lab, &cloud).await?, &cloud, volumes).await;
    let ours = ours.context("our driver")?;
    let go = Go::new(Role::Controller).start(lab, &cloud).await?;
    let go = measure(go, &cloud, volumes).await.context("the Go driver")?;
    cloud.stop().await?;
    Ok((ours, go))
}

async fn measure(driver: Driver, cloud: &Simulator, volumes: u32) -> Result<Figures> {
    let pid = driver.pid()?;
    let client = ControllerClient::new(driver.channel());
    // The first request logs in and fetches the service catalog.
    client.clone().list_volumes(page(String::new())).await?;
    tokio::time::sleep(REST).await;
    let idle = memory(pid)?;
    let measured = async |changes: &[String]| -> Result<ListWalk> {
        let (before, processor) = (lists(cloud).await?, processor_time(pid)?);
        let walked = read_pages(client.clone(), changes).await?;
        let Processor { own, .. } = processor_time(pid)?;
        Ok(ListWalk {
            lists: lists(cloud).await? - before,
            processor: own.saturating_sub(processor.own),
            ..walked
        })
    };
    let alone = measured(&[]).await?;
    ensure!(
        alone.entries.len() == usize::try_from(volumes)?,
        "the walk found {} volumes",
        alone.entries.len()
    );
    let grown = |from: usize| {
        let changes = alone.entries.len() / usize::try_from(PAGE).unwrap_or(usize::MAX) / PAGES_PER_CHANGE;
        alone
            .entries
            .iter()
            .skip(from)
            .take(changes)
            .cloned()
            .collect::<Vec<_>>()
    };
    let (first, second) = (grown(0), grown(alone.entries.len() / 2));
    let before = lists(cloud).await?;
    for volume in &first {
        expand(client.clone(), volume).await?;
    }
    let of_changes = lists(cloud).await? - before;
    let mut busy = measured(&second).await?;
    busy.lists = busy.lists.saturating_sub(of_changes);
    let walked = memory(pid)?;
    tokio::time::sleep(REST).await;
    let rested = memory(pid)?;
    driver.stop().await?;
    Ok(Figures {
        idle,
        alone,
        busy,
        walked,
        rested,
    })
}

fn page(starting_token: String) -> ListVolumesRequest {
    ListVolumesRequest {
        max_entries: PAGE,
        starting_token,
    }
}

/// Reads all pages. Extends one of the listed volumes after every [`PAGES_PER_CHANGE`] pages.
async fn read_pages(mut client: ControllerClient<Channel>, changes: &[String]) -> Result<ListWalk> {
    let began = Instant::now();
    let mut changes = changes.iter();
    let (mut entries, mut token) = (Vec::new(), String::new());
    for number in 1.. {
        let answer = client
            .list_volumes(page(token))
            .await
            .context("ListVolumes")?
            .into_inner();
        entries.extend(
            answer
                .entries
                .into_iter()
                .filter_map(|entry| Some(entry.volume?.volume_id)),
        );
        token = answer.next_token;
        if token.is_empty() {
            break;
        }
        if number % PAGES_PER_CHANGE == 0
            && let Some(volume) = changes.next()
        {
            expand(client.clone(), volume).await?;
        }
    }
    Ok(ListWalk {
        wall: began.elapsed(),
        entries,
        ..ListWalk::default()
    })
}

async fn expand(mut client: ControllerClient<Channel>, volume: &str) -> Result<()> {
    let request = ControllerExpandVolumeRequest {
        volume_id: volume.to_owned(),
        capacity_range: Some(CapacityRange {
            required_bytes: 2 * GIB,
            limit_bytes: 0,
        }),
        ..ControllerExpandVolumeRequest::default()
    };
    let answer = client.controller_expand_volume(request).await;
    answer.context("ControllerExpandVolume").map(drop)
}

/// Returns the number of volume lists that Cinder has answered so far.
async fn lists(cloud: &Simulator) -> Result<usize> {
    cloud.accepted("list_volumes_detail").await
}

/// Renders the table of both drivers' figures.
pub(crate) fn render(volumes: u32, ours: &Figures, go: &Figures) -> String {
    let mut rows = Vec::new();
    let mut add = |what: &str, unit: &'static str, goal: Option<Goal>, figure: fn(&Figures) -> f64| {
        rows.push(Row {
            what: what.to_owned(),
            ours: Some(figure(ours)),
            go: Some(figure(go)),
            unit,
            goal,
        });
    };
    // The goal: as many requests as without changes, plus the first page of a second walk.
    let lists = Goal::AtMost(count(ours.alone.lists + 1));
    add("walk: lists asked of Cinder", "", None, |of| count(of.alone.lists));
    add("walk while volumes change: lists", "", Some(lists), |of| {
        count(of.busy.lists)
    });
    add("walk: seconds", "s", None, |of| of.alone.wall.as_secs_f64());
    add("walk: processor time", "ms", None, |of| ms(of.alone.processor));
    add("walk while volumes change: processor time", "ms", None, |of| {
        ms(of.busy.processor)
    });
    add("resident memory before", "MiB", None, |of| mib(of.idle.now));
    add("resident memory, most so far", "MiB", Some(Goal::AtMost(40.0)), |of| {
        mib(of.walked.most)
    });
    add("resident memory 70 s after the last page", "MiB", None, |of| {
        mib(of.rested.now)
    });
    table(
        &format!("Lists of {volumes} volumes in pages of {PAGE}, simulator"),
        rows,
    )
}
