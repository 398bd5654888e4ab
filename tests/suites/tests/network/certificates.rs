// SPDX-License-Identifier: Apache-2.0
//! Certificates of Keystone as administrators create them, with openssl or a private CA.

use anyhow::{Context as _, Result};
use harness::wait_for_some;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use suites::expect::expect_parts;
use suites::lab::{Lab, in_lab};
use suites::process::Process;
use suites::simulator::Simulator;
use tokio::net::TcpStream;

use crate::servers::{ServerIdentity, TlsServer};
use crate::site::{KEYSTONE, KEYSTONE_PORT, LOOPBACK, SIMULATOR_PORT, controller, edit_conf, replace_file, try_cloud};

const START_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// How the driver handles a certificate.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Accepted,
    /// Refused with this part of the message.
    Refused(&'static str),
}

const UNKNOWN: Outcome = Outcome::Refused("the issuer of the certificate is not trusted");
const OTHER_NAME: Outcome = Outcome::Refused("the certificate of the service is for another name");
const EXPIRED: Outcome = Outcome::Refused("the certificate of the service has expired");
const P521: Outcome = Outcome::Refused("P-521 is not supported");

struct CertificateCase {
    name: &'static str,
    identity: ServerIdentity,
    /// Host in `auth-url`.
    host: &'static str,
    outcome: Outcome,
}

/// Creates a self-signed certificate with `openssl req -x509`, which marks it as a CA, and its key.
async fn openssl_identity(lab: &Lab, key: &str) -> Result<ServerIdentity> {
    let pem = lab
        .shell(&format!(
            "openssl req -x509 -newkey {key} -nodes -days 30 -subj /CN={KEYSTONE} -addext subjectAltName=DNS:{KEYSTONE},IP:{LOOPBACK} \
             -keyout - -out - 2>/dev/null"
        ))
        .await?;
    let begin = pem.find("-----BEGIN CERTIFICATE").context("no certificate")?;
    let (key, chain) = pem.split_at(begin);
    Ok(ServerIdentity {
        chain: chain.to_owned(),
        key: key.to_owned(),
        authorities: chain.to_owned(),
    })
}

/// Creates a certificate with a P-256 key, issued by a CA with a P-521 key.
async fn identity_of_p521_authority(lab: &Lab) -> Result<ServerIdentity> {
    let directory = lab.path("p521");
    let script = format!(
        "mkdir -p {0}; cd {0}; exec 2>/dev/null
         openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-521 -nodes -days 30 -subj /CN=authority -keyout ca.key -out ca.pem
         openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={KEYSTONE} -keyout server.key -out server.csr
         echo subjectAltName=DNS:{KEYSTONE} > extensions
         openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile extensions -out server.pem",
        directory.display()
    );
    lab.shell(&script).await?;
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).with_context(|| format!("no {name}"));
    Ok(ServerIdentity {
        chain: read("server.pem")?,
        key: read("server.key")?,
        authorities: read("ca.pem")?,
    })
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn params(name: &str, is_ca: IsCa) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.is_ca = is_ca;
    Ok(params)
}

fn authority(name: &str) -> Result<Authority> {
    let params = params(name, IsCa::Ca(BasicConstraints::Unconstrained))?;
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Issues a certificate. `others` follow it in the chain.
fn issue(params: &CertificateParams, issuer: &Authority, others: &str, authorities: &str) -> Result<ServerIdentity> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok(ServerIdentity {
        chain: format!("{}{others}", certificate.pem()),
        key: key.serialize_pem(),
        authorities: authorities.to_owned(),
    })
}

async fn cases(lab: &Lab) -> Result<Vec<CertificateCase>> {
    let case = |name, identity, outcome| CertificateCase {
        name,
        identity,
        host: KEYSTONE,
        outcome,
    };
    let mut cases = Vec::new();
    for (name, key) in [
        ("self-signed, RSA", "rsa:2048"),
        ("self-signed, P-256", "ec -pkeyopt ec_paramgen_curve:P-256"),
        ("self-signed, P-384", "ec -pkeyopt ec_paramgen_curve:P-384"),
    ] {
        cases.push(case(name, openssl_identity(lab, key).await?, Outcome::Accepted));
    }
    let by_address = openssl_identity(lab, "rsa:2048").await?;
    cases.push(CertificateCase {
        host: "127.0.0.1",
        ..case("address in subjectAltName", by_address, Outcome::Accepted)
    });

    let (root, stranger) = (authority("root.test")?, authority("stranger.test")?);
    let below = params("intermediate.test", IsCa::Ca(BasicConstraints::Unconstrained))?;
    let intermediate: Authority = CertifiedIssuer::signed_by(below, KeyPair::generate()?, &root)?;
    let server = params(KEYSTONE, IsCa::NoCa)?;
    let (root_pem, chain) = (root.pem(), intermediate.pem());
    let mut old = server.clone();
    old.not_before = date_time_ymd(2020, 1, 1);
    old.not_after = date_time_ymd(2021, 1, 1);
    let other_name = params("nova.example.test", IsCa::NoCa)?;
    let both = format!("{}{root_pem}", stranger.pem());
    cases.extend([
        case(
            "authority and intermediate",
            issue(&server, &intermediate, &chain, &root_pem)?,
            Outcome::Accepted,
        ),
        case(
            "one of several authorities",
            issue(&server, &root, "", &both)?,
            Outcome::Accepted,
        ),
        case(
            "intermediate is missing",
            issue(&server, &intermediate, "", &root_pem)?,
            UNKNOWN,
        ),
        case("another authority", issue(&server, &stranger, "", &root_pem)?, UNKNOWN),
        case("another name", issue(&other_name, &root, "", &root_pem)?, OTHER_NAME),
        case("expired", issue(&old, &root, "", &root_pem)?, EXPIRED),
        case("authority with P-521", identity_of_p521_authority(lab).await?, P521),
    ]);
    Ok(cases)
}

/// Tries to log in to a Keystone with a certificate, and to use its catalog.
async fn check(lab: &Lab, simulator: &Simulator, case: &CertificateCase) -> Result<()> {
    let file = lab.path("authorities.pem");
    std::fs::write(&file, &case.identity.authorities).context("cannot write the authorities")?;
    let address = format!("https://{}:{KEYSTONE_PORT}/identity/v3", case.host);
    let file = file.display().to_string();
    let cloud = edit_conf(lab, simulator, &[("auth-url", &address), ("ca-file", &file)])?;
    let driver = controller()?.flag("--request-timeout=2s");
    let (listed, log) = try_cloud(lab, &driver, &cloud).await?;
    match (case.outcome, listed) {
        (Outcome::Accepted, listed) => listed.with_context(|| log),
        (Outcome::Refused(reason), listed) => {
            let error = listed.err().context("accepted")?;
            expect_parts(error.message(), &["[tls]", reason])
        }
    }
}

#[test]
fn real_certificates_are_accepted_or_explained() {
    in_lab(async |lab| {
        replace_file(&lab, "/etc/hosts", &format!("127.0.0.1 localhost {KEYSTONE}\n")).await?;
        let url = format!("https://{KEYSTONE}:{KEYSTONE_PORT}");
        let simulator = Simulator::start_behind(&lab, SIMULATOR_PORT, &url, &[]).await?;
        for case in cases(&lab).await? {
            let server = TlsServer::start(KEYSTONE_PORT, SIMULATOR_PORT, &case.identity).await?;
            check(&lab, &simulator, &case).await.context(case.name)?;
            server.stop().await;
        }
        check_p521_server(&lab, &simulator).await.context("server with P-521")?;
        simulator.stop().await
    });
}

/// Uses openssl as the server, because the TLS library of these tests does not support such keys.
async fn check_p521_server(lab: &Lab, simulator: &Simulator) -> Result<()> {
    let identity = openssl_identity(lab, "ec -pkeyopt ec_paramgen_curve:P-521").await?;
    let (chain, key) = (lab.path("p521.pem"), lab.path("p521.key"));
    std::fs::write(&chain, &identity.chain).context("cannot write the certificate")?;
    std::fs::write(&key, &identity.key).context("cannot write the key")?;
    let mut command = lab.command("openssl")?;
    command.args(["s_server", "-www", "-accept", &format!("127.0.0.1:{KEYSTONE_PORT}")]);
    command.arg("-cert").arg(&chain).arg("-key").arg(&key);
    let mut server = Process::spawn("openssl s_server", command, &lab.path("s_server.log"))?;
    wait_for_some("openssl s_server", START_TIMEOUT, async || {
        server.check()?;
        Ok(TcpStream::connect((LOOPBACK, KEYSTONE_PORT)).await.ok())
    })
    .await?;
    let case = CertificateCase {
        name: "",
        identity,
        host: KEYSTONE,
        outcome: P521,
    };
    check(lab, simulator, &case).await?;
    server.kill().await
}
