// SPDX-License-Identifier: Apache-2.0
//! Service catalogs as in public clouds: several regions, old versions, and URLs with projects and trailing slashes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use harness::wait_for_some;
use openstack_sim::{DnsAnswer, Identity};
use parking_lot::Mutex;
use serde_json::{Value, json};
use suites::cloud::OtherLogin;
use suites::drivers::Driver;
use suites::expect::{expect_none, expect_parts};
use suites::lab::{Lab, in_lab};
use suites::life::Life;
use suites::simulator::{SERVER_ID, Simulator};
use tokio::net::TcpListener;
use tonic::Code;

use crate::site::{LOOPBACK, SIMULATOR_PORT, controller, edit_conf, list_volumes, serve_names, try_cloud};

/// Domain and port of the cloud's hosts.
const CLOUD: &str = "cloud.example.test:9000";
const CLOUD_PORT: u16 = 9000;
const BODY_LIMIT: usize = 8 << 20;
const MOVE_TIMEOUT: Duration = Duration::from_secs(30);
const SERVER: &str = "nameserver 127.0.0.1\nsearch openstacklocal\n";

/// Two regions with their own hosts, every version of Cinder, and the project in most URLs.
const TWO_REGIONS: &str = "
    identity      SBG7   http://auth.$CLOUD/v3/
    identity      GRA11  http://auth.$CLOUD/v3/
    compute       SBG7   http://compute.sbg7.$CLOUD/v2.1/$PROJECT
    compute       GRA11  http://compute.gra11.$CLOUD/v2.1/$PROJECT
    volume        GRA11  http://volume.gra11.$CLOUD/v1/$PROJECT
    volume        SBG7   http://volume.sbg7.$CLOUD/v1/$PROJECT
    volumev2      GRA11  http://volume.gra11.$CLOUD/v2/$PROJECT
    volumev2      SBG7   http://volume.sbg7.$CLOUD/v2/$PROJECT
    volumev3      GRA11  http://volume.gra11.$CLOUD/v3/$PROJECT
    volumev3      SBG7   http://volume.sbg7.$CLOUD/v3/$PROJECT
    image         GRA11  http://image.gra11.$CLOUD/
    image         SBG7   http://image.sbg7.$CLOUD/
    network       GRA11  http://network.gra11.$CLOUD/
    network       SBG7   http://network.sbg7.$CLOUD/
    object-store  GRA11  http://storage.gra11.$CLOUD/v1/AUTH_$PROJECT
    object-store  SBG7   http://storage.sbg7.$CLOUD/v1/AUTH_$PROJECT
";

/// Nova at the URL from the time before microversions.
const OLD_COMPUTE: &str = "
    identity      UK1    http://auth.$CLOUD/v3/
    compute       UK1    http://compute.uk1.$CLOUD/v2/$PROJECT
    volumev2      UK1    http://volume.uk1.$CLOUD/v2/$PROJECT
    volumev3      UK1    http://volume.uk1.$CLOUD/v3/$PROJECT
";

const BOTH_VERSIONS_OF_COMPUTE: &str = "
    compute        one   http://compute.old.$CLOUD/v2/$PROJECT
    compute_legacy one   http://compute.old.$CLOUD/v2/$PROJECT
    compute        one   http://compute.one.$CLOUD/v2.1
    block-storage  one   http://volume.one.$CLOUD/v3
";

const SLASHES: &str = "
    compute       one    http://compute.one.$CLOUD/v2.1/
    volumev3      one    http://volume.one.$CLOUD/v3/$PROJECT/
";

const UNVERSIONED: &str = "
    compute       one    http://compute.one.$CLOUD
    block-storage one    http://volume.one.$CLOUD/
";

const OLD_CINDER: &str = "
    compute       UK1    http://compute.uk1.$CLOUD/v2/$PROJECT
    volume        UK1    http://volume.uk1.$CLOUD/v1/$PROJECT
    volumev2      UK1    http://volume.uk1.$CLOUD/v2/$PROJECT
";

fn project() -> String {
    Identity::default().project_id
}

/// Builds the catalog from a table with type, region and URL of each public endpoint.
fn catalogue(table: &str) -> Value {
    let mut services: Vec<(&str, Vec<Value>)> = Vec::new();
    for line in table.lines() {
        let [kind, region, url] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            continue;
        };
        let url = url.replace("$CLOUD", CLOUD).replace("$PROJECT", &project());
        let endpoint = json!({"id": url, "interface": "public", "region": region, "region_id": region, "url": url});
        match services.iter_mut().find(|(service, _)| *service == kind) {
            Some((_, endpoints)) => endpoints.push(endpoint),
            None => services.push((kind, vec![endpoint])),
        }
    }
    let services = services.into_iter();
    services
        .map(|(kind, endpoints)| json!({"id": kind, "name": kind, "type": kind, "endpoints": endpoints}))
        .collect()
}

/// Virtual hosts of a cloud in front of the simulator, which has one address for all services.
#[derive(Debug, Clone)]
struct CloudHosts {
    client: reqwest::Client,
    catalogue: Arc<Mutex<Value>>,
    /// Host and path of each request to Cinder and Nova.
    requests: Arc<Mutex<Vec<String>>>,
}

impl CloudHosts {
    async fn start(table: &str) -> Result<Self> {
        let client = reqwest::Client::builder().no_proxy().build().context("no client")?;
        let hosts = Self {
            client,
            catalogue: Arc::new(Mutex::new(catalogue(table))),
            requests: Arc::default(),
        };
        let app = Router::new().fallback(pass_on).with_state(hosts.clone());
        let listener = TcpListener::bind((LOOPBACK, CLOUD_PORT))
            .await
            .context("cannot listen")?;
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(hosts)
    }

    fn offer(&self, table: &str) {
        *self.catalogue.lock() = catalogue(table);
    }

    fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock())
    }
}

async fn pass_on(State(hosts): State<CloudHosts>, request: Request) -> Response {
    match forward(&hosts, request).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

/// Target of a request in the simulator.
enum Destination {
    Path(String),
    /// Responds like a Nova before microversions.
    LegacyVersion,
    Nowhere,
}

fn destination(host: &str, path: &str) -> Destination {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    match (host.split('.').next().unwrap_or_default(), &segments[..]) {
        ("auth", rest) => Destination::Path(format!("/identity/{}", rest.join("/"))),
        ("volume", ["v3", rest @ ..]) => Destination::Path(format!("/volume/v3/{}", rest.join("/"))),
        ("compute", ["v2"]) => Destination::LegacyVersion,
        ("compute", ["v2" | "v2.1", rest @ ..]) => {
            let rest: Vec<&str> = rest.iter().copied().filter(|segment| *segment != project()).collect();
            Destination::Path(format!("/compute/v2.1/{}", rest.join("/")))
        }
        _ => Destination::Nowhere,
    }
}

async fn forward(hosts: &CloudHosts, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_default().to_owned();
    let path = head.uri.path();
    if !host.starts_with("auth.") {
        hosts.requests.lock().push(format!("{host}{path}"));
    }
    let target = match destination(&host, path) {
        Destination::Path(path) => path,
        Destination::LegacyVersion => {
            let version = json!({"version": {"id": "v2.0", "status": "SUPPORTED", "version": "", "min_version": ""}});
            return Ok(axum::Json(version).into_response());
        }
        Destination::Nowhere => return Ok(StatusCode::NOT_FOUND.into_response()),
    };
    let query = head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let mut headers = head.headers;
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    if path.starts_with("/v2/") {
        // Nova ignores microversions at this URL.
        headers.remove("openstack-api-version");
    }
    let body = to_bytes(body, BODY_LIMIT).await.context("cannot read the request")?;
    let answer = hosts
        .client
        .request(head.method, format!("http://127.0.0.1:{SIMULATOR_PORT}{target}{query}"))
        .headers(headers)
        .body(body)
        .send()
        .await
        .context("the simulator does not answer")?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = answer.bytes().await.context("the answer is cut")?;
    let body = if target.ends_with("/auth/tokens") && status.is_success() {
        with_catalogue(&body, &hosts.catalogue.lock())?
    } else {
        body
    };
    Ok(respond(status, &headers, body))
}

fn with_catalogue(body: &Bytes, catalogue: &Value) -> Result<Bytes> {
    let mut token: Value = serde_json::from_slice(body).context("the token is not JSON")?;
    token["token"]["catalog"] = catalogue.clone();
    Ok(token.to_string().into())
}

fn respond(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Response {
    let mut response = (status, body).into_response();
    for (name, value) in headers {
        if ![header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION].contains(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// A lab with a cloud, its name server, and the driver's configuration with or without a region.
struct CloudSite {
    simulator: Simulator,
    hosts: CloudHosts,
    cloud: OtherLogin,
}

impl CloudSite {
    async fn start(lab: &Lab, table: &str, region: &str, arguments: &[&str]) -> Result<Self> {
        serve_names(lab, SERVER, |question| {
            if question.name.ends_with(".cloud.example.test") {
                DnsAnswer::Addresses(vec![LOOPBACK])
            } else {
                DnsAnswer::REFUSED
            }
        })
        .await?;
        let url = format!("http://127.0.0.1:{SIMULATOR_PORT}");
        let simulator = Simulator::start_behind(lab, SIMULATOR_PORT, &url, arguments).await?;
        let hosts = CloudHosts::start(table).await?;
        let address = format!("http://auth.{CLOUD}/v3/");
        let cloud = edit_conf(lab, &simulator, &[("auth-url", &address), ("region", region)])?;
        Ok(Self {
            simulator,
            hosts,
            cloud,
        })
    }

    /// Runs the lifecycle of a volume. Returns the requests to Cinder and Nova.
    async fn use_volume(&self, lab: &Lab, name: &str) -> Result<Vec<String>> {
        let driver = controller()?.start(lab, &self.cloud).await?;
        let used = use_volume(lab, &driver, name).await;
        used.with_context(|| driver.tail())?;
        driver.stop().await?;
        Ok(self.hosts.take_requests())
    }
}

async fn use_volume(lab: &Lab, driver: &Driver, name: &str) -> Result<()> {
    let life = Life::mounted(lab, driver.channel(), driver.channel(), name, "ext4")?;
    let life = life.on(&(SERVER_ID.to_owned(), None));
    let volume = life.create().await?;
    life.attach(&volume).await?;
    life.detach(&volume).await?;
    life.delete(&volume).await
}

#[test]
fn configured_region_serves_both_services() {
    in_lab(async |lab| {
        let site = CloudSite::start(&lab, TWO_REGIONS, "SBG7", &[]).await?;
        let requests = site.use_volume(&lab, "regional").await?;
        let of = |host: &str| requests.iter().any(|request| request.starts_with(host));
        ensure!(of("compute.sbg7.") && of("volume.sbg7."), "{requests:?}");
        let of_other = requests.iter().any(|request| request.contains("gra11"));
        ensure!(!of_other, "{requests:?}");
        site.simulator.stop().await
    });
}

#[test]
fn several_regions_are_refused_before_any_request() {
    in_lab(async |lab| {
        let site = CloudSite::start(&lab, TWO_REGIONS, "", &[]).await?;
        let (listed, _) = try_cloud(&lab, &controller()?, &site.cloud).await?;
        let error = listed.err().context("a region was chosen")?;
        ensure!(error.code() == Code::Unavailable, "{error}");
        expect_parts(error.message(), &["several regions (GRA11, SBG7)"])?;
        expect_none("requests", &site.hosts.take_requests())?;
        site.simulator.stop().await
    });
}

#[test]
fn uses_urls_of_public_clouds() {
    in_lab(async |lab| {
        let site = CloudSite::start(&lab, OLD_COMPUTE, "", &[]).await?;
        let project = project();
        for (case, table, expected) in [
            (
                "old-compute",
                OLD_COMPUTE,
                format!("compute.uk1.{CLOUD}/v2/{project}/servers/"),
            ),
            (
                "both-versions",
                BOTH_VERSIONS_OF_COMPUTE,
                format!("compute.one.{CLOUD}/v2.1/servers/"),
            ),
            ("slashes", SLASHES, format!("volume.one.{CLOUD}/v3/{project}/volumes")),
            (
                "unversioned",
                UNVERSIONED,
                format!("volume.one.{CLOUD}/v3/{project}/volumes"),
            ),
        ] {
            site.hosts.offer(table);
            let requests = site.use_volume(&lab, case).await.context(case)?;
            let is_used = requests.iter().any(|request| request.starts_with(&expected));
            let mut others = requests.iter();
            let are_others_used = others.any(|request| request.contains("//") || request.contains(".old."));
            ensure!(is_used && !are_others_used, "{case}: {requests:?}");
        }
        site.simulator.stop().await
    });
}

#[test]
fn missing_version_is_reported_with_urls() {
    in_lab(async |lab| {
        let site = CloudSite::start(&lab, OLD_CINDER, "UK1", &[]).await?;
        let (listed, _) = try_cloud(&lab, &controller()?, &site.cloud).await?;
        let error = listed.err().context("Cinder v2 was used")?;
        ensure!(error.code() == Code::Unavailable, "{error}");
        let parts = [
            "no public endpoint for service block-storage with API version v3 in region UK1",
            &format!("volumev2/public/UK1 http://volume.uk1.{CLOUD}/v2/{}", project()),
            "region and interface are right",
        ];
        expect_parts(error.message(), &parts)?;
        ensure!(!error.message().contains("check region"), "{error}");
        site.simulator.stop().await
    });
}

/// Tokens expire after a few seconds; the driver must use the URLs of the next one.
#[test]
fn changed_catalog_urls_are_used() {
    const BEFORE: &str = "
        compute  one  http://compute.before.$CLOUD/v2.1
        volumev3 one  http://volume.before.$CLOUD/v3/$PROJECT
    ";
    in_lab(async |lab| {
        let site = CloudSite::start(&lab, BEFORE, "one", &["--token-lifetime", "5"]).await?;
        let driver = controller()?.start(&lab, &site.cloud).await?;
        list_volumes(&driver).await.with_context(|| driver.tail())?;
        site.hosts.offer(&BEFORE.replace("before", "after"));
        wait_for_some("a request to the new address", MOVE_TIMEOUT, async || {
            list_volumes(&driver).await.with_context(|| driver.tail())?;
            let requests = site.hosts.take_requests();
            let mut hosts = requests.iter();
            let has_moved = hosts.any(|request| request.starts_with("volume.after."));
            Ok(has_moved.then_some(()))
        })
        .await?;
        driver.stop().await?;
        site.simulator.stop().await
    });
}
