// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use proptest::prelude::*;
use tokio::sync::oneshot;
use tonic::Code;

use super::*;

fn operations() -> Operations {
    Operations::new(Limits::default())
}

fn volume() -> Target {
    Target::Volume("v".into())
}

/// Returns an operation and the sender that ends it with a result.
fn held() -> (
    oneshot::Sender<u32>,
    impl Future<Output = Result<u32, Status>> + Send + 'static,
) {
    let (sender, receiver) = oneshot::channel();
    (sender, async move {
        receiver.await.map_err(|_| Status::internal("the test let go"))
    })
}

fn never() -> impl Future<Output = Result<u32, Status>> + Send + 'static {
    std::future::pending()
}

fn soon() -> Deadline {
    Deadline::within(Duration::from_secs(1))
}

fn later() -> Deadline {
    Deadline::within(Duration::from_mins(1))
}

/// Runs every runnable task until it waits.
async fn settle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn call_returns_result_of_work() {
    let operations = operations();
    let answer = operations.run("Create", volume(), 1, soon(), |_| async { Ok(7) }).await;
    assert_eq!(answer.expect("it worked"), 7);
    let refused: Result<u32, _> = operations
        .run("Create", volume(), 1, soon(), |_| async {
            Err(Status::not_found("gone"))
        })
        .await;
    assert_eq!(refused.expect_err("it failed").code(), Code::NotFound);
    assert_eq!(operations.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn equal_requests_share_one_result() {
    let operations = operations();
    let (finish, work) = held();
    let first = operations.run("Create", volume(), "q", later(), |_| work);
    let second = operations.run(
        "Create",
        volume(),
        "q",
        later(),
        |_| -> futures::future::Ready<Result<u32, Status>> { unreachable!("a joined call starts no work") },
    );
    let (first, second, ()) = tokio::join!(first, second, async {
        settle().await;
        assert_eq!(operations.running(), 1);
        finish.send(5).expect("the work listens");
    });
    assert_eq!((first.expect("first"), second.expect("second")), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn different_request_for_same_volume_is_aborted() {
    let operations = operations();
    let (_hold, work) = held();
    let started = operations.run("Publish", volume(), "node-a", soon(), |progress| {
        progress.set("attaching");
        work
    });
    let others = async {
        settle().await;
        let other_node = operations.run("Publish", volume(), "node-b", soon(), |_| never()).await;
        let other_rpc = operations.run("Delete", volume(), "node-a", soon(), |_| never()).await;
        let other_type = operations.run("Publish", volume(), 5, soon(), |_| never()).await;
        for refused in [other_node, other_rpc, other_type] {
            let status = refused.expect_err("the volume is busy");
            assert_eq!(status.code(), Code::Aborted);
            assert!(
                status.message().contains("Publish") && status.message().contains("attaching"),
                "{status}"
            );
        }
        let elsewhere = operations
            .run("Publish", Target::Volume("w".into()), 1, soon(), |_| async { Ok(1) })
            .await;
        assert_eq!(elsewhere.expect("another volume is free"), 1);
    };
    let (started, ()) = tokio::join!(started, others);
    assert_eq!(started.expect_err("nobody ended it").code(), Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn timeout_reports_state_and_retry_joins_work() {
    let operations = operations();
    let (finish, work) = held();
    let status = operations
        .run("Create", volume(), "q", soon(), |progress| {
            progress.set("waiting for the volume to become available");
            progress.follow(|| Some("last seen creating".into()));
            work
        })
        .await
        .expect_err("not finished");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(
        status.message().contains("waiting for the volume to become available"),
        "{status}"
    );
    assert!(status.message().contains("last seen creating"), "{status}");
    assert_eq!(operations.running(), 1);

    let retry = operations.run("Create", volume(), "q", later(), |_| never());
    let (answer, ()) = tokio::join!(retry, async {
        settle().await;
        finish.send(9).expect("the work goes on");
    });
    assert_eq!(answer.expect("joined"), 9);
}

#[tokio::test(start_paused = true)]
async fn disconnected_caller_does_not_cancel_work() {
    let operations = operations();
    let (finish, work) = held();
    let done = Arc::new(AtomicUsize::new(0));
    let counter = done.clone();
    let call = operations.run("Create", volume(), (), later(), |_| async move {
        let value = work.await;
        counter.fetch_add(1, Ordering::SeqCst);
        value
    });
    assert!(call.now_or_never().is_none(), "the call is dropped while it waits");
    finish.send(1).expect("the work lives");
    settle().await;
    assert_eq!((done.load(Ordering::SeqCst), operations.running()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn work_can_detect_waiting_callers() {
    let operations = operations();
    let asked: Arc<Mutex<Vec<bool>>> = Arc::default();
    let work = |length: u64| {
        let asked = asked.clone();
        move |_| async move {
            for _ in 0..length {
                tokio::time::sleep(Duration::from_secs(1)).await;
                asked.lock().push(CallerLiveness::is_work_of_task());
            }
            Ok(0)
        }
    };
    let call = |seconds: u64| {
        let deadline = Deadline::within(Duration::from_millis(seconds * 1000 + 500));
        operations.run("Create", volume(), (), deadline, work(4))
    };
    let first: Result<u32, _> = call(1).await;
    assert_eq!(first.expect_err("it is still running").code(), Code::DeadlineExceeded);
    tokio::time::sleep(Duration::from_secs(1)).await;
    // A later caller joins it.
    call(3).await.expect("done");
    assert_eq!(*asked.lock(), [true, false, true, true]);
    assert!(CallerLiveness::is_work_of_task(), "what is no operation has no callers");
}

#[tokio::test(start_paused = true)]
async fn unawaited_result_is_dropped() {
    let operations = operations();
    let call = operations.run("Create", volume(), (), later(), |_| async { Ok(1) });
    assert!(call.now_or_never().is_none());
    settle().await;
    let next = operations
        .run("Create", volume(), (), later(), |_| async { Ok(2) })
        .await;
    assert_eq!(next.expect("fresh work"), 2);
}

#[tokio::test(start_paused = true)]
async fn panic_in_work_is_not_final() {
    let operations = operations();
    let broken: Result<u32, _> = operations
        .run("Create", volume(), (), later(), |_| async { panic!("on purpose") })
        .await;
    assert_eq!(broken.expect_err("panicked").code(), Code::Unavailable);
    assert_eq!(
        operations
            .run("Create", volume(), (), later(), |_| async { Ok(3) })
            .await
            .expect("free again"),
        3
    );
}

#[tokio::test(start_paused = true)]
async fn operation_limit_does_not_prevent_joining() {
    let operations = Operations::new(Limits {
        running: 2,
        ..Limits::default()
    });
    for name in ["a", "b"] {
        let call = operations.run("Create", Target::Name(name.into()), (), later(), |_| never());
        assert!(call.now_or_never().is_none());
    }
    let third = operations
        .run("Create", Target::Name("c".into()), (), soon(), |_| never())
        .await;
    assert_eq!(third.expect_err("full").code(), Code::Unavailable);
    let joined = operations
        .run("Create", Target::Name("a".into()), (), soon(), |_| never())
        .await;
    assert_eq!(joined.expect_err("still running").code(), Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_running_and_refuses_new_operations() {
    let operations = operations();
    let (finish, work) = held();
    assert!(
        operations
            .run("Create", volume(), (), later(), |_| work)
            .now_or_never()
            .is_none()
    );
    let (left, ()) = tokio::join!(operations.close(Duration::from_secs(10)), async {
        settle().await;
        let refused = operations
            .run("Create", Target::Name("n".into()), (), soon(), |_| never())
            .await;
        assert_eq!(refused.expect_err("closed").code(), Code::Unavailable);
        finish.send(1).expect("the work lives");
    });
    assert_eq!(left, 0);
}

#[tokio::test(start_paused = true)]
async fn close_respects_time_limit() {
    let operations = operations();
    assert!(
        operations
            .run("Create", volume(), (), later(), |_| never())
            .now_or_never()
            .is_none()
    );
    let before = Instant::now();
    assert_eq!(operations.close(Duration::from_secs(10)).await, 1);
    assert_eq!(before.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn abort_ends_running_and_refuses_new_operations() {
    let operations = operations();
    let (work, dropped) = oneshot::channel::<()>();
    let running = operations.run("Create", volume(), (), later(), |_| async move {
        let _held = work;
        never().await
    });
    let (answer, ()) = tokio::join!(running, async { operations.abort() });
    assert_eq!(answer.expect_err("it did not end by itself").code(), Code::Unavailable);
    assert!(dropped.await.is_err(), "the work is gone");
    assert_eq!(operations.running(), 0);
    let later = operations.run("Create", volume(), (), later(), |_| never()).await;
    assert_eq!(later.expect_err("refused").code(), Code::Unavailable);
}

proptest! {
    /// Properties of any sequence of calls:
    ///
    /// * Operations on one volume never overlap.
    /// * Every call that started or joined an operation gets the result of its own request. Every other call is
    ///   ABORTED.
    /// * The table is empty at the end.
    #[test]
    fn operations_on_one_volume_never_overlap(
        calls in prop::collection::vec((0..3_u8, 0..3_u8, 0..40_u64, 0..40_u64), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let operations = operations();
            let busy: Arc<Mutex<BTreeMap<u8, u32>>> = Arc::default();
            let answers = join_all(calls.iter().map(|&(volume, request, delay, length)| {
                let (operations, busy) = (operations.clone(), busy.clone());
                async move {
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                    let target = Target::Volume(volume.to_string());
                    let answer = operations
                        .run("Work", target, request, later(), |_| async move {
                            *busy.lock().entry(volume).or_default() += 1;
                            tokio::time::sleep(Duration::from_millis(length)).await;
                            let mut busy = busy.lock();
                            let at_once = busy.insert(volume, 0);
                            assert_eq!(at_once, Some(1), "two operations on one volume at once");
                            Ok((volume, request))
                        })
                        .await;
                    ((volume, request), answer)
                }
            }))
            .await;
            for (asked, answer) in answers {
                match answer {
                    Ok(answer) => assert_eq!(answer, asked),
                    Err(status) => assert_eq!(status.code(), Code::Aborted, "{status}"),
                }
            }
            assert_eq!(operations.running(), 0);
        });
    }
}
