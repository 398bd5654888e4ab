// SPDX-License-Identifier: Apache-2.0
//! Real connections in real time: reqwest, TLS, and the errors of broken connections.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cinder_cloud::{Cloud, CloudConfig, CloudError, CloudOptions, Login, TlsProblem, VolumeId};
use openstack_sim::{Effect, Fault, ServerSpec, Sim, SimConfig, TlsIdentity, When};

use crate::support::{NOTHING, ONE, Stage};

/// A simulator with a listening socket.
async fn stage() -> Stage {
    // Each test process installs it once. A second installation changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let config = SimConfig {
        servers: vec![ServerSpec::new(ONE)],
        ..SimConfig::default()
    };
    let sim = Sim::start(config).await.expect("the simulator starts");
    Stage::new(sim, CloudOptions::default())
}

async fn login_of(conf: &str) -> Result<Login, CloudError> {
    let mut config = CloudConfig::from_cloud_conf(conf).expect("good");
    config.tls.read_files();
    let options = CloudOptions {
        request_timeout: Duration::from_secs(1),
        ..CloudOptions::default()
    };
    Cloud::new(config, options).expect("a cloud").login().await
}

#[tokio::test]
async fn volume_lifecycle_over_real_connections() {
    let stage = stage().await;
    stage.life("pvc-1").await;
    assert!(stage.sim.state().volumes.is_empty());
}

#[tokio::test]
async fn reads_are_retried_after_closed_connections() {
    let stage = stage().await;
    for effect in [Effect::cut(When::Before), Effect::reset(When::After)] {
        let lost = Fault::on("get_volume").times(1).effect(effect);
        stage.sim.fault(lost).expect("a rule");
    }
    let volume = stage.cloud.volume(&VolumeId::new(NOTHING)).await.expect("in the end");
    assert_eq!(volume, None);
    assert_eq!(stage.counter.requests.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn timed_out_request_may_be_sent() {
    let stage = stage().await;
    stage
        .sim
        .fault(Fault::on("issue_token").effect(Effect::silence(When::Before)))
        .expect("a rule");
    let error = login_of(&stage.sim.access().cloud_conf()).await.expect_err("no answer");
    let CloudError::Unreachable { failure, sent: true } = &error else {
        panic!("{error:?}")
    };
    assert!(failure.fault.contains("timed out"), "{error}");
}

#[tokio::test]
async fn refused_connection_is_not_sent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    drop(listener);
    let conf = format!("[Global]\nauth-url=http://{address}\nuser-id=u\npassword=p\ntenant-id=t\n");
    let options = CloudOptions {
        request_timeout: Duration::from_secs(1),
        ..CloudOptions::default()
    };
    let cloud = Cloud::new(CloudConfig::from_cloud_conf(&conf).expect("good"), options).expect("a cloud");
    let error = cloud.login().await.expect_err("no service listens");
    assert!(
        matches!(error, CloudError::Unreachable { sent: false, .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().to_lowercase().contains("connection refused"),
        "{error}"
    );
}

#[tokio::test]
async fn tls_requires_ca_or_insecure_switch() {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let tls = TlsIdentity {
        certificate_pem: own.cert.pem(),
        key_pem: own.signing_key.serialize_pem(),
    };
    let servers = vec![ServerSpec::new(ONE)];
    let sim = Sim::start(SimConfig {
        tls: Some(tls),
        servers,
        ..SimConfig::default()
    })
    .await
    .expect("the simulator starts");
    let config = CloudConfig::from_cloud_conf(&sim.access().cloud_conf()).expect("good");
    assert!(config.auth_url.starts_with("https://"), "{}", config.auth_url);
    let login = async |change: &dyn Fn(&mut CloudConfig)| {
        let mut config = config.clone();
        change(&mut config);
        config.tls.read_files();
        let options = CloudOptions {
            request_timeout: Duration::from_secs(1),
            ..CloudOptions::default()
        };
        let cloud = Cloud::new(config, options).expect("a cloud");
        cloud.login().await.map(|_| ())
    };

    let error = login(&|_| {}).await.expect_err("an unknown issuer");
    let CloudError::Tls {
        problem, sent: false, ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(*problem, TlsProblem::UnknownIssuer);
    assert!(error.to_string().contains("set ca-file"), "{error}");

    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, own.cert.pem()).expect("written");
    login(&|config| config.tls.ca_file = Some(file.clone()))
        .await
        .expect("trusted by file");
    login(&|config| config.tls.ca_pem = Some(own.cert.pem()))
        .await
        .expect("trusted inline");
    login(&|config| config.tls.insecure = true).await.expect("not checked");
}

/// Serves TLS in front of `sim`, for clients with this certificate only. Returns the address.
async fn behind_mutual_tls(sim: &Sim, server: &TlsIdentity, client_pem: &str) -> std::net::SocketAddr {
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::RootCertStore;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::server::WebPkiClientVerifier;

    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate(client_pem)).expect("a root");
    let clients = WebPkiClientVerifier::builder(roots.into()).build().expect("a verifier");
    let key = PrivateKeyDer::from_pem_slice(server.key_pem.as_bytes()).expect("a key");
    let config = ServerConfig::builder()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate(&server.certificate_pem)], key)
        .expect("a configuration");
    let acceptor = TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let behind = sim.base_url().trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, behind) = (acceptor.clone(), behind.clone());
            tokio::spawn(async move {
                // A client without the certificate gets no connection.
                let Ok(mut outside) = acceptor.accept(stream).await else {
                    return;
                };
                let mut inside = tokio::net::TcpStream::connect(behind).await.expect("the simulator");
                drop(tokio::io::copy_bidirectional(&mut outside, &mut inside).await);
            });
        }
    });
    address
}

#[tokio::test]
async fn client_certificate_is_sent_to_keystone() {
    let stage = stage().await;
    let own = |name: &str| {
        let own = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        TlsIdentity {
            certificate_pem: own.cert.pem(),
            key_pem: own.signing_key.serialize_pem(),
        }
    };
    let (server, client) = (own("127.0.0.1"), own("csi"));
    let address = behind_mutual_tls(&stage.sim, &server, &client.certificate_pem).await;
    let access = stage.sim.access();
    let conf = access
        .cloud_conf()
        .replace(&access.base_url, &format!("https://{address}"));
    assert!(conf.contains("https://"), "{conf}");
    let folder = tempfile::tempdir().expect("folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let (ca, cert, key) = (
        file("ca.pem", &server.certificate_pem),
        file("cert.pem", &client.certificate_pem),
        file("key.pem", &client.key_pem),
    );
    let with_ca = format!("{conf}\n[Global]\nca-file={}\n", ca.display());
    let error = login_of(&with_ca).await.expect_err("no certificate");
    let CloudError::Tls { problem, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*problem, TlsProblem::ClientCertificate);
    let with = |key: &std::path::Path| format!("{with_ca}cert-file={}\nkey-file={}\n", cert.display(), key.display());
    login_of(&with(&key)).await.expect("logged in");

    let mut config = CloudConfig::from_cloud_conf(&with(&ca)).expect("well-formed");
    config.tls.read_files();
    let error = Cloud::new(config, CloudOptions::default())
        .expect_err("no key in it")
        .to_string();
    assert!(
        error.contains("ca.pem") && error.contains("cert.pem") && !error.contains("BEGIN"),
        "{error}"
    );
}
