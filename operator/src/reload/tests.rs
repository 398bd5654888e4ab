// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;

use rstest::rstest;

use super::*;

const MINUTE: Duration = Duration::from_mins(1);

/// Answers for pods by their address.
#[derive(Debug, Clone, Default)]
struct Scripted {
    hashes: Arc<Mutex<HashMap<SocketAddr, String>>>,
    asked: Arc<Mutex<usize>>,
}

impl Scripted {
    fn say(&self, pod: u8, hash: &str) {
        self.hashes
            .lock()
            .expect("no poison")
            .insert(address(pod), hash.to_owned());
    }

    fn asked(&self) -> usize {
        *self.asked.lock().expect("no poison")
    }
}

impl Scrape for Scripted {
    fn metrics(&self, address: SocketAddr, _: bool) -> BoxFuture<'_, Result<String, String>> {
        *self.asked.lock().expect("no poison") += 1;
        let hash = self.hashes.lock().expect("no poison").get(&address).cloned();
        Box::pin(async move {
            let hash = hash.ok_or("no answer")?;
            Ok(format!(
                "HTTP/1.0 200 OK\r\n\r\n# HELP x y\ncinder_csi_config_loaded_info{{hash=\"{hash}\"}} 1\n"
            ))
        })
    }
}

fn address(pod: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, pod], 8080))
}

fn pod(number: u8) -> ControllerPod {
    ControllerPod {
        uid: format!("uid-{number}"),
        address: Some(address(number)),
        is_secure: false,
    }
}

fn mk() -> (Scripted, Reloads) {
    let scrape = Scripted::default();
    (scrape.clone(), Reloads::new(Box::new(scrape), LIMIT))
}

#[rstest]
#[case("cinder_csi_config_loaded_info{hash=\"abc\"} 1", Some("abc"))]
#[case(
    "a 1\ncinder_csi_config_loaded_info{hash=\"abc\"} 0\ncinder_csi_config_loaded_info{hash=\"def\"} 1",
    Some("def")
)]
#[case("# HELP cinder_csi_config_loaded_info The configuration in use", None)]
#[case("", None)]
fn the_hash_is_read_from_the_metrics(#[case] text: &str, #[case] hash: Option<&str>) {
    assert_eq!(loaded_hash(text), hash);
}

#[rstest]
#[case::plain(false, &["--endpoint=x"])]
#[case::over_tls(true, &["--endpoint=x", "--secure-metrics=true"])]
#[tokio::test]
async fn a_pod_is_asked_in_the_way_that_it_answers(#[case] is_secure: bool, #[case] args: &[&str]) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let build = csi_kit::metrics::BuildInfo {
        program: "tester",
        version: "1.2.3",
        revision: "",
    };
    let mut server = csi_kit::admin::AdminServer::new(csi_kit::metrics::Metrics::new(build).expect("registers"));
    if is_secure {
        let certificate = csi_kit::tls::Certificate::self_signed("tester").expect("made");
        let config = csi_kit::tls::TlsOptions::default().server_config(certificate);
        server = server.secure_metrics(config.expect("usual"));
    }
    let address = "127.0.0.1:0".parse().expect("an address");
    let server = server.bind(&address).await.expect("listens");
    let port = server.local_addr().port();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(server.serve(shutdown.clone()));
    let pod = serde_json::from_value(serde_json::json!({
        "metadata": { "uid": "u" },
        "spec": { "containers": [
            { "name": "cinder-csi-driver", "args": args, "ports": [{ "name": "http", "containerPort": port }] }] },
        "status": { "phase": "Running", "podIP": "127.0.0.1" },
    }));
    let pod = of_pod(&pod.expect("a pod"));

    let text = Http.metrics(pod.address.expect("it runs"), pod.is_secure).await;

    assert_eq!(pod.is_secure, is_secure);
    assert!(text.expect("an answer").contains("tester_build_info"));
    shutdown.cancel();
    serving.await.expect("no panic").expect("ends well");
}

#[tokio::test(start_paused = true)]
async fn a_reload_is_confirmed_when_every_pod_says_so_and_then_no_pod_is_asked_again() {
    let (scrape, reloads) = mk();
    let pods = [pod(1), pod(2)];
    scrape.say(1, "new");
    scrape.say(2, "old");
    assert_eq!(reloads.ask("d", "new", &pods).await, Some(false));
    scrape.say(2, "new");
    assert_eq!(reloads.ask("d", "new", &pods).await, Some(true));
    let asked = scrape.asked();
    assert_eq!(reloads.ask("d", "new", &pods).await, Some(true));
    assert_eq!(scrape.asked(), asked);
    tokio::time::advance(LIMIT).await;
    assert!(
        !reloads.is_overdue("d", "new"),
        "nothing is replaced that is as it should be"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_taken_over_counts_once_as_a_reload() {
    let (scrape, reloads) = mk();
    scrape.say(1, "old");
    reloads.ask("d", "old", &[pod(1)]).await;
    assert_eq!(reloads.rotated("d", "old"), None, "the first credentials are no change");
    scrape.say(1, "new");
    reloads.ask("d", "new", &[pod(1)]).await;
    assert_eq!(reloads.rotated("d", "new"), Some("reload"));
    assert_eq!(reloads.rotated("d", "new"), None);
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_not_take_it_over_in_time_are_replaced_once() {
    let (scrape, reloads) = mk();
    scrape.say(1, "old");
    reloads.ask("d", "old", &[pod(1)]).await;
    reloads.ask("d", "new", &[pod(1)]).await;
    tokio::time::advance(LIMIT.saturating_sub(MINUTE)).await;
    assert!(!reloads.is_overdue("d", "new"));
    tokio::time::advance(MINUTE).await;
    assert!(reloads.is_overdue("d", "new"));
    assert!(!reloads.is_lost("d", "new"));
    scrape.say(2, "new");
    assert_eq!(reloads.ask("d", "new", &[pod(2)]).await, Some(true));
    assert_eq!(reloads.rotated("d", "new"), Some("restart"));
    assert!(
        reloads.is_overdue("d", "new"),
        "the annotation stays, or the pods would be replaced again"
    );
    assert!(!reloads.is_overdue("d", "newer"), "another change has its own time");
}

#[tokio::test(start_paused = true)]
async fn pods_that_tell_nothing_even_after_they_were_replaced_are_told_of() {
    let (scrape, reloads) = mk();
    scrape.say(1, "old");
    reloads.ask("d", "new", &[pod(1)]).await;
    tokio::time::advance(LIMIT).await;
    assert!(reloads.is_overdue("d", "new"));
    reloads.ask("d", "new", &[pod(1)]).await;
    tokio::time::advance(LIMIT).await;
    assert!(reloads.is_lost("d", "new"));
}

#[tokio::test(start_paused = true)]
async fn without_a_running_pod_nothing_is_said_and_nothing_replaced() {
    let (_, reloads) = mk();
    let pending = ControllerPod {
        uid: "u".to_owned(),
        address: None,
        is_secure: false,
    };
    assert_eq!(reloads.ask("d", "new", &[pending]).await, None);
    tokio::time::advance(LIMIT).await;
    assert!(!reloads.is_overdue("d", "new"));
}
